"""job.sh with a real Apptainer as a real Slurm job: isolation, signals, and images that do not start."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from clusterkit.backends.job_script import render
from clusterkit.backends.jobs import JobState
from clusterkit.backends.slurm.backend import SlurmBackend
from clusterkit.probes import Answers, script
from clusterkit.runs.record import records
from clusterkit.runs.state import RunState, fold
from tests.backends.runs import LAUNCHER, job_script
from tests.cluster.cluster import Cluster
from tests.waiting import until

slurm = SlurmBackend()

_BUILD = """
set -e
mkdir -p "$1/root"
cd "$1/root"
mkdir -p usr etc proc sys dev tmp var/tmp root
for name in bin lib lib64 sbin; do ln -sfn "usr/$name" "$name"; done
apptainer build --force "$1/empty.sif" "$1/root"
"""


@pytest.fixture(scope="module")
def image(cluster: Cluster) -> Path:
    """An image with nothing in it: jobs bind the node's own /usr, so it is built in a second."""
    folder = cluster.share / "empty-image"
    cluster.run("login", ["sh", "-c", _BUILD, "sh", "/share/empty-image"], user=cluster.user)
    return folder / "empty.sif"


class ContainerRun:
    """A run on the cluster's shared disk; `changes` are fields of its JobScript."""

    def __init__(self, cluster: Cluster, name: str, sif: Path, program: str, **changes: Any) -> None:
        self.cluster = cluster
        self.dir = cluster.share / "runs" / name
        self.path = f"/share/runs/{name}"
        self.scratch = cluster.share / "scratch"
        self.code = f"/share/code-{name}"
        fields: dict[str, Any] = {
            "run_id": name,
            "run_dir": self.path,
            "snapshot": self.code,
            "scratch_root": "/share/scratch",
            "cache_root": "/share/cache",
            "options": ("--partition=gpu-a40", "--gres=gpu:a40:2", "--time=5", "--comment=a \"b\" #c \\ 'd'"),
            "container": "apptainer",
            "image": "/share/empty-image/empty.sif",
            "image_bytes": sif.stat().st_size,
            "binds": ("/usr:/usr:ro",),
            "nv": True,
        }
        self.dir.mkdir(parents=True)
        code = cluster.share / f"code-{name}"
        code.mkdir()
        (code / "program.py").write_text(program)
        (self.dir / "job.sh").write_text(render(job_script(**(fields | changes))))
        shutil.copy(LAUNCHER, self.dir)
        document = {
            "run_id": name,
            "argv": ["python", "program.py", "a 'b' $c"],
            "workdir": self.code,
        }
        (self.dir / "run.json").write_text(json.dumps(document))
        own = 'mkdir -p /share/scratch /share/cache && chown -R "$1" "$2" "$3" /share/scratch /share/cache'
        cluster.run("login", ["sh", "-c", own, "sh", cluster.user, self.path, self.code])
        argv = slurm.submit_argv(f"{self.path}/job.sh", run_dir=self.path, job_name=name, options=[])
        self.job_id = slurm.accepted(self.sh(*argv)) or ""

    def sh(self, *argv: str) -> str:
        return self.cluster.run("login", list(argv), user=self.cluster.user).stdout

    def state(self) -> RunState:
        """As `status` finds it: one command for everything."""
        query, files = slurm.query([self.job_id]), records([self.path])
        answers = Answers(self.sh("sh", "-c", script([query, files])))
        return fold(answers.of(files)[self.path], answers.of(query).jobs.get(self.job_id))

    def wait(self) -> RunState:
        until(lambda: not self.state().state.active)
        until(lambda: not any(self.scratch.glob(f"{self.dir.name}-*")))
        return self.state()

    def exit(self) -> dict[str, Any]:
        document = json.loads((self.dir / "attempts/0/exit.json").read_text())
        document.pop("ended")
        return dict(document)

    def log(self) -> str:
        return (self.dir / "attempts/0/log").read_text()


