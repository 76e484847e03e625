"""Runs beside each other and away from home: what differs between two, and all of one in an archive."""
