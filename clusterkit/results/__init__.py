"""Pulls run directories from clusters: lists them, transfers what is new and checks the result."""
