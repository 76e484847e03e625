"""shell, forward, ssh and top on the local cluster: beside the program, in its environment and folder."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from clusterkit.backends.jobs import JobState
from clusterkit.config.models import Cluster
from clusterkit.interactive.entering import enter_script
from tests.commands.conftest import Project
from tests.doubles.person import type_at_terminal
from tests.doubles.slurm_site import EVERYONE, RUNNING, SlurmSite, accounting_rows
from tests.probes.test_usage import MI250X
from tests.programs import write_program

pytestmark = pytest.mark.slow  # real jobs or servers, half a second or more each


@contextmanager
def forwarded(project: Project, run_id: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection to a run through `forward`."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        forward = project.start("forward", run_id, f":{server.getsockname()[1]}")
        here = int(forward.stdout.readline().split()[0].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", here), 30) as near, server.accept()[0] as far:
            yield near, far
        forward.terminate()
        forward.communicate(timeout=60)


def test_a_command_beside_the_program(project: Project) -> None:
    run_id = project.submit("--", "sleep")
    project.begun(run_id)
    words = ["a 'b'", "ü\n"]
    tell = "import os, sys; print(os.getcwd(), os.environ['CLUSTERKIT_RUN_ID'], sys.argv[1:]); sys.exit(7)"
    done = project.run("shell", run_id, "--", "python", "-c", tell, *words, code=7)
    where = (project.run_dir(run_id) / "cwd").read_text()
    assert done.stdout == f"{where} {run_id} {words}\n"
    assert done.stderr == ""
    refused = project.run("shell", run_id, code=8)
    assert "a shell needs a terminal" in refused.stderr
    project.run("cancel", run_id)
    ended = project.run("shell", run_id, "--", "true", code=8)
    assert "has ended as CANCELLED" in ended.stderr
    assert "clusterkit logs" in ended.stderr


def test_a_person_in_the_shell(running: tuple[Project, str]) -> None:
    project, run_id = running
    keys = iter(["echo $((6 * 7)) $CLUSTERKIT_RUN_ID", "pwd", "exit 3"])
    done = type_at_terminal(
        ["shell", run_id],
        {f"({run_id}) work$": lambda: next(keys)},
        folder=project.folder,
        environment={**os.environ, "TERM": "xterm"},
    )
    assert done.returncode == 3, done.stdout
    assert f"42 {run_id}" in done.stdout
    assert (project.run_dir(run_id) / "cwd").read_text() in done.stdout


def test_ports_and_ssh_of_a_local_run(running: tuple[Project, str]) -> None:
    project, run_id = running
    with forwarded(project, run_id) as (near, far):
        near.sendall(b"there\n")
        assert far.recv(100) == b"there\n"
        far.sendall(b"back\\\n")
        assert near.recv(100) == b"back\\\n"
    entry = project.folder / "entry"
    entry.write_text(project.run("ssh-config", run_id).stdout)
    argv = ["ssh", "-F", str(entry), run_id, "echo $CLUSTERKIT_RUN_ID; pwd; exit 5"]
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    where = (project.run_dir(run_id) / "cwd").read_text()
    assert (done.returncode, done.stdout) == (5, f"{run_id}\n{where}\n"), done.stderr
    line = "echo 'a  b'; echo $((6 * 7)) | sed s/4/5/; exit 3"
    assert project.run("ssh", run_id, "--", line, code=3).stdout == "a  b\n52\n"
    assert project.run("ssh", run_id, "--", "printf", "'%s|'", "'a  b'", "c  d").stdout == "a  b|c|d|"
    bad = project.run("forward", run_id, "80:x", code=3).stderr
    assert "'80:x' is no port of the form PORT or LOCAL:PORT" in bad


def test_keys_go_once_a_run_is_known_to_have_ended(project: Project) -> None:
    run_id = project.submit("--", "sleep")
    keys = project.folder / ".clusterkit/ssh" / run_id
    project.run("ssh-config", run_id)
    project.run("status")
    assert {path.name for path in keys.iterdir()} == {"host", "host.pub", "id", "id.pub", "known_hosts"}
    os.kill(
        json.loads((project.run_dir(run_id) / "attempts/0/start.json").read_text())["pid"], signal.SIGTERM
    )
    project.ended(run_id)
    project.until(lambda: "CANCELLED" in project.run("status").stdout or not keys.parent.exists())
    project.run("status")
    assert not keys.parent.exists()


def test_what_a_local_run_uses(project: Project) -> None:
    run_id = project.submit("--", "sleep")
    project.begun(run_id)
    usage = json.loads(project.run("top", "--once", "--json").stdout)
    (program,) = usage["processes"]
    assert "train.py sleep" in program["command"]
    assert usage["run_id"] == run_id
    assert usage["cpu"] is not None
    assert usage["memory_bytes"] == program["rss_bytes"]
    shown = project.run("top", run_id).stdout
    assert "step 40 of 100, 40%" in shown
    assert "train.py sleep" in shown
    stream = project.start("top", "--json")
    assert json.loads(stream.stdout.readline())["schema"] == 1
    project.run("cancel", run_id)
    rest, _ = stream.communicate(timeout=180)  # it ends with the run
    assert all(json.loads(line)["run_id"] == run_id for line in rest.splitlines())
    assert stream.returncode == 0
    assert "has ended" in project.run("top", run_id, code=8).stderr


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine's is asked first")
def test_what_a_run_uses_of_amds_gpus(
    running: tuple[Project, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, run_id = running
    (tmp_path / "answer").write_text(MI250X)
    folder = write_program(tmp_path / "bin", "rocm-smi", f"cat {tmp_path}/answer")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    shown = project.run("top", run_id).stdout
    assert "AMD INSTINCT MI250X" in shown
    assert "302 W" in shown


def test_a_person_watches_until_ctrl_c(running: tuple[Project, str]) -> None:
    project, run_id = running
    keys = iter(["\x03"])
    done = type_at_terminal(
        ["top", run_id],
        {"train.py sleep": lambda: next(keys, "")},
        folder=project.folder,
        environment={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"},
    )
    assert done.returncode == 130, done.stdout
    assert "heartbeat" in done.stdout


def test_a_run_whose_answer_was_lost_is_known_by_its_run_directory(project: Project) -> None:
    run_id = project.submit("--", "3")
    project.ended(run_id)
    with sqlite3.connect(project.folder / ".clusterkit" / "ledger.sqlite3") as ledger:
        ledger.execute("UPDATE runs SET state = 'SUBMITTING', job_id = '', last = ''")
    refused = project.run("top", "--once", run_id, code=8).stderr
    assert "has ended as FAILED: the program ended with exit code 3" in refused


@pytest.mark.needs("root")
@pytest.mark.parametrize("planted", ["run", "scratch"])
def test_a_shell_reads_nothing_of_another_user(tmp_path: Path, planted: str) -> None:
    """job.sh and `enter` are shell code that it takes over."""
    run, scratch = tmp_path / "run", tmp_path / "scratch"
    (scratch / "r-0").mkdir(parents=True)
    run.mkdir()
    (run / "job.sh").write_text(f"run_id=r\nscratch_root={scratch}\n")
    (scratch / "r-0/enter").write_text(f': >{tmp_path}/pwned; become() {{ "$@"; }}; command=(/usr/bin/env)\n')
    os.chown(tmp_path / planted, 41002, 41002)
    cluster = Cluster(name="local", kind="local", root=str(tmp_path), container="none")
    argv = ["bash", "-c", enter_script(cluster), "bash", str(run / "job.sh"), "0", "dumb", "/bin/true"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 77
    assert done.stderr.startswith(f"[clusterkit] another user could change {tmp_path / planted} (owner ")
    assert not (tmp_path / "pwned").exists()
    os.chown(tmp_path / planted, 0, 0)
    assert subprocess.run(argv, capture_output=True).returncode == 0


SRUN = """
[ "$SLURM_EXIT_ERROR" = 213 ] || exit 1
if [ -e {folder}/dead ]; then
  echo 'srun: error: Application launch failed: Communication connection failure' >&2
  exit 233
