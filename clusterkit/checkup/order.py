"""All checks, and the order in which they are made; each result is handed out as soon as it is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from clusterkit.backends.base import backend_of_kind
from clusterkit.backends.checks import Check, skipped
from clusterkit.checkup import examine_nodes, laptop, login, ssh, storage
from clusterkit.checkup.examination import Examination, Result, Sheet
from clusterkit.checkup.examine_site import examine_site
from clusterkit.config.kinds import BUILT_IN

_SCHEDULERS = [checks for kind in BUILT_IN if (checks := backend_of_kind(kind).checks()) is not None]
CHECKS: tuple[Check[Any], ...] = (
    *laptop.START,
    *laptop.CHECKS,
    *ssh.CHECKS,
    *login.CHECKS,
    *storage.CHECKS,
    *(check for scheduler in _SCHEDULERS for check in scheduler.checks),
    *examine_nodes.CHECKS,
)
"""All checks in their order."""


def make_checks(begin: Callable[[], Examination], sheet: Sheet, *, job: bool, wait: int) -> Iterator[Result]:
    """Makes every applicable check, in order from this laptop to the program in its container.

    Nothing is changed, except for what `--fix` fixes and a job's own folder in the work root, which goes
    afterwards. A check does not raise the problem that it looks for; it returns it as its result.

    Args:
        begin: loads the settings.
        sheet: where the results are recorded.
        job: submit a short job for each distinct request.
        wait: seconds to wait for a job to start.
    """
    python, settings = laptop.START
    yield sheet.add(python, partial(python.judge, None))
    started: list[Examination] = []

    def start() -> Examination:
        started.append(begin())
        return started[0]

    yield sheet.add(settings, partial(settings.judge, start))
    for exam in started:
        with exam.stack:
            yield from _examine(exam, job=job, wait=wait)


def _examine(exam: Examination, *, job: bool, wait: int) -> Iterator[Result]:
    yield from laptop.examine_laptop(exam)
    if exam.cluster.host is None:
        from clusterkit.transport.local import LocalTransport

        exam.transport = LocalTransport()
        exam.stack.callback(exam.transport.close)
    else:
        yield from ssh.log_in(exam)
    yield from examine_site(exam)
    if job:
        yield from examine_nodes.examine_nodes(exam, wait)
        return
    for profile in exam.profiles:
        yield from exam.leave_out(examine_nodes.CHECKS, skipped("not checked (--no-job)"), profile)
