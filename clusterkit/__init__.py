"""clusterkit: takes a reinforcement-learning run from the laptop to a Slurm cluster and back."""

__version__ = "0.1.0"
