"""Slurm from the outside: the job script, the commands and their answers, all pure text."""
