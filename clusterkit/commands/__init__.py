"""Steps that several commands take, and those of `init`, `search` and Hydra, which are long."""
