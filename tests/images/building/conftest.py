"""A real Apptainer for this machine's commands: that of the test cluster's root file system."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.fixtures import do_without
from tests.cluster.host import UnavailableError, prepare
from tests.cluster.rootfs import rootfs
from tests.needs import needing

# The folders of this machine that Apptainer works in, under their own names; the rest is the root file
# system's, read-only. A chroot would not do: Apptainer makes a user namespace, which is refused there.
_WRAPPER = """#!/bin/sh
exec bwrap --cap-add ALL --ro-bind '{root}' / --dev-bind /dev /dev --bind /proc /proc --ro-bind /sys /sys \\
  --dev-bind /tmp /tmp --bind /var/tmp /var/tmp --tmpfs /root --ro-bind '{ids}' /etc/subuid \\
  --ro-bind '{ids}' /etc/subgid --setenv PATH /usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \\
  --chdir "$PWD" apptainer "$@"
"""


@pytest.fixture(scope="session")
def node_root() -> Path:
    """The root file system of the test cluster's nodes."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            prepare(Path(scratch))
        except UnavailableError as reason:
            do_without(str(reason))
    return rootfs()


@pytest.fixture
@needing("bwrap")
def apptainer(node_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Puts a real Apptainer on PATH."""
    folder = tmp_path / "with apptainer"
    folder.mkdir()
    (folder / "ids").write_text("root:1000000:65536\n")
    program = folder / "apptainer"
    program.write_text(_WRAPPER.format(root=node_root, ids=folder / "ids"))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    place = tmp_path / "builds"  # not /var/tmp, where others build meanwhile
    place.mkdir()
    monkeypatch.setenv("APPTAINER_TMPDIR", str(place))
    yield program
    assert not list(place.glob("clusterkit-build-*")), "a build left its folder behind"
