"""Searches for the best values of a program's parameters: their space, their trials, their metric."""
