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
    script = render(prepare(Request(), here=False), **PLACES, prelude=("module load apptainer",))  # type: ignore[arg-type]
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert script.index("module load apptainer") < script.index("command -v")
    assert "folder='/r/it'\"'\"'s'" in script


def test_the_same_files_make_the_same_build(tmp_path: Path) -> None:
    folder = Work("oci:x", files={"x": tmp_path})
    before = key(folder)
    (tmp_path / "more").touch()
    assert key(folder) != before
    assert key(Work("a.def", {"a.def": "1"})) == key(Work("a.def", {"a.def": "1"}))
    assert key(Work("a.def", {"a.def": "1"})) != key(Work("a.def", {"a.def": "2"}))


def test_the_answer_holds_the_result_and_the_new_piece_of_the_log() -> None:
    assert parse_watch(b"log\ncode 0\nmore") == (None, b"code 0\nmore")
    assert parse_watch(b"code 0\ndigest ab\nbytes 7\nlog\n") == (BuildResult(0, "ab", 7), b"")
    assert parse_watch(b"code 255\ndigest \nbytes \nlog\nx") == (BuildResult(255, "", 0), b"x")
    with pytest.raises(TransportError):
        parse_watch(b"welcome to the cluster\n")
