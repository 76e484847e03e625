"""The commands, one file each, without their command line."""
