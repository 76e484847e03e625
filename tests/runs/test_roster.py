"""The fragment that names run directories, run by a real sh."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

from clusterkit.probes import script
from clusterkit.runs.roster import Roster, details, parse_details, parse_roster, roster


def sh(script: str, *, path: str | None = None) -> str:
    env = {} if path is None else {"PATH": path}
    done = subprocess.run(
        ["/bin/sh"], input=script, capture_output=True, text=True, check=True, env=env or None
    )
    assert done.stderr == ""
    return "Welcome\n" + done.stdout


def test_every_run_directory_is_named_and_no_process_started(tmp_path: Path) -> None:
    runs = tmp_path / "a 'root' $HOME" / "runs"
    for name in ("run-1", "run-2", ".new-run-3", "odd\nname", "-n"):
        (runs / name).mkdir(parents=True)
    (runs / "a file").touch()
    (runs / "run-1/submissions/0").mkdir(parents=True)
    (runs / "run-2/submissions/1").mkdir(parents=True)
    ended = [(str(runs / name), 0) for name in ("run-1", "run-2", "gone")]
    text = sh(script([roster(shlex.quote(str(runs)), ended)]), path="")
    assert parse_roster(text) == Roster(str(runs), ("run-1", "run-2"), (str(runs / "run-2"),))


def test_no_work_root_yet(tmp_path: Path) -> None:
    text = sh(script([roster(shlex.quote(str(tmp_path / "none")), [])]))
    assert parse_roster(text) == Roster(str(tmp_path / "none"), (), ())
    assert parse_roster("Welcome\n") == Roster("", (), ())


def test_details_without_what_is_large(tmp_path: Path) -> None:
    large = json.dumps('a "quoted": {line}\n' * 50_000)
    for name, text in {
        "run-1": f'{{\n  "run_id": "run-1",\n  "snapshot": {{\n    "diff": {large}\n  }}\n}}\n',
        "run-2": '{\n  "snapshot": {\n    "diff": "x",\n    "dirty": true\n  }\n}',
        "damaged": '{"run_id": ',
        "other": "[]",
        "moved": '{"run_id": "moved"}',
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(text)
    (tmp_path / "moved" / "moved.json").touch()
    names = ["run-1", "run-2", "damaged", "other", "moved", "gone"]
    text = sh(script([details([str(tmp_path / name) for name in names])]))
    assert len(text) < 1000
    assert parse_details(text) == {
        str(tmp_path / "run-1"): {"run_id": "run-1", "snapshot": {"diff": None}},
        str(tmp_path / "run-2"): {"snapshot": {"diff": None, "dirty": True}},
    }
