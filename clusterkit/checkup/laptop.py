"""Checks this laptop: Python, settings, ledger, code, disk, image and W&B."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from clusterkit import folders
from clusterkit.backends.checks import LIBRARIES, CheckPlace, Checks, Scope, Verdict, failed, passed, warned
from clusterkit.checkup.examination import Examination, Result, fault
from clusterkit.checkup.login import rsync_version
from clusterkit.config.models import Profile
from clusterkit.errors import WandbError
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.program import needs_trainer
from clusterkit.runs.secret_values import values_at_hand
from clusterkit.submit.check import another, check_script, check_trainer, hardware_of, lacks
from clusterkit.submit.materials import image_of, take_snapshot
from clusterkit.submit.own_program import mentioned
from clusterkit.submit.pipeline import resolve
from clusterkit.submit.request import SubmitRequest
from clusterkit.units import format_bytes, plural
from clusterkit.wandb import client, server

OLDEST_PYTHON, FIRST_UNTRIED_PYTHON = (3, 11), (3, 14)
_SERVER_SECONDS = 10.0
_LITTLE, _SCARCE = 100 << 20, 2 << 30
"""Free bytes for results below which none, or only few, fit."""


START = Checks[Any](CheckPlace.LAPTOP)
CHECKS = Checks[Any](CheckPlace.LAPTOP, "settings")


@START.declare()
def _python(_: None) -> Verdict:
    return judge_python(sys.version_info[:2], f"Python {platform.python_version()}, {sys.executable}")


def judge_python(version: tuple[int, int], text: str) -> Verdict:
    """Judges an interpreter."""
    if OLDEST_PYTHON <= version < FIRST_UNTRIED_PYTHON:
        return passed(text)
    return warned(f"{text} is not one of 3.11 to 3.13", "python3.12 -m venv .venv")


@START.declare()
def _settings(begin: Callable[[], Examination]) -> Verdict:
    exam = begin()
    where = ", ".join(map(str, exam.settings.files)) or "no settings file, only built-in settings"
    names = f"profile{'s' if len(exam.profiles) > 1 else ''} "
    names += ", ".join(profile.name for profile in exam.profiles)
    return passed(f"{where}; cluster {exam.cluster.name}, {names}")


def examine_laptop(exam: Examination) -> Iterator[Result]:
    """Makes the checks that need no connection to the cluster, and checks the W&B server.

    Args:
        exam: the examination; receives the ledger, the image and the planned runs.
    """
    for check in CHECKS:
        if not check.of_profile:
            yield from exam.make([check], exam)
            continue
        for profile in exam.profiles:
            yield from exam.make([check], (exam, profile), profile)


@CHECKS.declare()
def _cluster(exam: Examination) -> Verdict:
    if all(cluster.here for cluster in exam.settings.clusters.values()):
        return warned("no cluster is configured: runs go to this machine", "clusterkit init")
    return passed(f"{exam.cluster.name}: {exam.cluster.host or 'this machine'}")


@CHECKS.declare(of_profile=True)
def _profile(of: tuple[Examination, Profile]) -> Verdict:
    """Judges whether the cluster takes the request, and whether a machine without a queue meets it."""
    exam, profile = of
    (planned,) = resolve(exam.settings, SubmitRequest(exam.cluster, profile)).runs
    values_at_hand(exam.settings).refuse_shown(plan=(planned, exam.cluster))
    exam.planned[profile.name] = planned
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


@CHECKS.declare()
def _ledger(exam: Examination) -> Verdict:
    path = exam.settings.project_dir / ".clusterkit" / "ledger.sqlite3"
    try:
        ledger = exam.stack.enter_context(Ledger(path))
        (verdict,) = ledger.connection.execute("PRAGMA integrity_check(1)").fetchone()
        runs = len(ledger.runs())
    except sqlite3.DatabaseError as error:
        verdict, runs = str(error), 0
    if verdict != "ok":
        cure = f"{shlex.join(['mv', str(path), f'{path}.damaged'])} (it is only a cache)"
        return failed(f"{path} is damaged: {verdict}", cure)
    exam.ledger = ledger
    return passed(f"intact, {runs} run{'' if runs == 1 else 's'}")


@CHECKS.declare()
def _code(exam: Examination) -> Verdict:
    if not exam.settings.of_project:
        return warned(
            "no clusterkit.toml here or above: this folder is no project", "clusterkit init --local"
        )
    project = exam.settings.project
    trainer = any(needs_trainer(profile, project.program) for profile in exam.profiles)
    snapshot = take_snapshot(exam.settings, values_at_hand(exam.settings), trainer=trainer)
    for planned in exam.planned.values():
        check_script(snapshot.project, planned.program.argv)
        if planned.program.recipe is None:
            check_trainer(snapshot, planned.program.argv)
    own = [planned.program.argv for planned in exam.planned.values() if not planned.uses_trainer]
    exam.mentioned = mentioned(LIBRARIES, snapshot.project.root, snapshot.project.files, own)
    size = format_bytes(snapshot.bytes) + (" with the trainer" if trainer else "")
    return passed(f"{plural(len(snapshot.project.files), 'file')}, {size}")


@CHECKS.declare()
def _disk_here(exam: Examination) -> Verdict:
    """Judges whether there is space for results."""
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


@CHECKS.declare("settings", "ledger", applies=Scope.stores_image)
def _image_here(exam: Examination) -> Verdict:
    assert exam.ledger is not None
    exam.say("reading the image")
    exam.image = image_of(exam.cluster, exam.ledger, exam.bar)
    where = exam.cluster.image_files[0] if exam.uploads else "only on the cluster"
    return passed(f"{exam.image.digest[:12] if exam.image else ''}, {where}")


@CHECKS.declare(applies=Scope.with_wandb)
def _wandb_login(_: Examination) -> Verdict:
    """Judges the key, which is needed first, and the client that uploads."""
    url = server.base_url(os.environ, folders.home_or_root())
    if server.find_credentials(os.environ, folders.home_or_root()) is None:
        return warned(f"no key for {url}: results are synced but not uploaded to W&B", "wandb login")
    try:
        version = client.installed_version()
    except WandbError as error:
        return warned(error.cause, error.hint or "")
    return passed(f"a key for {url}, which stays here; wandb {version}")


@CHECKS.declare(applies=Scope.with_wandb)
def _wandb_server(exam: Examination) -> Verdict:
    from clusterkit.wandb.server import answers, history_lines

    exam.say("asking the W&B server")
    project = exam.settings.project.wandb
    login = None
    try:
        url = server.base_url(os.environ, folders.home_or_root())
        login = server.find_credentials(os.environ, folders.home_or_root())
        if login is None:
            answers(url, timeout=_SERVER_SECONDS)
            return passed(f"{url} answers")
        lines = history_lines(
            login,
            entity=project.entity,
            project=project.project,
            run_id="clusterkit-doctor",
            timeout=_SERVER_SECONDS,
        )
    except WandbError as error:
        return fault(error) if login else warned(error.cause, error.hint or "")
    if lines is None:
        return warned(f"{url} answers, but not as W&B does", "WANDB_BASE_URL, or wandb login --host")
    return passed(f"{url} answers and accepts the key")


@CHECKS.declare(applies=Scope.remote)
def _rsync_here(_: Examination) -> Verdict:
    program = shutil.which("rsync")
    version = ""
    if program:
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    return rsync_version(version, "this machine")
