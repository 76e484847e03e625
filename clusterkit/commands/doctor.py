"""doctor: check everything a run needs, from this laptop to a program in a container.

The checks are in `clusterkit.checkup`; each result is handed out as soon as it is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from clusterkit.backends.base import backend_of_kind
from clusterkit.backends.checks import Check, skipped
from clusterkit.checkup import examine_nodes, laptop, login, ssh, storage
from clusterkit.checkup.examination import Examination, Result, Sheet
from clusterkit.checkup.examine_site import examine_site
from clusterkit.config.kinds import BUILT_IN
from clusterkit.config.permission import INTERPRETERS
from clusterkit.submit.own_program import with_program_python
from clusterkit.transport.base import Bar
from clusterkit.transport.questions import Ask, ask_on_terminal

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings

WAIT_SECONDS = 180
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


@dataclass(frozen=True)
class Wish:
    """The scope and options of an examination."""

    cluster: str | None = None
    profiles: tuple[str, ...] = ()
    """Empty for the default profile."""
    job: bool = True
    """Whether to submit a short job for each distinct request."""
    fix: bool = False
    """Whether to fix what can be fixed safely, which is never a settings file."""
    wait: int = WAIT_SECONDS
    """Seconds to wait for a job to start."""


def doctor(
    load: Callable[[], Settings],
    wish: Wish,
    *,
    on_result: Callable[[Result], None],
    say: Callable[[str], None],
    bar: Bar,
    ask: Ask = ask_on_terminal,
) -> Sheet:
    """Run every applicable check, in order from this laptop to the program in its container.

    Nothing is changed, except for what `fix` fixes and a job's own folder in the work root, which is removed
    afterwards. A check does not raise the problem that it looks for; it returns it as its result.

    Args:
        load: loads the settings.
        wish: the scope and options.
        on_result: called with each result as soon as it is known.
        say: called with a message about what is being waited for.
        bar: opens progress bars.
        ask: answers the login's questions.
    """
    sheet = Sheet()

    def begin() -> Examination:
        settings = load()
        names: Sequence[str | None] = tuple(dict.fromkeys(wish.profiles)) or (None,)
        profiles = tuple(settings.profile(name) for name in names)
        program = profiles[0].program or settings.project.program or ()
        cluster = with_program_python(settings.cluster(wish.cluster), program, settings.project_dir)
        sheet.cluster = cluster.name
        if cluster.host is None:  # the checks of a job run on this machine
            own = cluster.python in [str(settings.project_dir / name) for name in INTERPRETERS]
            settings.permission.require_here(
                cluster.name, [profile.name for profile in profiles], interpreter=own
            )
        return Examination(settings, cluster, profiles, sheet, say, bar, ask, ExitStack(), fix=wish.fix)

    for result in _results(begin, wish, sheet):
        on_result(result)
    return sheet


def _results(begin: Callable[[], Examination], wish: Wish, sheet: Sheet) -> Iterator[Result]:
    python, settings = laptop.START
    yield sheet.add(python, partial(python.judge, None))
    started: list[Examination] = []

    def start() -> Examination:
        started.append(begin())
        return started[0]

    yield sheet.add(settings, partial(settings.judge, start))
    for exam in started:
        with exam.stack:
            yield from _examine(exam, wish)


def _examine(exam: Examination, wish: Wish) -> Iterator[Result]:
    yield from laptop.examine_laptop(exam)
    if exam.cluster.host is None:
        from clusterkit.transport.local import LocalTransport

        exam.transport = LocalTransport()
        exam.stack.callback(exam.transport.close)
    else:
        yield from ssh.log_in(exam)
    yield from examine_site(exam)
    if wish.job:
        yield from examine_nodes.examine_nodes(exam, wish.wait)
        return
    for profile in exam.profiles:
        yield from exam.leave_out(examine_nodes.CHECKS, skipped("not checked (--no-job)"), profile)
