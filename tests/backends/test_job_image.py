"""job.sh, run for real by bash, starts no image but the recorded one; the runtime only says it was asked."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from clusterkit.backends.job_script import render
from clusterkit.backends.jobs import JobState
from clusterkit.runs.spec import RunSpec
from clusterkit.runs.state import fold
from tests.backends.runs import Run, job_script
from tests.programs import write_program

CONTENT = b"an image"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
OTHER = hashlib.sha256(b"another image").hexdigest()

SPEC = RunSpec(
    run_id="run-1", name="run", created="", cluster="c", profile={"env": {"digest": OTHER}}, recipe=None,
    argv=("true",), env={}, workdir="/", python_path=(), snapshot={"diff": f'\n    "digest": "{OTHER}"\n'},
    image={"digest": DIGEST, "path": "/image", "bytes": len(CONTENT)}, seed=1, total_steps=None,
    time_limit_seconds=60, wandb={}, versions={},
)  # fmt: skip


def contained(
    tmp_path: Path, *, content: bytes = CONTENT, name: str = DIGEST, record: str = DIGEST, **job: Any
) -> Run:
    """A run whose image is in a store; each part of it can be wrong."""
    image = tmp_path / f"sha256-{name}.sif"
    image.write_bytes(content)
    tools = write_program(
        tmp_path / "bin", "apptainer", "case $1 in exec) echo the container was started ;; esac"
    )
    facts = {"image_bytes": len(CONTENT), "image_digest": DIGEST, "image": str(image)}
    run = Run(tmp_path, job={"container": "apptainer", "prelude": (f"PATH={tools}:$PATH",)} | facts | job)
    spec = dataclasses.replace(SPEC, image={"digest": record, "path": str(image), "bytes": len(CONTENT)})
    (run.dir / "run.json").write_bytes(spec.to_json())
    return run


def refused(run: Run, **env: str) -> str:
    """The reason, which the log, the exit record and the state of the run give alike."""
    assert run.run(**env) == 125
    newest = run.record.started
    assert newest is not None
    log = run.log(newest.number)
    assert "the container was started" not in log
    record = run.exit
    assert (record["code"], record["why"]) == (125, "container")
    assert f"[clusterkit] {record['detail']}\n" in log
    state = fold(run.record, None)
    assert (state.state, state.why) == (JobState.FAILED, record["detail"])
    return str(record["detail"])


@pytest.mark.parametrize("verify", [False, True])
def test_the_recorded_image_is_started(tmp_path: Path, verify: bool) -> None:
    run = contained(tmp_path, verify_image=verify)
    assert run.run() == 0, run.log()
    assert "the container was started" in run.log()
    assert ("the image has the recorded SHA-256" in run.log()) is verify


def test_an_image_of_another_size(tmp_path: Path) -> None:
    assert "has 4 bytes, not 8" in refused(contained(tmp_path, content=b"torn"))


def test_an_image_that_is_gone(tmp_path: Path) -> None:
    run = contained(tmp_path)
    (tmp_path / f"sha256-{DIGEST}.sif").unlink()
    assert "does not exist" in refused(run)


def test_an_image_of_another_name(tmp_path: Path) -> None:
    assert f"is not the recorded one, {DIGEST}" in refused(contained(tmp_path, name=OTHER))


def test_a_record_of_another_image(tmp_path: Path) -> None:
    assert f"run.json records the image {OTHER}" in refused(contained(tmp_path, record=OTHER))


@pytest.mark.slow
def test_a_flipped_byte_is_found_on_request_only(tmp_path: Path) -> None:
    flipped = b"An image"
    run = contained(tmp_path, content=flipped)
    assert run.run() == 0
    found = refused(run, CLUSTERKIT_VERIFY_IMAGE="1")
    assert f"has the SHA-256 {hashlib.sha256(flipped).hexdigest()}, not {DIGEST}" in found


@pytest.mark.slow
def test_the_submitter_may_ask_and_the_node_may_refuse(tmp_path: Path) -> None:
    run = contained(tmp_path, content=b"An image", verify_image=True)
    assert "has the SHA-256" in refused(run)
    assert run.run(CLUSTERKIT_VERIFY_IMAGE="0") == 0


def on(tmp_path: Path, machine: str) -> str:
    """A PATH with which this machine says that it is another."""
    node = write_program(
        tmp_path / "node", "uname", f'[ "$*" != -m ] || exec echo {machine}\nexec /bin/uname "$@"'
    )
    return f"{node}:{os.environ['PATH']}"


def test_an_image_for_another_architecture(tmp_path: Path) -> None:
    run = contained(tmp_path, image_arch="x86_64")
    assert "is for x86_64, and" in refused(run, PATH=on(tmp_path, "aarch64"))
    assert run.run(PATH=on(tmp_path, "x86_64")) == 0, run.log(1)


@pytest.mark.parametrize("verify", [False, True])
def test_of_several_images_that_for_the_node_is_started(tmp_path: Path, verify: bool) -> None:
    content = b"an image for Arm"
    digest = hashlib.sha256(content).hexdigest()
    path = tmp_path / f"sha256-{digest}.sif"
    path.write_bytes(content)
    others = {"aarch64": (str(path), len(content), digest)}
    run = contained(tmp_path, image_arch="x86_64", other_images=others, verify_image=verify)
    for number, machine in enumerate(("x86_64", "aarch64")):
        assert run.run(PATH=on(tmp_path, machine)) == 0, run.log(number)
    path.write_bytes(b"torn")
    assert "has 4 bytes, not 16" in refused(run, PATH=on(tmp_path, "aarch64"))
    assert "is for aarch64 and x86_64, and" in refused(run, PATH=on(tmp_path, "riscv64"))


def test_the_script_is_the_same_where_the_settings_tell_that_its_nodes_can_start_the_image() -> None:
    facts = {"container": "apptainer", "image": "/i.sif", "image_bytes": 1, "image_digest": DIGEST}
    places = dict.fromkeys(("run_dir", "snapshot", "scratch_root", "cache_root"), "/w")

    def text(**more: Any) -> str:
        return render(job_script(run_id="r", **places, **facts, **more))

    known = text(image_arch="x86_64", arch={"*": "x86_64"})
    assert known == text()
    assert text(image_arch="x86_64") != known
    assert text(image_arch="x86_64", arch={"*": "any"}) == text(image_arch="x86_64")
    grace = {"arch": {"*": "x86_64", "grace": "aarch64"}, "options": ("--partition=grace",)}
    assert text(image_arch="aarch64", **grace) == text(options=grace["options"])


def test_a_name_that_is_not_of_the_store_is_taken_as_it_is(tmp_path: Path) -> None:
    own = tmp_path / "own.sif"
    own.write_bytes(CONTENT)
    run = contained(tmp_path, image=os.fspath(own))
    assert run.run() == 0, run.log()


def test_a_node_that_names_no_home_folder_has_no_login_to_show(tmp_path: Path) -> None:
    run = contained(tmp_path, wandb_login=True)
    job = run.path.read_text()
    run.path.write_text(job.replace("set -u\n", "set -u; unset HOME\n", 1))
    assert run.run() == 0, run.log()
    assert "the container was started" in run.log()
