"""Connections that OpenSSH makes and holds: its master, and channels through the master's control socket."""
