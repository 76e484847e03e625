"""Environments: Meta-World as the official package computes it, and the vector of worker processes."""
