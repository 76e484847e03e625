"""Where the data that ships with the package is, and the programs that a job runs on a node.

In a wheel the folders of data are inside the package; in a checkout they are top-level folders.
"""

import shlex
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_DATA = _PACKAGE / "_data" if (_PACKAGE / "_data").is_dir() else _PACKAGE.parent
TEMPLATES, CONTAINERS, DOCS = (_DATA / name for name in ("templates", "containers", "docs"))
NODE_PROGRAMS = _PACKAGE / "node"


def shell_script(name: str, **values: object) -> str:
    """The text of a shell script in templates/, with variables set before it."""
    lines = [f"{variable}={shlex.quote(str(value))}\n" for variable, value in values.items()]
    return "".join(lines) + (TEMPLATES / name).read_text(encoding="utf-8")


def page(name: str) -> str:
    """The command that shows a documentation page, e.g. of ``page("configuration.md")``."""
    return f"clusterkit docs {name.removesuffix('.md')}"


def trainer_packages() -> list[str]:
    """What the trainer needs from the package index, as requirements."""
    lines = (CONTAINERS / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]
