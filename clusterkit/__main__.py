"""`python -m clusterkit`, and what the console script (`clusterkit_rl`) goes on to."""

import sys


def main() -> None:
    """Runs the command line. Every error ends in two lines and a documented exit code."""
    try:
        from clusterkit.cli.edge import run
    except KeyboardInterrupt:  # so early that nothing of clusterkit handles it
        sys.stderr.write("\ninterrupted; nothing was done\n")
        raise SystemExit(130) from None
    run(_command)


def _command() -> None:
    from clusterkit.cli.app import command

    command()


if __name__ == "__main__":
    from clusterkit_rl.distribution import refuse_namesakes

    refuse_namesakes()
    main()
