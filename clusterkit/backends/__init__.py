"""Schedulers: one protocol, and one package for each implementation of it."""
