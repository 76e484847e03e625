"""Which W&B server and key are used."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterkit.errors import WandbError
from clusterkit.wandb.server import DEFAULT_URL, base_url, find_credentials

KEY = "k" * 40


def test_no_key_anywhere(tmp_path: Path) -> None:
    assert find_credentials({}, tmp_path) is None


def test_the_environment_wins(tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password other\n")
    found = find_credentials({"WANDB_API_KEY": f" {KEY}\n"}, tmp_path)
    assert (found.base_url, found.key) == (DEFAULT_URL, KEY)


def test_netrc_is_read_for_the_server_in_use(tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text(f"machine wandb.lab.example login user password {KEY}\n")
    assert find_credentials({}, tmp_path) is None
    found = find_credentials({"WANDB_BASE_URL": "https://wandb.lab.example:8443/"}, tmp_path)
    assert (found.base_url, found.key) == ("https://wandb.lab.example:8443", KEY)


def test_netrc_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"machine api.wandb.ai login user password {KEY}\n")
    found = find_credentials({"NETRC": str(tmp_path / "keys")}, tmp_path)
    assert found.key == KEY


def test_the_server_saved_by_wandb_login(tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "wandb"
    folder.mkdir(parents=True)
    (folder / "settings").write_text("[default]\nbase_url = https://wandb.lab.example\n")
    assert base_url({}, tmp_path) == "https://wandb.lab.example"
    assert base_url({"WANDB_BASE_URL": "http://127.0.0.1:1"}, tmp_path) == "http://127.0.0.1:1"


def test_damaged_files_and_addresses(tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine\n")
    with pytest.raises(WandbError, match=r"\.netrc: not readable"):
        find_credentials({}, tmp_path)
    with pytest.raises(WandbError, match="not an http"):
        find_credentials({"WANDB_BASE_URL": "file:///etc/passwd", "WANDB_API_KEY": KEY}, tmp_path)
    (tmp_path / "settings").write_text("no section\n")
    with pytest.raises(WandbError, match="not readable as W&B settings"):
        base_url({"WANDB_CONFIG_DIR": str(tmp_path)}, tmp_path)
