"""`clusterkit doctor`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from rich.table import Table
from rich.text import Text

from clusterkit.backends.checks import CheckPlace, Outcome
from clusterkit.cli import options
from clusterkit.cli.ui.console import err, out, print_document, printable, transfer_bar
from clusterkit.project import load
from clusterkit.transport.base import ProgressCallback
from clusterkit.transport.questions import Ask, Question
from clusterkit.units import parse_duration, parsed

if TYPE_CHECKING:
    from rich.status import Status

    from clusterkit.checkup.examination import Result, Sheet


def doctor(
    profile: Annotated[
        list[str] | None,
        typer.Option("--profile", "-p", metavar="PROFILE", help="Profile to check for; can be repeated."),
    ] = None,
    cluster: options.Cluster = None,
    job: Annotated[
        bool, typer.Option("--job/--no-job", help="Check a compute node, with a job of at most two minutes.")
    ] = True,
    wait: Annotated[
        str, typer.Option("--wait", metavar="TIME", help="How long to wait for that job to start.")
    ] = "3m",
    fix: Annotated[
        bool, typer.Option("--fix", help="Repair what is safe to repair and print what was done.")
    ] = False,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Check every step from here to a container on a node.

    Each check ends as ok, warn or FAIL, with the evidence and the cure. Exits with 1 if a check failed.

    Examples:
      # all checks, up to a container on a compute node
      clusterkit doctor
      # everything except the compute node
      clusterkit doctor --no-job --profile a40-2m
      # also repair what is safe to repair
      clusterkit doctor --fix

    See also: clusterkit init, clusterkit why, doctor.md
    """
    from clusterkit.checkup.examination import Examination, Sheet
    from clusterkit.checkup.order import make_checks
    from clusterkit.config.permission import INTERPRETERS
    from clusterkit.submit.own_program import with_program_python
    from clusterkit.transport.questions import ask_on_terminal

    seconds, sheet = parsed("--wait", parse_duration, wait), Sheet()
    with DoctorList(quiet=as_json) as shown:

        def begin() -> Examination:
            settings = load(config)
            profiles = tuple(settings.profile(name) for name in dict.fromkeys(profile or ()) or (None,))
            program = profiles[0].program or settings.project.program or ()
            where = with_program_python(settings.cluster(cluster), program, settings.project_dir)
            sheet.cluster = where.name
            if where.host is None:  # the checks of a job run on this machine
                own = where.python in [str(settings.project_dir / name) for name in INTERPRETERS]
                settings.permission.require_here(
                    where.name, [profile.name for profile in profiles], interpreter=own
                )
            ask, stack = shown.asking(ask_on_terminal), ExitStack()
            return Examination(settings, where, profiles, sheet, shown.say, shown.bar, ask, stack, fix=fix)

        for result in make_checks(begin, sheet, job=job, wait=seconds):
            shown.add(result)
    if as_json:
        print_json(sheet)
    else:
        shown.end(sheet)
    if not sheet.works:
        raise typer.Exit(1)


SCHEMA = 2


_TITLES = {
    CheckPlace.LAPTOP: "On this machine",
    CheckPlace.LOGIN: "On the login node",
    CheckPlace.STORAGE: "Storage",
    CheckPlace.SCHEDULER: "Scheduler",
    CheckPlace.NODE: "On the node",
    CheckPlace.CONTAINER: "Where the program runs",
}


_MARKS = {
    Outcome.PASS: ("ok", "green"),
    Outcome.WARN: ("warn", "yellow"),
    Outcome.FAIL: ("FAIL", "bold red"),
    Outcome.SKIPPED: ("skip", "dim"),
}


_NAME_WIDTH = 15


_LONGEST = 300
"""The maximum number of characters of evidence to show."""


