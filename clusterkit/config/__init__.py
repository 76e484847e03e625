"""Settings: TOML files in layers, checked and turned into frozen models."""
