"""Examines this laptop: Python, settings, ledger, code, disk, image and W&B."""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from clusterkit import folders
from clusterkit.backends.checks import Verdict, failed, passed, warned
from clusterkit.checkup.check import Result, fault
from clusterkit.checkup.examination import Examination
from clusterkit.checkup.login import rsync_version
from clusterkit.errors import WandbError
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.secret_values import values_at_hand
from clusterkit.submit.check import another, check_script, check_trainer, hardware_of, lacks
from clusterkit.submit.materials import image_of, take_snapshot
from clusterkit.submit.pipeline import resolve
from clusterkit.submit.request import SubmitRequest
from clusterkit.submit.shown import refuse_shown
from clusterkit.units import format_bytes
from clusterkit.wandb import client, credentials

OLDEST_PYTHON, FIRST_UNTRIED_PYTHON = (3, 11), (3, 14)
_SERVER_SECONDS = 10.0
_LITTLE, _SCARCE = 100 << 20, 2 << 30
"""Free bytes for results below which none, or only few, fit."""


def judge_python(version: tuple[int, int], text: str) -> Verdict:
    """The interpreter."""
    if OLDEST_PYTHON <= version < FIRST_UNTRIED_PYTHON:
        return passed(text)
    return warned(f"{text} is not one of 3.11 to 3.13", "python3.12 -m venv .venv")


def judge_settings(files: Sequence[str], cluster: str, profiles: Sequence[str]) -> Verdict:
    """The verdict on readable settings."""
    where = ", ".join(files) or "no settings file, only built-in settings"
    names = f"profile{'s' if len(profiles) > 1 else ''} {', '.join(profiles)}"
    return passed(f"{where}; cluster {cluster}, {names}")


def examine_laptop(exam: Examination, stack: ExitStack) -> Iterator[Result]:
    """Make the checks that need no connection to the cluster, and check the W&B server.

    Args:
        exam: the examination; receives the ledger, the image and the planned runs.
        stack: closes the ledger.
    """
    settings, cluster = exam.settings, exam.cluster
    elsewhere = any(not one.here for one in settings.clusters.values())
    yield from exam.note(
        "cluster",
        lambda: (
            passed(f"{cluster.name}: {cluster.host or 'this machine'}")
            if elsewhere
            else warned("no cluster is configured: runs go to this machine", "clusterkit init")
        ),
    )
    for profile in exam.profiles:
        yield from exam.note("profile", partial(_profile, exam, profile.name), profile.name)
    yield from exam.note("ledger", lambda: _ledger(exam, stack))
    yield from exam.note("code", lambda: _code(exam))
    yield from exam.note("disk-here", lambda: _disk(exam))
    yield from exam.note("image-here", lambda: _image(exam))
    yield from exam.note("wandb-login", _wandb_login)
    exam.say("asking the W&B server")
    yield from exam.note("wandb-server", lambda: _wandb_server(exam))
    yield from exam.note("rsync-here", _rsync)


def _profile(exam: Examination, name: str) -> Verdict:
    """Whether the cluster takes the request, and a machine without a queue to refuse a job meets it."""
    profile = exam.settings.profile(name)
    (planned,) = resolve(exam.settings, SubmitRequest(exam.cluster, profile)).runs
    refuse_shown(values_at_hand(exam.settings), plan=(planned, exam.cluster))
    exam.planned[name] = planned
    asks = " ".join(planned.submission.options)
    has = hardware_of(exam.cluster)
    if has is None:
        return passed(asks)
    lacking = lacks(exam.cluster, profile, planned.program.argv, has)
    if not lacking:
        return passed(f"{asks}; this machine has {has.words}")
    text = f"{'; '.join(map(str, lacking))} ({has.words})"
    cure = another(exam.settings, exam.cluster, has)
    return failed(text, cure) if lacking[0].never else warned(text, cure)


def _ledger(exam: Examination, stack: ExitStack) -> Verdict:
    path = exam.settings.project_dir / ".clusterkit" / "ledger.sqlite3"
    try:
        ledger = stack.enter_context(Ledger(path))
        (said,) = ledger.connection.execute("PRAGMA integrity_check(1)").fetchone()
        runs = len(ledger.runs())
    except sqlite3.DatabaseError as error:
        said, runs = str(error), 0
    if said != "ok":
        cure = f"{shlex.join(['mv', str(path), f'{path}.damaged'])} (it is only a cache)"
        return failed(f"{path} is damaged: {said}", cure)
    exam.ledger = ledger
    return passed(f"intact, {runs} run{'' if runs == 1 else 's'}")


def _code(exam: Examination) -> Verdict:
    if not exam.settings.of_project:
        return warned(
            "no clusterkit.toml here or above: this folder is no project", "clusterkit init --local"
        )
    snapshot = take_snapshot(exam.settings, values_at_hand(exam.settings))
    for planned in exam.planned.values():
        check_script(snapshot.project, planned.program.argv)
        if planned.program.recipe is None:
            check_trainer(snapshot, planned.program.argv)
    count = len(snapshot.project.files)
    return passed(f"{count} file{'' if count == 1 else 's'}, {format_bytes(snapshot.bytes)} with the trainer")


def _disk(exam: Examination) -> Verdict:
    """Whether there is space for results."""
    folder = exam.settings.project.results
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    text, cure = (
        f"{format_bytes(free)} free in {folder}",
        "free space, or set `results` of [project] to a folder on a larger disk",
    )
    if free < _LITTLE:
        return failed(text, cure)
    return warned(text, cure) if free < _SCARCE else passed(text)


def _image(exam: Examination) -> Verdict:
    assert exam.ledger is not None
    exam.say("reading the image")
    exam.image = image_of(exam.cluster, exam.ledger, exam.bar)
    where = exam.cluster.image if exam.uploads else "only on the cluster"
    return passed(f"{exam.image.digest[:12] if exam.image else ''}, {where}")


def _wandb_login() -> Verdict:
    """The key, which is needed first, and the client that uploads."""
    url = credentials.base_url(os.environ, folders.home_or_root())
    if credentials.find(os.environ, folders.home_or_root()) is None:
        return warned(f"no key for {url}: results are synced but not uploaded to W&B", "wandb login")
    try:
        version = client.installed_version()
    except WandbError as error:
        return warned(error.cause, error.hint or "")
    return passed(f"a key for {url}, which stays here; wandb {version}")


def _wandb_server(exam: Examination) -> Verdict:
    from clusterkit.wandb.server import answers, history_lines

    project = exam.settings.project.wandb
    found = None
    try:
        url = credentials.base_url(os.environ, folders.home_or_root())
        found = credentials.find(os.environ, folders.home_or_root())
        if found is None:
            answers(url, timeout=_SERVER_SECONDS)
            return passed(f"{url} answers")
        known = history_lines(
            found,
            entity=project.entity,
            project=project.project,
            run_id="clusterkit-doctor",
            timeout=_SERVER_SECONDS,
        )
    except WandbError as error:
        return fault(error) if found else warned(error.cause, error.hint or "")
    if known is None:
        return warned(f"{url} answers, but not as W&B does", "WANDB_BASE_URL, or wandb login --host")
    return passed(f"{url} answers and accepts the key")


def _rsync() -> Verdict:
    program = shutil.which("rsync")
    said = ""
    if program:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    return rsync_version(said, "this machine")
