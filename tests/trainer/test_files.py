from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from trainer.files import atomic_write_bytes, atomic_write_json, plain, publish_directory


def run_python(code: str, *arguments: object) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", code, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def listed(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def test_a_file_is_replaced_and_private(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    atomic_write_json(path, {"step": 1})
    atomic_write_json(path, {"step": 2})
    assert json.loads(path.read_text()) == {"step": 2}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert listed(tmp_path) == ["state.json"]


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    atomic_write_bytes(path, b"old")
    # A real full quota: the process may write no file longer than 1000 bytes.
    code = """
import resource, signal, sys
from pathlib import Path
from trainer.files import atomic_write_bytes
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    atomic_write_bytes(Path(sys.argv[1]), b"x" * 5000)
except OSError as error:
    print(type(error).__name__)
"""
    output, errors = run_python(code, path).communicate()
    assert output.strip() == "OSError", errors
    assert path.read_bytes() == b"old"
    assert listed(tmp_path) == ["state"]


@pytest.mark.slow
def test_a_reader_never_sees_half_a_file_even_when_the_writer_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    code = """
import sys
from pathlib import Path
from trainer.files import atomic_write_json
step = 0
while True:
    atomic_write_json(Path(sys.argv[1]), {"step": step, "filler": [step] * 20000})
    print(step, flush=True)
    step += 1
"""
    writer = run_python(code, path)
    assert writer.stdout is not None
    writer.stdout.readline()
    seen = set()
    for _ in range(100):
        content = json.loads(path.read_text())
        assert set(content["filler"]) == {content["step"]}
        seen.add(content["step"])
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    json.loads(path.read_text())
    assert len(seen) > 1


def test_a_number_that_json_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        atomic_write_json(tmp_path / "state.json", {"loss": float("nan")})
    assert listed(tmp_path) == []


def test_a_directory_appears_whole(tmp_path: Path) -> None:
    building = tmp_path / ".step-1"
    (building / "inner").mkdir(parents=True)
    (building / "inner" / "model.pt").write_bytes(b"weights")
    publish_directory(building, tmp_path / "step-1")
    assert (tmp_path / "step-1" / "inner" / "model.pt").read_bytes() == b"weights"
    assert listed(tmp_path) == ["step-1"]


def test_a_directory_with_content_is_not_overwritten(tmp_path: Path) -> None:
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    with pytest.raises(OSError, match="not empty"):
        publish_directory(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old" / "file").read_text() == "old"


def test_scalars_of_numpy_and_torch_become_plain() -> None:
    import torch

    row = {
        "a": np.float32(0.5),
        "b": torch.tensor(2),
        "c": [np.nan, (np.inf,)],
        "d": "text",
        "e": None,
        "f": True,
    }
    assert plain(row) == {"a": 0.5, "b": 2, "c": [None, [None]], "d": "text", "e": None, "f": True}
    json.dumps(plain(row), allow_nan=False)
