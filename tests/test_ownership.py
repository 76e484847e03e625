"""Who could change a path: one shell fragment, run for real by an ordinary user among others."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from clusterkit import ownership
from tests.needs import param
from tests.programs import write_program

ALICE, BOB, LAB = 41001, 41002, 41099
"""Users of no name, each with a group of the same number, and a group that both are in."""
SHELLS = [param(shell) for shell in ("dash", "bash", "busybox")]

pytestmark = pytest.mark.needs("root")


def folder(path: Path, owner: int = ALICE, mode: int = 0o700, group: int | None = None) -> Path:
    path.mkdir(parents=True)
    os.chown(path, owner, owner if group is None else group)
    path.chmod(mode)
    return path


@pytest.fixture
def share(tmp_path: Path) -> Path:
    """A folder of root's that everybody passes; pytest's own are private to root."""
    for above in (tmp_path, *tmp_path.parents):
        if above.stat().st_uid == 0 and above.stat().st_mode & 0o1005 == 0:
            above.chmod(0o755)
    return folder(tmp_path / "share", 0, 0o755)


def look(
    shell: str, *paths: Path | str, trust: tuple[str, ...] = (), group: str | None = None, must: bool = False
) -> list[str]:
    """`KIND name` of each fault, as Alice sees it; notes have a `+`."""
    script = (
        ownership.fragment(trust, group)
        + f"own_must={'yes' if must else ''}\n"
        + ('own_check "$@"; status=$?\nprintf "%s--\\n%s--\\n%s" "$own_faults" "$own_notes" "$status"')
    )
    argv = [*(["busybox", "sh"] if shell == "busybox" else [shell]), "-uc", script, "sh", *map(str, paths)]
    alice = ["setpriv", f"--reuid={ALICE}", f"--regid={ALICE}", f"--groups={ALICE},{LAB}", "--"]
    done = subprocess.run([*alice, *argv], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    faults, notes, status = done.stdout.split("--\n")
    assert (status == "0") == (faults == "")
    return [
        f"{mark}{finding.kind} {Path(finding.path).name}"
        for mark, text in (("", faults), ("+", notes))
        for finding in ownership.parse(text)
    ]


def own(share: Path) -> list[Path | str]:
    return [folder(share / "alice/root").parent / "root"]


def linked(
    share: Path, target: Path, name: str = "link", owner: int = ALICE, *, relative: bool = False
) -> Path:
    link = share / name
    link.symlink_to(os.path.relpath(target, share) if relative else target)
    os.chown(link, owner, owner, follow_symlinks=False)
    return link


def above(mode: int, owner: int, group: int | None = None) -> Callable[[Path], list[Path | str]]:
    """Alice's own folder below one like this."""
    return lambda share: [folder(folder(share / "above", owner, mode, group) / "root")]


def itself(
    mode: int, owner: int, group: int | None = None, end: str = ""
) -> Callable[[Path], list[Path | str]]:
    return lambda share: [f"{folder(share / 'root', owner, mode, group)}{end}"]


