"""Examines the login node, its storage and the scheduler in one round trip, and fixes what `--fix` allows."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from clusterkit.backends.base import backend_of
from clusterkit.backends.checks import Check, Outcome, passed, skipped
from clusterkit.checkup import login, storage
from clusterkit.checkup.examination import Examination, Result, fault
from clusterkit.checkup.login import Login, login_probe
from clusterkit.checkup.storage import Storage
from clusterkit.errors import ClusterkitError, TransportError, last_words
from clusterkit.images.planning import plan as plan_image
from clusterkit.images.upload import upload as upload_image
from clusterkit.probes import ask
from clusterkit.site import Layout, make_site
from clusterkit.submit.materials import chunk_cache
from clusterkit.untrusted import decimal

_SECONDS = 300.0
"""For the whole round trip; each check has its own, shorter limit on the cluster."""


def examine_site(exam: Examination) -> Iterator[Result]:
    """Makes the checks of login node, storage and scheduler; without a connection all are skipped."""
    scheduler = backend_of(exam.cluster).checks()
    checks: tuple[Check[Any], ...] = (
        *login.CHECKS,
        *storage.CHECKS,
        *(scheduler.checks if scheduler else ()),
    )
    if exam.transport is None:
        for profile in (None, *exam.profiles):  # each is skipped, as the login has failed
            yield from exam.leave_out(checks, passed(""), profile)
        return
    exam.say(f"checking {exam.transport.where}")
    try:
        seen = _ask(exam)
        if exam.fix and _mend(exam, seen):
            seen = _ask(exam)
    except ClusterkitError as error:
        yield from exam.leave_out(checks, fault(error), only="root")
        for profile in (None, *exam.profiles):
            yield from exam.leave_out(checks, skipped("it did not answer"), profile, but="root")
        return
    exam.login = seen
    yield from exam.make(login.CHECKS, seen)
    yield from exam.make(storage.CHECKS, Storage(seen, exam.image, exam.uploads, exam.deployed))
    if scheduler is None:
        return
    yield from exam.make(scheduler.checks, scheduler.evidence(seen.answer, exam.cluster.name))
    for profile in exam.profiles:
        planned = exam.planned.get(profile.name)
        options = planned.submission.options if planned else ()
        evidence = scheduler.evidence(seen.answer, exam.cluster.name, profile.name, options)
        yield from exam.make(scheduler.checks, evidence, profile)


def layout_of(seen: Login) -> Layout:
    """Returns the absolute paths on the cluster."""
    return Layout(seen.about("root"), seen.about("scratch"), seen.about("store"))


def _ask(exam: Examination) -> Login:
    assert exam.transport is not None
    tests = {name: run.submission.options for name, run in exam.planned.items()}
    probe = login_probe(exam.cluster, image=exam.image, requests=tests)
    began = time.time()
    answers = ask(exam.transport, probe, timeout=_SECONDS, check=False)
    answer = answers.of(probe)
    if not answer.whole:
        raise TransportError(
            f"{exam.transport.where}: the answer was cut short: {last_words(answers.text)}", hint="look again"
        )
    clock = answer["about"].value("now")
    # The script tells the time somewhere between its start and its end.
    here = min(max(asked, began), time.time()) if (asked := decimal(clock)) is not None else time.time()
    return Login(exam.cluster, answer, here)


def _mend(exam: Examination, seen: Login) -> bool:
    """Applies the safe fixes and reports them. Returns whether anything was done."""
    there = Storage(seen, exam.image, exam.uploads, exam.deployed)
    if storage.owners(there).outcome is Outcome.FAIL:
        return False
    before = len(exam.sheet.fixes)
    assert exam.transport is not None
    root = seen.about("root")
    if "near" in seen.answer["root"].text and storage.root(there).outcome is Outcome.PASS:
        make_site(exam.cluster, exam.transport)
        exam.sheet.fixes["root"] = f"made {root}"
    wide = list(storage.open_folders(there))
    if wide:
        keep = "g-w,o=" if exam.cluster.group else "go="
        result = exam.transport.run(["chmod", keep, *wide], check=False)
        what = f"chmod {keep} {shlex.join(wide)}"
        exam.sheet.fixes["modes"] = what if result.returncode == 0 else f"not all: {what}: {result.reason}"
    if exam.image and exam.uploads and exam.ledger and _image_is_bad(there):
        _send_image(exam)
    return len(exam.sheet.fixes) > before


def _image_is_bad(there: Storage) -> bool:
    verdicts = [storage.image_there(there)]
    if verdicts[0].outcome is Outcome.PASS:
        verdicts.append(storage.image_whole(there))
    return any(verdict.outcome is not Outcome.PASS for verdict in verdicts)


def _send_image(exam: Examination) -> None:
    """Sends the image as `deploy` does, which refuses one that does not fit."""
    assert exam.transport is not None
    assert exam.ledger is not None
    assert exam.image is not None
    cache, path = chunk_cache(exam.settings), exam.cluster.image_files[0]
    try:
        site = replace(make_site(exam.cluster, exam.transport), free_bytes=None)
        plan = plan_image(site, path, exam.image, cache=cache, verify=True)
        sent = upload_image(site, path, exam.image, plan, cache=cache, bar=exam.bar)
    except ClusterkitError as error:
        exam.sheet.fixes["image-there"] = f"nothing: the image could not be sent: {error.cause}"
        return
    exam.ledger.set_deployed(exam.cluster.name, exam.image)
    exam.sheet.fixes["image-there"] = f"sent {sent.bytes >> 20} MiB of the image"
