"""Runs jobs on this machine without a scheduler: detached, with a time limit, known by pid and start time."""
