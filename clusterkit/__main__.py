"""`python -m clusterkit`."""

from clusterkit.cli.app import main

main()
