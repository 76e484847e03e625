"""Programs that a job runs on a node: under any Python from 3.8 with the standard library alone.

Each is one file, which a run directory gets a copy of. The laptop imports some of them, too.
"""
