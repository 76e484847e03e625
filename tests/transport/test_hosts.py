"""The hosts that a person's ssh configuration names."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterkit.transport.hosts import configured_hosts


def test_hosts_of_all_files_without_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".ssh"
    (folder / "more").mkdir(parents=True)
    (folder / "config").write_text(
        "# Host commented\nInclude more/*.conf\nHost uni uni-*  # of the group\n  User me\n"
        'host="quoted one"\nHost !not *\nMatch host x\nInclude ~/.ssh/absent\nHost "broken\nHost uni\n'
    )
    (folder / "more/a.conf").write_text("Host jump\nInclude more/a.conf\n")
    assert configured_hosts() == ["jump", "uni", "quoted one"]
    assert configured_hosts(tmp_path / "none") == []


def test_a_file_as_people_write_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tabs, with files that include each other, and with patterns that name nothing."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".ssh"
    folder.mkdir()
    (folder / "config").write_text(
        'Host\ttabbed\n\tHostName\tx\nInclude ~/.ssh/* / "" **x [\nHost = equal\nHost\n'
    )
    for name in "abcdefgh":
        (folder / name).write_text(f"Include ~/.ssh/*\nHost {name}\n")
    assert set(configured_hosts()) == {"tabbed", "equal", *"abcdefgh"}


def test_a_byte_order_mark_hides_no_host(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_bytes(b"\xef\xbb\xbfHost uni\n  HostName uni.example.org\n")
    assert configured_hosts(config) == ["uni"]
