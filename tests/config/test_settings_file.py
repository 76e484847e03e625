"""A settings file gets to its place as a whole, or stays as it is."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from clusterkit.config.settings_file import Proposal, save
from clusterkit.errors import ConfigError

NEW = '# größer\r\nx = "☃"\r\n'


def test_it_is_written_to_the_byte_through_a_link(tmp_path: Path) -> None:
    file, link = tmp_path / "real.toml", tmp_path / "link.toml"
    file.write_text("x = 1\n")
    file.chmod(0o600)
    link.symlink_to(file)
    save(Proposal(link, "x = 1\n", NEW))
    assert file.read_bytes() == NEW.encode()
    assert (link.is_symlink(), file.stat().st_mode & 0o777) == (True, 0o600)


@pytest.mark.parametrize("old", [None, "x = 2\n"])
def test_a_file_that_was_changed_meanwhile_is_left_alone(tmp_path: Path, old: str | None) -> None:
    file = tmp_path / "clusterkit.toml"
    file.write_text("x = 1\n")
    with pytest.raises(ConfigError, match="changed in the meantime"):
        save(Proposal(file, old, NEW))
    assert file.read_text() == "x = 1\n"


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="No space left"):
        save(Proposal(tmp_path / "clusterkit.toml", None, NEW))
    assert list(tmp_path.iterdir()) == []
