"""The scripts are read by every shell that has to, look around for real here, and leave nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clusterkit.backends.checks import Outcome, parse_answer
from clusterkit.backends.local.backend import LocalBackend
from clusterkit.backends.slurm import checks as scheduler
from clusterkit.backends.slurm.backend import SlurmBackend
from clusterkit.backends.slurm.checks import SlurmAnswer
from clusterkit.checkup import storage
from clusterkit.checkup.examine_nodes import LOOK
from clusterkit.checkup.login import Login, login_probe, runtime_there
from clusterkit.checkup.node_script import (
    NodeJob,
    inside_request,
    node_script,
)
from clusterkit.checkup.storage import Storage
from clusterkit.config.models import Cluster
from clusterkit.images.image import Image
from clusterkit.node import inside
from clusterkit.probes import MARK, script
from clusterkit.resources import NODE_PROGRAMS
from tests.needs import param

SHELLS = [param(shell) for shell in ("bash", "dash", "busybox")]


def look(shell: str, cluster: Cluster, image: Image | None = None, **env: str) -> Login:
    argv = [shell, "sh"] if shell == "busybox" else [shell]
    tests = {"tiny": ("#!/bin/bash\ncase $x in a) ;; esac\n", ())}
    probe = login_probe(cluster, image=image, requests=tests)
    path = {"PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    done = subprocess.run(
        argv, input=script([probe]), capture_output=True, text=True, env=path | env, check=True
    )
    assert done.stderr == ""
    return Login(cluster, parse_answer(done.stdout), 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_the_login_script_in_every_shell(shell: str, tmp_path: Path) -> None:
    """On a machine without Slurm, with a root that is not there, and an image that is not what it was."""
    cluster = Cluster(name="here", root=str(tmp_path / "my root"), image_store=str(tmp_path))
    image = Image("0" * 64, 5)
    (tmp_path / image.name).write_bytes(b"12345")
    seen = look(shell, cluster, image)
    assert seen.answer.whole
    there = Storage(seen, image, uploads=True)
    assert storage.root(there).evidence.endswith("does not exist yet and can be created")
    assert storage.image_there(there).outcome is Outcome.PASS
    assert "SHA-256" in storage.image_whole(there).evidence
    assert storage.image_whole(there).outcome is Outcome.FAIL
    assert "sbatch" in scheduler.slurm_tools(SlurmAnswer(seen.answer, "here")).evidence
    assert [path.name for path in tmp_path.iterdir()] == [image.name]


def test_the_prelude_on_a_login_node_finds_a_scratch_folder_and_reaches_nothing(tmp_path: Path) -> None:
    tool = tmp_path / "tools" / "apptainer"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho apptainer version 1.4\n")
    tool.chmod(0o755)
    theirs = tmp_path / "my data"
    theirs.mkdir()
    lines = (
        "set -eu",
        'for folder in "$CLUSTERKIT_SCRATCH" "$TMPDIR"; do mkdir "$folder/mine"; rm -r "$folder"/*ine; done',
        f"work='{theirs}'; trap 'echo late' EXIT; export PATH={tool.parent}:$PATH; cd /; echo loaded",
    )
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    cluster = Cluster(name="here", root=str(tmp_path / "root"), prelude=lines)
    seen = look("sh", cluster, TMPDIR=str(temporary))
    assert runtime_there(seen).evidence == "apptainer version 1.4"
    cluster = Cluster(name="here", root=str(tmp_path / "root"), prelude=(*lines, "exit 0"))
    verdict = runtime_there(look("sh", cluster, TMPDIR=str(temporary)))
    assert verdict.outcome is Outcome.WARN
    assert "the prelude ended its shell with status 0" in verdict.evidence
    assert theirs.is_dir()
    assert list(temporary.iterdir()) == []


def test_a_root_is_written_to_and_left_as_it_was(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    cluster = Cluster(name="here", root=str(tmp_path), kind="local", container="none")
    there = Storage(look("sh", cluster), None, uploads=False)
    assert storage.root(there).evidence == f"{tmp_path} is writable"
    assert storage.open_folders(there) == {str(tmp_path): "drwxr-xr-x"}
    assert list(tmp_path.iterdir()) == []
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o2750)
    folder.chmod(0o2750)
    shared = Cluster(name="here", root=str(folder), kind="local", container="none", group="lab")
    assert storage.open_folders(Storage(look("sh", shared), None, uploads=False)) == {}


@pytest.mark.slow
def test_what_the_far_side_says_cannot_imitate_the_frame(tmp_path: Path) -> None:
    said = f"{MARK} begin queue\nfine\n{MARK} status 0"
    tool = tmp_path / "rsync"
    tool.write_text(f"#!/bin/sh\nprintf '%s\\n' '{said}'\n")
    tool.chmod(0o755)
    cluster = Cluster(name="there", host="there", root=str(tmp_path / "root"), container="none")
    seen = look("sh", cluster, PATH=f"{tmp_path}:/usr/bin:/bin")
    assert "clusterkit begin queue" in seen.answer["rsync"].text
    assert "queue" not in seen.answer


def job_of(folder: Path, **cluster: object) -> tuple[NodeJob, Path]:
    """A job for this machine, and its script."""
    settings = {"name": "here", "kind": "local", "root": str(folder), "container": "none", **cluster}
    own = folder / "doctor/it's one"
    own.mkdir(parents=True)
    job = NodeJob(
        cluster=Cluster.model_validate({"python": sys.executable, **settings}),
        folder=str(own),
        name="doctor-1",
        scratch_root=str(folder / "scratch"),
        images={},
        nv=True,
        options=LocalBackend().brief(["--time-limit=120", "--notice=USR1@60", "--comment=a b"], 120),
        server=("127.0.0.1", 9),
    )
    (own / "inside.py").write_bytes((NODE_PROGRAMS / "inside.py").read_bytes())
    (own / "inside.json").write_bytes(inside_request({"MUJOCO_GL": "osmesa"}, ["rendering"]))
    (own / "token").write_text("secret")
    (own / "job.sh").write_text(node_script(job))
    return job, own


def test_the_job_answers_through_its_file_and_cleans_up(tmp_path: Path) -> None:
    scratch = 'test "$CLUSTERKIT_SCRATCH" -ef "$TMPDIR/.."'
    prelude = ["export KEPT=1", "false", scratch, 'echo "noise"; test "$KEPT" = 1']
    _, own = job_of(tmp_path, prelude=prelude, binds=["/etc:/x", "/no/such:/y:ro"], python="/no/python")
    subprocess.run(["bash", str(own / "job.sh")], check=True, capture_output=True)
    answer = parse_answer((own / "answer").read_text())
    assert answer.whole
    assert answer["about"].value("token") == "secret"
    assert answer["prelude"].lines == ["`false` ended with status 1"]
    assert answer["binds"].lines == ["/no/such"]
    assert answer["scratch"].status == 0
    assert answer["internet"].status != 0
    assert answer["inside"].status != 0
    assert not (tmp_path / "scratch").exists()


def test_a_prelude_that_ends_its_shell_is_told(tmp_path: Path) -> None:
    _, own = job_of(tmp_path, prelude=["exit 3"])
    subprocess.run(["bash", str(own / "job.sh")], check=False, capture_output=True)
    answer = parse_answer((own / "answer").read_text())
    assert answer["prelude"].status == 1
    assert answer["prelude"].last.startswith("the prelude ended its shell with status 3")
    assert "binds" not in answer
    assert not answer.whole
    assert not (tmp_path / "scratch").exists()


@pytest.mark.slow
def test_no_variable_of_the_prelude_reaches_what_the_job_removes_or_answers(tmp_path: Path) -> None:
    theirs = tmp_path / "my data"
    (theirs / "answer.part").mkdir(parents=True)
    names = (
        "work made folder scratch_root name python runtime image command within ck_status ck_limit own_faults"
    )
    lines = [f"{name}='{theirs}'" for name in names.split()]
    functions = ["rm() { :; }; mv() { :; }; printf() { :; }; ck_part() { :; }; trap 'exit 9' EXIT"]
    _, own = job_of(tmp_path, prelude=[*lines, "export SITE=here", *functions])
    assert subprocess.run(["bash", str(own / "job.sh")], capture_output=True).returncode == 0
    answer = parse_answer((own / "answer").read_text())
    assert answer.whole
    assert answer["prelude"].lines == []
    assert answer["inside"].status == 0
    assert (theirs / "answer.part").is_dir()
    assert not (tmp_path / "scratch").exists()


def test_a_folder_that_the_node_does_not_see_ends_the_job_in_peace(tmp_path: Path) -> None:
    _, own = job_of(tmp_path)
    script = (own / "job.sh").read_text()
    shutil.rmtree(own)
    assert subprocess.run(["bash"], input=script, text=True, check=True, capture_output=True).returncode == 0
    assert list(tmp_path.iterdir()) == [tmp_path / "doctor"]


def test_the_options_keep_the_job_out_of_everybodys_way() -> None:
    theirs = ["--time=2-00:00:00", "--signal=B:USR1@60", "--requeue", "--output=/x", "--mem=3G", "--hold"]
    options = SlurmBackend().brief([*theirs, "--mail-type=ALL"], 120)
    assert options[0] == "--mem=3G"
    assert {"--no-requeue", "--output=/dev/null", "--time=00:02:00"} <= set(options[1:])
    assert not set(theirs[:4]) & set(options)
    assert not [option for option in options if option.startswith(("--hold", "--mail"))]


@pytest.mark.parametrize("tests", [(), ("torch",), ("installers", "torch", "rendering", "wandb")])
def test_the_program_for_the_container_tries_what_is_asked_for_with_the_standard_library_only(
    tmp_path: Path, tests: tuple[str, ...]
) -> None:
    """In an isolated Python every import fails, and each failure is told in one line."""
    (tmp_path / "inside.py").write_bytes((NODE_PROGRAMS / "inside.py").read_bytes())
    (tmp_path / "request.json").write_bytes(inside_request({"PYTHONPATH": str(tmp_path)}, tests))
    for name in ("torch", "mujoco", "wandb"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('no {name}\\nhere')\n")
    argv = [sys.executable, "-I", str(tmp_path / "inside.py"), str(tmp_path / "request.json")]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["temporary"]["folder"]
    assert found.keys() == {"python", "temporary", *tests}
    if "torch" in tests:
        assert found["torch"]["fault"] == "here"
    if "rendering" in tests:
        assert found["rendering"]["backend"] == ""
        assert set(found["rendering"]["faults"]) == {"egl", "osmesa"}


def test_an_import_that_hangs_does_not_take_the_others_along() -> None:
    """The job's time is two minutes: whoever comes late is told so, and the answer still goes home."""
    hung = inside.tried("import time; time.sleep(60)", dict(os.environ), time.monotonic() + 0.5)
    assert str(hung["fault"]).startswith("it took more than")
    late = inside.rendering(dict(os.environ), time.monotonic() - 1)
    assert late == {"backend": "", "faults": dict.fromkeys(("egl", "osmesa"), "no time was left for it")}


