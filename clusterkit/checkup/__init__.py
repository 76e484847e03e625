"""Checks of everything a run needs, from the laptop to the container.

The modules `login`, `storage`, `node` and `container` hold the scripts and judge the answers without I/O;
`laptop`, `ssh` and the `examine_*` modules ask.
"""
