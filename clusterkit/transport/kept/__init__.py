"""A login that outlives its command: a background process holds the connection, later commands use it.

`keeper` is that process, `start` brings it up, `client` is the `Link` of the commands. They talk over a
Unix socket in a folder only the user can enter. No secret is written down or passed as an argument.
"""
