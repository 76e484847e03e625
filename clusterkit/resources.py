"""Finds the data that ships with the package: templates/, containers/ and docs/, and the programs of `node`.

In a wheel the folders are inside the package; in a checkout they are top-level folders.
"""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def resource(*parts: str) -> Path:
    """Path of a shipped file or folder, e.g. ``resource("templates", "profiles")``.

    Raises:
        FileNotFoundError: it is in neither place, so the installation is damaged.
    """
    for root in (_PACKAGE / "_data", _PACKAGE.parent):
        candidate = root.joinpath(*parts)
        if candidate.exists():
            return candidate
    raise FileNotFoundError(f"{'/'.join(parts)} is missing from this installation of clusterkit")


def node_program(name: str) -> bytes:
    """Returns the text of a program that a job runs on a node, such as ``launch.py``."""
    return (_PACKAGE / "node" / name).read_bytes()


def page(name: str) -> str:
    """The path of a documentation page on this machine, e.g. ``page("configuration.md")``.

    Raises:
        FileNotFoundError: the installation is damaged.
    """
    return str(resource("docs", name))


def trainer_packages() -> list[str]:
    """What the trainer needs from the package index, as requirements."""
    lines = resource("containers", "requirements.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]
