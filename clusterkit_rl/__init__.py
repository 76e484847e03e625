"""The console script: it starts clusterkit only if the packages that Python finds are ours."""


def main() -> None:
    """Runs the command line."""
    from clusterkit_rl.distribution import refuse_namesakes

    refuse_namesakes()
    from clusterkit.__main__ import main as command

    command()
