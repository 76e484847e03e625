"""Comparisons with the code of McLean et al. 2025, which the reader fetches."""