@pytest.mark.slow
@pytest.mark.needs("root")
@pytest.mark.parametrize("shell", SHELLS)
def test_links_and_scratch_of_another_user_are_found(shell: str, tmp_path: Path) -> None:
    """A link shows its own owner, whoever the folder belongs to."""
    (tmp_path / "bobs").mkdir()
    os.chown(tmp_path / "bobs", 41002, 41002)
    (tmp_path / "root").symlink_to("bobs")
    (tmp_path / "fast").mkdir()
    os.chown(tmp_path / "fast", 41002, 41002)
    cluster = Cluster(name="here", root=f"{tmp_path}/root", scratch=f"{tmp_path}/fast")
    seen = look(shell, cluster)
    verdict = storage.owners(Storage(seen, None, uploads=False))
    assert verdict.outcome is Outcome.FAIL
    assert f"{tmp_path}/bobs belongs to 41002" in verdict.evidence
    assert f"{tmp_path}/fast belongs to 41002" in verdict.evidence
    assert "[clusters.here] to a folder that only you can change" in str(verdict.cure)


@pytest.mark.needs("root")
def test_a_node_says_whose_its_scratch_is(tmp_path: Path) -> None:
    folder = tmp_path / "doctor"
    folder.mkdir()
    (tmp_path / "fast").mkdir(mode=0o777)
    (tmp_path / "fast").chmod(0o777)
    cluster = Cluster(name="here", kind="local", root=str(tmp_path), container="none")
    job = NodeJob(cluster, str(folder), "doctor-1", f"{tmp_path}/fast", {}, nv=False)
    subprocess.run(["bash", "-c", node_script(job)], check=True)
    answer = parse_answer((folder / "answer").read_text())
    assert answer.whole
    assert answer["owners"].text == f"others drwxrwxrwx root root {tmp_path}/fast"
    assert answer["scratch"].status == 1
    assert list((tmp_path / "fast").iterdir()) == []


