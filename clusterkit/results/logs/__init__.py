"""Reads what a program logs, a file per format, into one series of rows."""
