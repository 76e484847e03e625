"""`clusterkit`, and `python -m clusterkit`."""

from clusterkit.cli.edge import run


def main() -> None:
    """Console entry point. Every error ends in two lines and a documented exit code."""
    run(_command)


def _command() -> None:
    from clusterkit.cli.app import command

    command()


if __name__ == "__main__":
    main()