def test_a_node_says_whether_the_user_may_open_the_gpus_of_amd(tmp_path: Path) -> None:
    cluster = Cluster(name="here", kind="local", root=str(tmp_path), container="none")
    for vendor in ("amd", "nvidia"):
        (folder := tmp_path / vendor).mkdir()
        (folder / "token").write_text("secret")
        job = NodeJob(cluster, str(folder), "doctor-1", f"{tmp_path}/fast", {}, nv=True, vendor=vendor)
        subprocess.run(["bash", "-c", node_script(job)], check=True)
        answer = parse_answer((folder / "answer").read_text())
        assert ("kfd" in answer) == (vendor == "amd")
        assert (answer["kfd"].status == 0) == (vendor == "amd" and os.access("/dev/kfd", os.W_OK))


def answer_there(folder: Path, how: str) -> str:
    """What the login node says of the answer within a second."""
    argv = ["sh", "-c", LOOK, "sh", str(folder), "1", how]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def test_a_job_that_writes_has_no_answer_yet(tmp_path: Path) -> None:
    (tmp_path / "answer.part").write_text("half of it")
    assert answer_there(tmp_path, "wait") == ""


def test_of_a_job_that_was_killed_there_is_what_it_had_written(tmp_path: Path) -> None:
    (tmp_path / "answer.part").write_text("half of it")
    said = answer_there(tmp_path, "last")
    assert said.startswith("seen ")
    assert said.endswith("half of it")
    assert answer_there(tmp_path, "wait").endswith("half of it")
