"""The keys of a run on this machine, after what a power loss leaves of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from clusterkit.interactive.ssh_keys import keys_of


@pytest.mark.needs("ssh-keygen")
@pytest.mark.parametrize("name", ["id", "id.pub", "host", "host.pub", "known_hosts"])
@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_keys_that_a_power_loss_has_cut_are_made_anew(tmp_path: Path, name: str, kept: float) -> None:
    keys = keys_of(tmp_path, "a-1")
    before = keys.public_key
    assert keys_of(tmp_path, "a-1").public_key == before
    whole = (keys.folder / name).read_bytes()
    (keys.folder / name).write_bytes(whole[: int(kept * len(whole))])
    again = keys_of(tmp_path, "a-1")
    assert again.public_key != before
    subprocess.run(["ssh-keygen", "-y", "-f", again.identity], check=True, capture_output=True)