fi
for word; do last=$word; done
[ "$last" != true ] || exit 0
[ "$last" != cancel ] || : >{folder}/squeue.out
exit "$(cat {folder}/status)"
"""


def test_a_shell_that_ended_with_its_node_or_its_job_says_so(site: SlurmSite) -> None:
    site.knows(EVERYONE)
    site.tool("srun", SRUN.format(folder=site.folder))
    for status in (0, 1, 85, 137, 200, 233, 255):  # of the command, with the job and the node as they were
        (site.folder / "status").write_text(str(status))
        done = site.types("shell", RUNNING.run_id, "--", "program", code=status)
        assert done.stderr == ""
    (site.folder / "status").write_text("143")
    site.says("sacct", accounting_rows(replace(RUNNING, state=JobState.CANCELLED)))
    ended = site.types("shell", RUNNING.run_id, "--", "cancel", code=8)
    assert f"{RUNNING.run_id} has ended as CANCELLED" in ended.stderr
    site.answers(EVERYONE)
    (site.folder / "dead").touch()
    dead = site.types("shell", RUNNING.run_id, "--", "program", code=8)
    said = f"where {RUNNING.run_id} runs, does not answer: srun: error: Application launch failed"
    assert said in dead.stderr
    assert f"next:  `clusterkit why {RUNNING.run_id}` looks for the cause" in dead.stderr
