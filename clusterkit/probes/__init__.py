"""Questions asked on a machine: shell fragments, each beside the parser of its answer."""
