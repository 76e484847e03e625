"""`python -m clusterkit`."""

from clusterkit.cli import main

main()
