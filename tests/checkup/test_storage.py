"""What the roots of a cluster say, judged."""

from __future__ import annotations

import pytest

from clusterkit.backends.checks import Outcome, Verdict
from clusterkit.checkup import storage
from clusterkit.checkup.storage import Storage
from clusterkit.images.image import Image
from tests.checkup.sites import answer, login

ABOUT = "root /share/me\nscratch /fast\nstore /share/me/images\nhost uni\nnow 1000"
DF = "Filesystem 1024-blocks Used Available Capacity Mounted on\n{name} 99999999 1 {free} 1% {name}"


JUDGES = {check.name: check.judge for check in storage.CHECKS}


def space(root: int, *, quota: str = "", home: int = 9_999_999) -> tuple[int, str]:
    """In KiB; scratch has plenty."""
    free = {"/share/me": root, "/share/me/images": root, "/fast": 9_999_999, "/home/me": home}
    text = "== home /home/me\n"
    text += "".join(f"== df {path}\n{DF.format(name=path, free=left)}\n" for path, left in free.items())
    return 0, text + (f"== quota\n{quota}" if quota else "")


def judged(
    name: str,
    *,
    bytes_: int = 5,
    uploads: bool = True,
    deployed: bool = True,
    group: str | None = None,
    **parts: tuple[int, str],
) -> Verdict:
    said = {
        "about": (0, ABOUT),
        "root": (0, "there"),
        "owners": (0, "--"),
        "modes": (0, "drwx------ 5 1 1 4096 Jan  1 00:00 /share/me"),
        "space": space(9_999_999),
        "image": (0, "-r-------- 1 1 1 5 Jan  1 00:00 /x.sif"),
        "digest": (0, f"{'0' * 64}  /x.sif"),
    }
    found = login(answer(**(said | parts)), group=group)
    return JUDGES[name](Storage(found, Image("0" * 64, bytes_), uploads, deployed))


@pytest.mark.parametrize("name", JUDGES)
def test_storage_on_which_all_is_well(name: str) -> None:
    assert judged(name).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("name", "found", "outcome", "evidence"),
    [
        ("root", {"root": (1, "there\nhead: No space left on device")}, Outcome.FAIL, "No space left"),
        ("root", {"root": (1, "near /share")}, Outcome.FAIL, "you may not write to /share"),
        (
            "owners",
            {"owners": (1, "owner drwxrwxrwx bob bob /share/me\nothers drwxrwxrwx bob bob /share/me\n--")},
            Outcome.FAIL,
            "/share/me belongs to bob (drwxrwxrwx bob bob), /share/me is writable by everyone",
        ),
        (
            "owners",
            {"owners": (0, "--\ngroup drwxrwsr-x root lab /share")},
            Outcome.PASS,
            "you trust whoever could: /share is writable by the group lab",
        ),
        ("room", {"space": space(1000)}, Outcome.FAIL, "work root 1.0 MiB left in /share/me"),
        ("room", {"space": space(500_000)}, Outcome.WARN, "work root 488 MiB left in /share/me"),
        ("room", {"space": space(9_999_999, home=10)}, Outcome.WARN, "home 10 KiB left in /home/me"),
        ("room", {"space": space(9_999_999, quota="/share/me 990 0 1000\n")}, Outcome.FAIL, "by quota"),
        (
            "room",
            {"space": space(2_000_000), "image": (2, "no such file"), "bytes_": 4 << 30},
            Outcome.FAIL,
            "the image needs 4.0 GiB",
        ),
        ("image-there", {"image": (2, "no such file")}, Outcome.FAIL, "is not in /share/me/images"),
        ("image-there", {"bytes_": 6}, Outcome.FAIL, "has 5 bytes there, not 6"),
        ("image-whole", {"digest": (0, f"{'1' * 64}  /x")}, Outcome.FAIL, "SHA-256"),
        ("image-whole", {"digest": (124, "")}, Outcome.PASS, "too large to verify in a minute"),
    ],
)
def test_storage_on_which_something_is_not(
    name: str, found: dict[str, tuple[int, str]], outcome: Outcome, evidence: str
) -> None:
    verdict = judged(name, **found)  # type: ignore[arg-type]
    assert verdict.outcome is outcome, verdict
    assert evidence in verdict.evidence


def test_an_image_that_is_only_there_must_be_built_again() -> None:
    missing = {"image": (2, "no such file")}
    assert judged("image-there", **missing).cure == "clusterkit deploy --cluster uni"
    assert judged("image-there", uploads=False, **missing).cure == "clusterkit build --cluster uni"


def test_what_is_not_ones_own_is_left_to_its_owner() -> None:
    modes = "drwxr-xr-x 5 7 1 4096 Jan  1 00:00 /share/me\ndrwxr-xr-x 5 8 1 4096 Jan  1 00:00 /share/pi"
    verdict = judged("modes", about=(0, f"{ABOUT}\nuid 7"), modes=(0, modes))
    assert verdict.outcome is Outcome.WARN
    assert verdict.cure == "chmod go= /share/me"


def test_an_image_that_was_never_deployed_is_no_failure() -> None:
    verdict = judged("image-there", deployed=False, image=(2, "no such file"))
    assert verdict.outcome is Outcome.SKIPPED
    assert verdict.evidence.startswith("not deployed yet: `clusterkit deploy --cluster uni`")
    assert judged("image-there", deployed=False, bytes_=6).outcome is Outcome.FAIL
