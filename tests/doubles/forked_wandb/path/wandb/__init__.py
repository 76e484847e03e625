"""Stands before the real wandb on the path of `python -m wandb`."""
