"""Bringing run directories home: what is there, what is new, and whether it came whole."""