CASES: dict[str, tuple[Callable[[Path], list[Path | str]], list[str]]] = {
    "one's own below root's": (itself(0o700, ALICE), []),
    "not there yet, in one's own": (lambda share: [folder(share / "mine") / "new/root"], []),
    "not there yet, in a sticky one": (lambda share: [folder(share / "tmp", 0, 0o1777) / "root"], []),
    "not there yet, in Bob's": (
        lambda share: [folder(share / "bobs", BOB, 0o777) / "root"],
        ["owner bobs", "others bobs"],
    ),
    "below a sticky one of root's": (above(0o1777, 0), []),
    "below a sticky one of Bob's": (above(0o1777, BOB), ["owner above"]),
    "below one of Bob's": (above(0o755, BOB), ["owner above"]),
    "below one that all write to": (above(0o777, 0), ["others above"]),
    "below one that a group writes to": (above(0o2775, 0, LAB), ["group above"]),
    "below a sticky one of a group": (above(0o3775, 0, LAB), []),
    "below one of one's private group": (
        above(0o775, ALICE),
        ["group above"],
    ),  # of no name: not known as such
    "a root of Bob's": (itself(0o777, BOB), ["owner root", "others root"]),
    "a private root of Bob's": (itself(0o755, BOB), ["owner root"]),
    "a sticky root": (itself(0o1777, 0), ["others root"]),
    "a sticky scratch": (itself(0o1777, 0, end="/"), []),
    "a scratch that all write to": (itself(0o777, 0, end="/"), ["others root"]),
    "a scratch that Bob has made": (itself(0o777, BOB, end="/"), ["owner root", "others root"]),
    "of nobody": (itself(0o755, 65534), ["+unknown root"]),
    "of nobody and for all": (itself(0o777, 65534), ["others root", "+unknown root"]),
    "one's own link to one's own": (lambda share: [linked(share, folder(share / "mine"))], []),
    "a relative link to one's own": (
        lambda share: [linked(share, folder(share / "mine"), relative=True)],
        [],
    ),
    "Bob's link to one's own": (
        lambda share: [linked(share, folder(share / "mine"), owner=BOB)],
        ["owner link"],
    ),
    "a link to Bob's": (lambda share: [linked(share, folder(share / "bobs", BOB))], ["owner bobs"]),
    "a relative link to Bob's": (
        lambda share: [linked(share, folder(share / "bobs", BOB), relative=True)],
        ["owner bobs"],
    ),
    "a link in Bob's folder": (
        lambda share: [linked(folder(share / "bobs", BOB, 0o755), folder(share / "mine"))],
        ["owner bobs"],
    ),
    "a folder behind a link": (
        lambda share: [linked(share, folder(folder(share / "bobs", BOB, 0o755) / "mine").parent) / "mine"],
        ["owner bobs"],
    ),
    "links through a link": (
        lambda share: [linked(share, linked(share, folder(share / "bobs", BOB), "second"), "first")],
        ["owner bobs"],
    ),
    "a link to a sticky folder": (
        lambda share: [linked(share, folder(share / "tmp", 0, 0o1777))],
        ["others tmp"],
    ),
    "a scratch that is such a link": (
        lambda share: [f"{linked(share, folder(share / 'tmp', 0, 0o1777))}/"],
        [],
    ),
    "names with blanks and signs": (
        lambda share: [folder(share / "my  * $(id) root", BOB)],
        ["owner my  * $(id) root"],
    ),
    "a name in two lines is nobody's": (lambda share: [share / "not\nthere"], []),
    "two slashes and dots": (
        lambda share: [f"{folder(share / 'bobs', BOB).parent}//./bobs/"],
        ["owner bobs"],
    ),
    "many paths at once": (
        lambda share: [folder(share / "a"), folder(share / "b", BOB), folder(share / "c", 0, 0o777)],
        ["owner b", "others c"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("case", CASES)
def test_whoever_could_change_a_path_is_found(share: Path, shell: str, case: str) -> None:
    make, found = CASES[case]
    assert look(shell, *make(share)) == found


TRUSTED: dict[str, tuple[Callable[[Path], list[Path | str]], tuple[str, ...], str | None, list[str]]] = {
    "a user": (above(0o755, BOB), (str(BOB),), None, ["+owner above"]),
    "another user": (above(0o755, BOB), ("daemon", "nosuchuser"), None, ["owner above"]),
    "a user does not stand for a group": (
        above(0o2775, BOB, LAB),
        (str(BOB),),
        None,
        ["group above", "+owner above"],
    ),
    "a group": (above(0o2775, 0, LAB), (str(LAB),), None, ["+group above"]),
    "the group of the settings": (above(0o2775, 0, LAB), (), str(LAB), ["+group above"]),
    "that group is no user": (above(0o755, LAB), (), str(LAB), ["owner above"]),
    "both": (above(0o2775, BOB, LAB), (str(BOB), str(LAB)), None, ["+owner above", "+group above"]),
    "a group is not everybody": (above(0o777, 0, LAB), (str(LAB),), None, ["others above"]),
    "everybody": (above(0o777, BOB, LAB), ("*",), None, ["+owner above", "+others above"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("case", TRUSTED)
def test_whom_the_settings_trust_is_told(share: Path, shell: str, case: str) -> None:
    make, trust, group, found = TRUSTED[case]
    assert look(shell, *make(share), trust=trust, group=group) == found


def test_a_group_of_ones_own_name_is_private(tmp_path: Path) -> None:
    """As on systems that give every user one, with umask 002: here it is root's."""
    script = ownership.fragment((), None) + 'own_check "$1" && echo fine'
    shared = folder(tmp_path / "shared", 0, 0o775, 0)
    done = subprocess.run(["sh", "-c", script, "sh", shared], capture_output=True, text=True)
    assert done.stdout == "fine\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_what_was_made_has_to_be_there(share: Path, shell: str) -> None:
    """Bob may hide his folder in a sticky one while somebody looks."""
    tmp = folder(share / "tmp", 0, 0o1777)
    for there, found in ((folder(tmp / "mine"), []), (tmp / "hidden/root", ["missing root"])):
        assert look(shell, f"{there}/", must=True) == found


@pytest.mark.parametrize("shell", SHELLS)
def test_a_relative_path_is_looked_at_too(share: Path, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    folder(share / "bobs", BOB)
    monkeypatch.chdir(share)
    assert look(shell, "bobs", "./bobs/") == ["owner bobs"] * 2


def test_a_list_of_others_makes_no_private_group(tmp_path: Path) -> None:
    """`ls` shows with a `+` that an access control list names somebody, by its mask in the group's place."""
    tools = write_program(tmp_path / "bin", "ls", 'exec /bin/ls "$@" | sed "s|^\\(drwxrwx---\\)|\\1+|"')
    shared = folder(tmp_path / "shared", 0, 0o770, 0)
    script = ownership.fragment((), None) + 'own_check "$1"; printf %s "$own_faults"'
    said = [
        subprocess.run(["sh", "-c", script, "sh", shared], capture_output=True, text=True, env={"PATH": path})
        for path in ("/bin:/usr/bin", f"{tools}:/bin:/usr/bin")
    ]
    assert [done.stdout for done in said] == ["", f"group drwxrwx---+ root root {shared}\n"]


def test_the_cure_is_one_that_the_user_can_carry_out() -> None:
    (ours,) = ownership.parse("group drwxrwxr-x alice lab /home/alice\n")
    assert ownership.cure([ours], "alice", "[clusters.uni]") == "chmod go-w /home/alice"
    (bobs,) = ownership.parse("owner drwxr-xr-x bob bob /share/my root\n")
    cure = ownership.cure([bobs, ours], "alice", "[clusters.uni]")
    assert "`root`, `scratch` or `image_store` of [clusters.uni]" in cure
    assert cure.endswith('trust = ["bob", "lab"]')
    (open_to_all,) = ownership.parse("others drwxrwxrwx bob bob /share\n")
    assert "trust" not in ownership.cure([bobs, open_to_all], "alice", "[clusters.uni]")
    error = ownership.refusal("login", [bobs], "alice", "[clusters.uni]")
    assert "/share/my root belongs to bob (drwxr-xr-x bob bob)" in error.cause
    assert error.exit_code == 10
