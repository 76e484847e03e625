"""The build's job script and what is asked about it."""

import subprocess
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.images.building.job import BuildResult, key, parse_watch, render
from clusterkit.images.building.work import Request, Work, prepare
from clusterkit.images.chunks import program

PLACES = {
    "folder": "/r/it's",
    "images": "/r/images",
    "scratch": "/s",
    "cache": "/c",
    "runtime": "apptainer",
    "mode": "400",
    "chunker": program(),
}


def test_the_script_is_valid_bash() -> None:
    script = render(prepare(Request(), here=False), **PLACES, lines=("module load apptainer",))  # type: ignore[arg-type]
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert "folder='/r/it'\"'\"'s'" in script


def built(root: Path, *lines: str, strict: bool = False) -> tuple[BuildResult | None, str]:
    """Runs the job with a stand-in for Apptainer that only the lines may put on PATH; its result and log."""
    folder, tools = root / "build", root / "tools"
    for place in (folder, root / "images", tools):
        place.mkdir(parents=True)
    (tools / "apptainer").write_text(
        '#!/bin/sh\nfor word; do [ "$1 $word" != "build image.sif" ] || echo "$SITE" >"$word"; done\n'
    )
    (tools / "apptainer").chmod(0o755)
    places = PLACES | {"folder": str(folder), "images": str(root / "images")}
    places |= {"scratch": str(root / "scratch"), "cache": str(root / "cache")}
    script = render(Work("oci:x"), **places, lines=lines, strict=strict)  # type: ignore[arg-type]
    subprocess.run(["bash", "-p"], input=script, text=True, check=False)
    log = (folder / "log").read_text()
    return parse_watch((folder / "result").read_bytes() + b"log\n")[0], log


@pytest.mark.parametrize(
    "names", [("tmp",), ("scratch", "images", "final", "part", "list", "folder", "child")]
)
def test_no_variable_of_the_prelude_reaches_what_is_removed(tmp_path: Path, names: tuple[str, ...]) -> None:
    theirs = tmp_path / "my data"
    theirs.mkdir()
    lines = [f"{name}='{theirs}'; readonly {name}" for name in names]
    result, log = built(tmp_path / "a", *lines)
    assert result.code == 127
    assert theirs.is_dir()
    result, log = built(
        tmp_path / "b", *lines, f"export PATH={tmp_path}/b/tools:$PATH SITE=x; rm() {{ false; }}"
    )
    assert result.code == 0, log
    assert [path.name for path in theirs.iterdir()] == []
    assert (tmp_path / f"b/images/sha256-{result.digest}.sif").read_text() == "x\n"
    assert list((tmp_path / "b/scratch").iterdir()) == []


def test_the_prelude_finds_a_scratch_folder_as_in_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    line = 'set -u; mkdir "$CLUSTERKIT_SCRATCH/mine" "$TMPDIR/other"; ls "$CLUSTERKIT_SCRATCH"'
    _, log = built(tmp_path, line, strict=True)
    assert "\nmine\nother\nprelude\n" in log
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize(
    ("line", "strict", "words"),
    [
        ("exit 0", False, "FATAL: the prelude ended its shell with status 0"),
        ("false", True, "prelude: `false` ended with status 1"),
    ],
)
def test_a_prelude_that_gives_up_ends_the_build(tmp_path: Path, line: str, strict: bool, words: str) -> None:
    result, log = built(tmp_path, line, strict=strict)
    assert result == BuildResult(1, "", 0)
    assert f"[clusterkit] {words}" in log
    assert list((tmp_path / "scratch").iterdir()) == []


def test_the_same_files_make_the_same_build(tmp_path: Path) -> None:
    folder = Work("oci:x", files={"x": tmp_path})
    before = key(folder, ())
    (tmp_path / "more").touch()
    assert key(folder, ()) != before
    assert key(Work("a.def", {"a.def": "1"}), ()) == key(Work("a.def", {"a.def": "1"}), ())
    assert key(Work("a.def", {"a.def": "1"}), ()) != key(Work("a.def", {"a.def": "2"}), ())
    assert key(folder, ("--partition=x86",)) != key(folder, ("--partition=grace",))


def test_the_answer_holds_the_result_and_the_new_piece_of_the_log() -> None:
    assert parse_watch(b"log\ncode 0\nmore") == (None, b"code 0\nmore")
    assert parse_watch(b"code 0\ndigest ab\nbytes 7\nlog\n") == (BuildResult(0, "ab", 7), b"")
    arm = BuildResult(0, "ab", 7, "aarch64")
    assert parse_watch(b"code 0\ndigest ab\nbytes 7\narch 04\nlog\n") == (arm, b"")
    assert parse_watch(b"code 255\ndigest \nbytes \nlog\nx") == (BuildResult(255, "", 0), b"x")
    with pytest.raises(TransportError):
        parse_watch(b"welcome to the cluster\n")