class DoctorList:
    """Prints a line as each check ends; on a terminal, the current activity is shown below."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._heading = ("", "")
        self._skipped: list[Result] = []
        self._stack = ExitStack()
        self._status: Status | None = None

    def __enter__(self) -> Self:
        console = err if self._quiet else out  # on separate consoles, lines and spinner would overlap
        if console.is_terminal:
            self._status = self._stack.enter_context(console.status("checking", spinner="dots"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        self._status = None

    def say(self, text: str) -> None:
        """Shows the current activity on a terminal; does nothing without one."""
        if self._status is not None:
            self._status.update(Text(printable(text), "dim"))

    @contextmanager
    def bar(self, label: str, total: int | None) -> Iterator[ProgressCallback]:
        """Shows a progress bar in place of the current activity."""
        with self._paused(), transfer_bar(label, total) as report:
            yield report

    def asking(self, ask: Ask) -> Ask:
        """Wraps `ask` so that nothing is drawn while the user answers."""

        def asked(question: Question) -> Sequence[str]:
            with self._paused():
                return ask(question)

        return asked

    @contextmanager
    def _paused(self) -> Iterator[None]:
        """Hides the current activity meanwhile."""
        if self._status is not None:
            self._status.stop()
        yield
        if self._status is not None:
            self._status.start()

    def add(self, result: Result) -> None:
        """Shows one result; checks skipped for the same reason share a line."""
        if self._quiet:
            return
        if self._skipped and not self._goes_with(result):
            self._flush()
        if result.verdict.outcome is Outcome.SKIPPED:
            self._skipped.append(result)
            return
        self._line(result)

    def end(self, sheet: Sheet) -> None:
        """Prints the verdict on one line."""
        self._flush()
        counts = sheet.counts()
        told = [f"{counts[Outcome.PASS]} ok"]
        told += [f"{counts[outcome]} {word}" for outcome, word in _COUNTED.items() if counts[outcome]]
        style = "green" if sheet.works else "red"
        last = "nothing stands in the way of a run"
        if counts[Outcome.SKIPPED]:
            last = "no check that ran has failed"
        if not sheet.works:
            last = "correct what failed, from the top"
        out.print()
        out.print(Text(f"{', '.join(told)}: {last}", style), soft_wrap=True)

    def _goes_with(self, result: Result) -> bool:
        first = self._skipped[0]
        return (
            result.verdict == first.verdict
            and result.profile == first.profile
            and result.check.place is first.check.place
        )

    def _flush(self) -> None:
        if self._skipped:
            first = self._skipped[0]
            names = ", ".join(result.check.name for result in self._skipped)
            self._head(first)
            because = Text(f"{names}: {printable(first.verdict.evidence)}", "dim")
            out.print(_row(Text("  skip", "dim"), "", because))
            self._skipped = []

    def _head(self, result: Result) -> None:
        profile = "" if result.check.place is CheckPlace.LAPTOP else result.profile
        heading = (_TITLES[result.check.place], profile)
        if heading != self._heading:
            if self._heading[0]:
                out.print()
            out.print(Text.assemble((heading[0], "bold"), (f"  {profile}" if profile else "", "dim")))
        self._heading = heading

    def _line(self, result: Result) -> None:
        self._head(result)
        mark, style = _MARKS[result.verdict.outcome]
        name = result.check.name
        seen = "\n".join(map(printable, result.verdict.evidence[:_LONGEST].splitlines()))
        if result.check.place is CheckPlace.LAPTOP and result.profile:
            seen = f"{result.profile}: {seen}"
        out.print(_row(Text(f"  {mark}", style), name, Text(seen)))
        if result.verdict.cure:
            out.print(_row(Text(), "", Text(result.verdict.cure, "cyan"), label="cure"))
        if result.fixed:
            out.print(_row(Text(), "", Text(printable(result.fixed)), label="done"))


def _row(mark: Text, name: str, text: Text, *, label: str = "") -> Table:
    """Builds one line; a long text wraps within its own column."""
    cells = [(8, mark)]
    if name or label:
        cells.append((_NAME_WIDTH + 1, Text(name)))
    if label:
        cells.append((6, Text(label, "bold")))
    row = Table.grid()
    for width, _ in cells:
        row.add_column(width=width)
    row.add_column(overflow="fold")
    row.add_row(*(cell for _, cell in cells), text)
    return row


_COUNTED = {Outcome.WARN: "to look at", Outcome.FAIL: "failed", Outcome.SKIPPED: "skipped"}


def print_json(sheet: Sheet) -> None:
    """Prints one JSON object on standard output; see docs/doctor.md."""
    document = {
        "schema": SCHEMA,
        "time": int(time.time()),
        "cluster": sheet.cluster or None,
        "works": sheet.works,
        "counts": {outcome.value: count for outcome, count in sheet.counts().items()},
        "checks": [_object(result) for result in sheet.results],
    }
    print_document(document)


def _object(result: Result) -> dict[str, Any]:
    skipped = result.verdict.outcome is Outcome.SKIPPED
    return {
        "name": result.check.name,
        "place": result.check.place.value,
        "profile": result.profile or None,
        "outcome": result.verdict.outcome.value,
        "evidence": None if skipped else result.verdict.evidence,
        "because": result.verdict.evidence if skipped else None,
        "cure": result.verdict.cure or None,
        "fixed": result.fixed or None,
    }
