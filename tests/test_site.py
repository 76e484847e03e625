"""The work root is resolved by the cluster's own shell, and made private."""

import os
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit import ownership
from clusterkit.config.models import Cluster
from clusterkit.errors import OwnershipError, TransportError
from clusterkit.probes import shell_path
from clusterkit.site import _CREATE, check_script, open_site, resolve_script
from tests.programs import write_program


def local(root: str, **more: object) -> Cluster:
    return Cluster(name="local", kind="local", root=root, container="none", **more)  # type: ignore[arg-type]


def test_folders_are_made_private_and_absolute(tmp_path: Path) -> None:
    with open_site(local(f"{tmp_path}/work root/")) as site:
        assert site.transport.where == "this machine"
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
        pytest.raises(TransportError, match=r"work root .* cannot be used: .*/file.*File exists") as caught,
        open_site(local(f"{tmp_path}/file/root")),
    ):
        pass
    assert "clusters.local" in str(caught.value.hint)


@pytest.mark.slow
@given(st.text(st.characters(exclude_characters="\0$~", exclude_categories=["Cs"]), min_size=1))
def test_any_path_without_variables_is_taken_to_the_letter(text: str) -> None:
    word = shell_path("/" + text)
    shown = subprocess.run(["sh", "-c", f"printf %s {word}"], capture_output=True, check=True).stdout
    assert shown == ("/" + text).encode()


BOB = 41002
"""A user of no name."""


@pytest.mark.slow
@pytest.mark.needs("root")
@pytest.mark.parametrize("planted", ["root", "root/runs", "root/groups", "scratch", "store", "above"])
@pytest.mark.parametrize("create", [True, False])
def test_a_folder_that_another_user_could_change_is_refused(
    tmp_path: Path, planted: str, create: bool
) -> None:
    top = tmp_path / "above"
    (top / planted).mkdir(parents=True, exist_ok=True)
    bobs = top if planted == "above" else top / planted
    os.chown(bobs, BOB, BOB)
    before = sorted(tmp_path.rglob("*"))
    cluster = local(f"{top}/root", scratch=f"{top}/scratch", image_store=f"{top}/store")
    with pytest.raises(OwnershipError) as caught, open_site(cluster, create=create):
        pass
    assert f"{bobs} belongs to {BOB} (drwxr-xr-x {BOB} {BOB})" in caught.value.cause
    assert f'trust = ["{BOB}"]' in str(caught.value.hint)
    assert sorted(tmp_path.rglob("*")) == before
    trusting = cluster.model_copy(update={"trust": (str(BOB),)})
    with open_site(trusting, create=create) as site:
        assert site.notes == (f"{bobs} belongs to {BOB} (drwxr-xr-x {BOB} {BOB})",)


@pytest.mark.needs("root")
def test_scratch_that_is_made_by_another_meanwhile_is_refused(tmp_path: Path) -> None:
    """Between the look and the making: here a mkdir that is Bob's."""
    bobs = f'case $last in *scratch*) chown {BOB} "$last" ;; esac'
    write_program(tmp_path / "bin", "mkdir", f'for last; do :; done\n/bin/mkdir "$@" && {bobs}')
    cluster = local(f"{tmp_path}/root", scratch=f"{tmp_path}/scratch")
    script = f"PATH={tmp_path}/bin:$PATH\n" + resolve_script(cluster) + check_script(cluster) + _CREATE
    done = subprocess.run(["sh", "-c", script, "sh", "", "700"], capture_output=True, text=True)
    assert done.returncode == ownership.EXIT_CODE
    assert f"owner drwx------ {BOB} root {tmp_path}/scratch" in done.stdout
