"""Compares two runs, and exports a whole run to an archive and reads it back."""
