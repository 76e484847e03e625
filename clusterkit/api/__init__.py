"""clusterkit for Python programs: the steps of the commands, without their output and their questions."""
