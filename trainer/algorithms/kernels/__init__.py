"""What an update of SAC with explicit gradients is made of beside its matrix products."""
