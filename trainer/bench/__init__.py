"""`python -m trainer bench`: how fast a recipe runs on this very node, with which settings."""

from trainer.bench.command import main

__all__ = ["main"]
