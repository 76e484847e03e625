"""The backend of Slurm."""
