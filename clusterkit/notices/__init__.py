"""Notices of ended runs: what they say, to whom they went, and how they are sent."""
