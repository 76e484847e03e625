"""Makes a scratch project: two clusters on this machine and a toy program that ends in a second.

The commands of the documentation are tried in it, and its pictures taken.
"""

from __future__ import annotations

import shutil
from pathlib import Path

SETTINGS = """
[project]
name = "reacher"
program = ["python3", "train.py"]
default_profile = "a40-2m"

[clusters.uni]
kind = "local"
container = "none"
root = "{root}/uni"

[clusters.other]
kind = "local"
container = "none"
root = "{root}/other"
"""

_PROFILE = """
[profiles.{name}]
program = ["python3", "train.py"]
gpu = "none"
cpus = 1
memory = "1G"
time = "10m"
"""


def make(folder: Path, profiles: tuple[str, ...] = ("a40-2m",)) -> None:
    """Write the project's files.

    Args:
        folder: of the project; made if it is not there.
        profiles: names for which this machine is enough.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tables = [SETTINGS.format(root=folder / ".clusterkit")]
    tables += [_PROFILE.format(name=name) for name in profiles]
    (folder / "clusterkit.toml").write_text("".join(tables))
    shutil.copyfile(Path(__file__).parent / "toy.py", folder / "train.py")
