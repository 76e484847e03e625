"""Training loops: each reads as its algorithm in one screen."""
