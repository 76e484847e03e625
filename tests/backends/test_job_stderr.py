"""The program's standard error: in the log as ever, and alone in attempts/<n>/stderr."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.backends.runs import Run, python
from tests.waiting import until


def stderr_of(run: Run, attempt: int = 0) -> str:
    return (run.dir / "attempts" / str(attempt) / "stderr").read_text()


def test_nothing_of_much_is_lost_at_the_end(tmp_path: Path) -> None:
    run = Run(tmp_path, python("sys.stderr.write('x' * 5_000_000 + 'end\\n')", "os._exit(3)"))
    assert run.run() == 3
    assert len(stderr_of(run)) == 5_000_004
    assert "xend\n[clusterkit] attempt 0 ended: failed, exit code 3\n" in run.log()


def test_a_signal_to_the_whole_group_leaves_the_way_of_standard_error_open(tmp_path: Path) -> None:
    program = python(
        "def stop(*_):",
        "    for n in range(50): print('saving', n, file=sys.stderr, flush=True); time.sleep(0.01)",
        "    sys.exit(85)",
        "signal.signal(signal.SIGTERM, stop)",
        "ready()",
        "while True: time.sleep(1)",
    )
    run = Run(tmp_path, program)
    process = run.start()
    until((run.dir / "ready").exists)
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate()
    assert process.returncode == 85
    assert run.exit == {"code": 85, "signal": "TERM", "why": "requeue"}
    assert stderr_of(run).endswith("saving 49\n")


def test_a_full_disk_does_not_break_the_programs_pipe(tmp_path: Path) -> None:
    program = python("for _ in range(9): os.write(2, b'x' * 100_000)", "print('went on')")
    stderr = tmp_path / "runs/run-1/attempts/0/stderr"
    run = Run(tmp_path, program, job={"prelude": (f"ln -s /dev/full '{stderr}'",)})
    assert run.run() == 0
    assert "went on" in run.log()  # its line break may come behind what is still on its way through the pipe


@pytest.mark.slow
def test_a_daemon_that_keeps_standard_error_open_does_not_hold_the_job(tmp_path: Path) -> None:
    run = Run(tmp_path, python("import subprocess", "print(subprocess.Popen(['sleep', '271']).pid)"))
    assert run.run() == 0
    (daemon,) = (int(line) for line in run.log().splitlines() if line.isdigit())
    os.kill(daemon, signal.SIGKILL)  # it outlived the job
    assert run.exit["why"] == "completed"


def test_a_place_without_pipes_has_the_log_alone(tmp_path: Path) -> None:
    run = Run(tmp_path, python("print('trouble', file=sys.stderr)"))
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "mkfifo").symlink_to("/bin/false")
    assert run.run(PATH=f"{tools}:{os.environ['PATH']}") == 0
    assert "trouble\n" in run.log()
    assert not (run.dir / "attempts/0/stderr").exists()
