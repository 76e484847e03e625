"""Inside a running job: commands, ports and SSH on the node of a run."""
