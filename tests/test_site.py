"""The work root is resolved by the cluster's own shell, and made private."""

import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.config.models import Cluster
from clusterkit.errors import TransportError
from clusterkit.site import open_site, shell_path


def local(root: str, **more: object) -> Cluster:
    return Cluster(name="local", kind="local", root=root, container="none", **more)  # type: ignore[arg-type]


def test_folders_are_made_private_and_absolute(tmp_path: Path) -> None:
    with open_site(local(f"{tmp_path}/work root/")) as site:
        assert site.layout.root == f"{tmp_path}/work root"
        assert site.layout.scratch == f"{tmp_path}/work root/scratch"
        assert site.free_bytes is not None
        assert site.free_bytes > 0
    for folder in ("images", "snapshots", "runs", "cache", "scratch"):
        path = tmp_path / "work root" / folder
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_variables_and_tilde_are_expanded_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", f"{tmp_path}/my home")
    monkeypatch.setenv("USER", "w")
    (tmp_path / "my home").mkdir()
    with open_site(local("~/ck", scratch="$HOME/${USER}/s")) as site:
        assert site.layout.root == f"{tmp_path}/my home/ck"
        assert site.layout.scratch == f"{tmp_path}/my home/w/s"


def test_looking_changes_nothing(tmp_path: Path) -> None:
    with open_site(local(f"{tmp_path}/new"), create=False) as site:
        assert site.layout.runs == f"{tmp_path}/new/runs"
    assert not (tmp_path / "new").exists()


def test_a_root_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with (
        pytest.raises(TransportError, match=r"work root .* cannot be used: .*Not a directory") as caught,
        open_site(local(f"{tmp_path}/file/root")),
    ):
        pass
    assert "clusters.local" in str(caught.value.hint)


@given(st.text(st.characters(exclude_characters="\0$~", exclude_categories=["Cs"]), min_size=1))
def test_any_path_without_variables_is_taken_to_the_letter(text: str) -> None:
    word = shell_path("/" + text)
    shown = subprocess.run(["sh", "-c", f"printf %s {word}"], capture_output=True, check=True).stdout
    assert shown == ("/" + text).encode()
