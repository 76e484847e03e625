"""A job writes nothing to and runs nothing from a place that another user could change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.backends.runs import Run, python
from tests.programs import write_program

BOB = 41002
"""A user of no name."""

pytestmark = pytest.mark.needs("root")


def ran(run: Run) -> bool:
    return (run.dir / "ready").exists()


@pytest.mark.parametrize(
    "planted",
    [
        *("runs/run-1/launch.py", "runs/run-1/lib/clusterkit.py", "runs/run-1/attempts"),
        *("runs/run-1", "runs", "."),
    ],
)
def test_a_run_directory_of_anothers_is_not_touched(tmp_path: Path, planted: str) -> None:
    run = Run(tmp_path / "root", python("ready()"))
    (run.dir / "attempts").mkdir()
    (run.dir / "lib").mkdir()
    (run.dir / "lib" / "clusterkit.py").touch()
    os.chown(run.root / planted, BOB, BOB)
    before = sorted(tmp_path.rglob("*"))
    assert run.run() == 77
    path = run.root if planted == "." else run.root / planted
    assert f"[clusterkit] another user could change {path} (owner " in run.output
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
@pytest.mark.parametrize("planted", ["scratch", "cache", "code", "library"])
def test_other_places_are_refused_in_the_exit_record(tmp_path: Path, planted: str) -> None:
    run = Run(tmp_path, python("ready()"), job={"libraries": (f"{tmp_path}/library",)})
    folder = tmp_path / planted
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    os.chown(folder, BOB, BOB)
    assert run.run() == 77
    assert not ran(run)
    assert not list(folder.iterdir())
    assert run.exit["why"] == "failed"
    assert run.exit["code"] == 77
    assert f"another user could change {folder} (owner drwxrwxrwx {BOB} {BOB})" in run.exit["detail"]
    assert run.exit["detail"] in run.log()


def test_a_scratch_that_hides_from_the_looks_is_not_used(tmp_path: Path) -> None:
    """Bob moves his folder to and fro in a sticky one: it is there when it is made, not when it is judged."""
    run = Run(tmp_path, python("ready()"))
    bobs = tmp_path / "bobs"
    bobs.mkdir(mode=0o777)
    os.chown(bobs, BOB, BOB)
    # What is made is there already; then it is hidden, and comes back for the next who makes something in it.
    made, below = f'"-p -- {run.scratch}") exit 0 ;;', f"*{run.scratch}/*) ln -sfn {bobs} {run.scratch} ;;"
    script = f'case $* in {made} {below} esac\nexec /bin/mkdir "$@"'
    tools = write_program(tmp_path / "bin", "mkdir", script)
    assert run.run(PATH=f"{tools}:{os.environ['PATH']}") == 77
    assert not ran(run)
    assert not list(bobs.iterdir())
    assert run.exit["detail"] == f"{run.scratch} is not there any more"


def test_what_the_settings_trust_and_a_sticky_scratch_run(tmp_path: Path) -> None:
    run = Run(tmp_path, python("ready()"), job={"trust": (str(BOB),)})
    run.scratch.mkdir()
    run.scratch.chmod(0o1777)
    os.chown(run.code, BOB, BOB)
    assert run.run() == 0
    assert ran(run)
