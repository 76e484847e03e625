"""Learning algorithms as pure updates over tensors."""
