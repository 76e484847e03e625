"""How the runs of a pack find one another, so that one process trains all of them.

Each run has a process of its own, with its own log and exit code. They meet in a folder that all of them see:
the first to lock a file there leads, listens at a Unix socket and trains all; the others follow: they hand
over what they were started with, and wait. What they tell one another are lines of JSON:

- a follower: `{"name", "argv", "environ"}`, with its standard output as a file descriptor; later
  `{"signal": 10}` for each signal that it is sent;
- the leader: `{"begin": its name, "runs": how many}`; later `{"end": exit code, "why", "again": how many}`;
  or `{"alone": why}` to one that it does not take.

Lock and sockets end with their process, so each side knows at once when the other is gone.
"""
