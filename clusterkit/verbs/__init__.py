"""One file per verb: what the commands do."""