@pytest.mark.parametrize("runtime", ["apptainer", "singularity"])  # Apptainer answers to both names
def test_isolation_and_environment(cluster: Cluster, image: Path, runtime: str) -> None:
    run = ContainerRun(
        cluster,
        runtime,
        image,
        f"SNAPSHOT = '/share/code-{runtime}'"
        """
import json, os, sys
def writable(folder):
    try:
        open(folder + "/probe", "w").close()
    except OSError:
        return False
    return True
run_dir, scratch = os.environ["CLUSTERKIT_RUN_DIR"], os.environ["CLUSTERKIT_SCRATCH"]
facts = {
    "argv": sys.argv[1:],
    "cwd": os.getcwd(),
    "env": dict(os.environ),
    "writable": {
        name: writable(name) for name in (run_dir, scratch, "/tmp", "/var/tmp", os.getcwd(), "/usr")
    },
    "snapshot": os.path.exists(SNAPSHOT),
    "home": os.path.realpath(os.environ["HOME"]) == scratch + "/home",
    "tmp_is_scratch": os.path.exists(scratch + "/tmp/probe"),
    "host_home": os.path.exists("/home/" + os.environ.get("USER", "alice") + "/.ssh"),
    "gpus": sorted(name for name in os.listdir("/dev") if name.startswith("nvidia")),
}
json.dump(facts, open(run_dir + "/facts.json", "w"))
""",
        container=runtime,
    )
    state = run.wait()
    assert state.state is JobState.COMPLETED, run.log()
    assert state.node == "a40n1"
    facts = json.loads((run.dir / "facts.json").read_text())
    assert facts["argv"] == ["a 'b' $c"]
    assert facts["cwd"] == f"{run.path}/work"
    assert facts["env"]["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert facts["env"]["SLURM_JOB_ID"] == run.job_id
    assert facts["env"]["TMPDIR"] == "/tmp"
    assert "SLURM_SUBMIT_DIR" not in facts["env"]
    assert facts["writable"] == {
        run.path: True,
        f"/share/scratch/{runtime}-0": True,
        "/tmp": True,
        "/var/tmp": True,
        f"{run.path}/work": True,
        "/usr": False,
    }
    assert not facts["snapshot"]
    assert facts["home"]
    assert facts["tmp_is_scratch"]
    assert not facts["host_home"]
    assert facts["gpus"]
    assert "Comment=a \"b\" #c \\ 'd'" in run.sh("scontrol", "show", "job", run.job_id)


@pytest.mark.parametrize("name", ["USR1", "INT"])
def test_signals_reach_the_program_in_the_container(cluster: Cluster, image: Path, name: str) -> None:
    run = ContainerRun(
        cluster,
        f"signal-{name.lower()}",
        image,
        f"""
import os, signal, sys, time
signal.signal(signal.SIG{name}, lambda *_: sys.exit(85))
open(os.environ["CLUSTERKIT_RUN_DIR"] + "/ready", "w").close()
while True:
    time.sleep(1)
""",
    )
    until((run.dir / "ready").exists)
    run.sh("scancel", "--batch", f"--signal={name}", run.job_id)
    assert run.wait().state is JobState.PREEMPTED, run.log()
    assert run.exit() == {"code": 85, "signal": name, "why": "requeue"}


def test_the_wandb_login_of_the_node_is_all_of_the_home_folder(cluster: Cluster, image: Path) -> None:
    folder = cluster.run(
        "login", ["sh", "-c", 'umask 077; echo "machine w login user password k" >~/.netrc; cd; pwd'],
        user=cluster.user,
    ).stdout.strip()  # fmt: skip
    try:
        run = ContainerRun(
            cluster,
            "login-shown",
            image,
            """
import json, os
path = os.environ["NETRC"]
facts = {"text": open(path).read(), "writable": os.access(path, os.W_OK),
         "home": os.listdir(os.path.dirname(path))}
json.dump(facts, open(os.environ["CLUSTERKIT_RUN_DIR"] + "/facts.json", "w"))
""",
            wandb_login=True,
        )
        assert run.wait().state is JobState.COMPLETED, run.log()
        facts = json.loads((run.dir / "facts.json").read_text())
        assert facts == {
            "text": "machine w login user password k\n",
            "writable": False,
            "home": [".netrc"],
        }
    finally:
        cluster.run("login", ["rm", f"{folder}/.netrc"], user=cluster.user)


def test_mps_reaches_the_container_and_little_else_does(cluster: Cluster, image: Path) -> None:
    run = ContainerRun(
        cluster,
        "mps",
        image,
        """
import json, os
pipe, scratch = os.environ["CUDA_MPS_PIPE_DIRECTORY"], os.environ["CLUSTERKIT_SCRATCH"]
facts = {
    "pipe": [pipe, os.listdir(pipe)],
    "shared": os.path.exists("/dev/shm/of-mps"),
    "home": os.path.realpath(os.environ["HOME"]) == scratch + "/home",
    "tmp": os.listdir("/tmp"),
    "host_home": os.path.exists("/home/" + os.environ.get("USER", "alice") + "/.ssh"),
    "other_env": "OF_THE_NODE" in os.environ,
}
json.dump(facts, open(os.environ["CLUSTERKIT_RUN_DIR"] + "/facts.json", "w"))
""",
        prelude=(
            "CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d /tmp/mps.XXXXXX)",
            "export CUDA_MPS_PIPE_DIRECTORY OF_THE_NODE=1",
            'mkfifo "$CUDA_MPS_PIPE_DIRECTORY/control"; touch /dev/shm/of-mps',
        ),
    )
    assert run.wait().state is JobState.COMPLETED, run.log()
    assert json.loads((run.dir / "facts.json").read_text()) == {
        "pipe": ["/mps", ["control"]],
        "shared": True,
        "home": True,
        "tmp": [],
        "host_home": False,
        "other_env": False,
    }
