"""Notices of ended runs: what they say, to whom they went, and how they are sent.

Whatever a run's program may have written is bounded and printable. A notice is claimed in a table of the
ledger before it is sent, so it is sent once. Sending takes bounded time, and raises nothing.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterkit.backends.jobs import JobState
from clusterkit.config.exposure import assigned_secret
from clusterkit.config.notify import kind_of, url_fault, without_secret
from clusterkit.errors import NotAllowedError
from clusterkit.node.webhook import SECONDS, post, request
from clusterkit.runs.status import StatusRow
from clusterkit.units import format_seconds, percent
from clusterkit.untrusted import one_line

if TYPE_CHECKING:
    from clusterkit.config.notify import Notify
    from clusterkit.config.values import LocalProgram


_LONGEST = 300
"""Characters of one line."""
_MOST = 10
"""Ended runs in one notice; others are counted."""
_WELL = (JobState.COMPLETED, JobState.CANCELLED)
_TABLE = """CREATE TABLE IF NOT EXISTS told (
    event TEXT NOT NULL, name TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (event, name, number)
)"""


@dataclass(frozen=True)
class FailureCause:
    """Why a run failed, as `clusterkit why` finds it."""

    run_id: str
    sentence: str


@dataclass(frozen=True)
class Notice:
    """One notice."""

    event: str
    """One of the setting `on`, or `several`."""
    title: str
    """One line, in ASCII."""
    lines: tuple[str, ...]
    """What happened, then the command to run next."""
    runs: tuple[str, ...]
    """Ids of runs or of a group."""

    @property
    def text(self) -> str:
        """All lines."""
        return "\n".join(self.lines)


def failed(row: StatusRow) -> bool:
    """Returns whether a run ended neither well nor by a cancel."""
    return row.state.state not in _WELL


def of_run(row: StatusRow, cause: FailureCause | None = None, headline: str | None = None) -> Notice:
    """Returns the notice of one ended run.

    Args:
        row: the run.
        cause: why it failed.
        headline: what its main metric came to.
    """
    run, state = row.run, row.state
    if failed(row):
        sentence = cause.sentence if cause else state.why
        lines = [_tame(sentence)] if sentence else []
        lines.append(f"next: clusterkit why {run.run_id}")
    else:
        facts = [f"after {format_seconds(state.elapsed_seconds)}"] if state.elapsed_seconds else []
        facts += [f"success {percent(state.success)}"] if state.success is not None else []
        facts += [_tame(headline)] if headline else []
        lines = [", ".join(facts)] if facts else []
        lines.append(f"next: clusterkit sync-results {run.run_id}")
    title = f"{run.run_id} {_words(state.state)} on {run.cluster}"
    return _notice("failed" if failed(row) else "ended", title, lines, [run.run_id])


def of_group(rows: Sequence[StatusRow], cause: FailureCause | None = None) -> Notice:
    """Returns the notice of a group, all of whose runs have ended; `cause` is that of one that failed."""
    first = rows[0].run
    states = Counter(row.state.state for row in rows)
    counts = ", ".join(f"{count} {_words(state)}" for state, count in states.most_common())
    lines = [f"{len(rows)} {'run' if len(rows) == 1 else 'runs'}: {counts}"]
    lines += [_tame(f"{cause.run_id}: {cause.sentence}")] if cause else []
    command = "why" if any(map(failed, rows)) else "sync-results"
    lines.append(f"next: clusterkit {command} {first.group}")
    return _notice("group", f"{first.group} done on {first.cluster}", lines, [first.group])


def as_one(notices: Sequence[Notice]) -> Notice:
    """Returns one notice of all that was learnt at once, so that nobody gets dozens after a night."""
    if len(notices) == 1:
        return notices[0]
    lines = [
        _tame(": ".join(filter(None, (notice.title, "; ".join(notice.lines[:-1])))))
        for notice in notices[:_MOST]
    ]
    if len(notices) > _MOST:
        lines.append(f"and {len(notices) - _MOST} more")
    lines.append("next: clusterkit status")
    troubled = sum(notice.event == "failed" for notice in notices)
    title = f"{len(notices)} ended" + (f", {troubled} failed" if troubled else "")
    return _notice("several", title, lines, [name for notice in notices for name in notice.runs])


def trial() -> Notice:
    """Returns a notice with which a user tries the settings."""
    return _notice("test", "clusterkit: a test notice", ["Notices of ended runs will arrive like this."], [])


def _notice(event: str, title: str, lines: Sequence[str], runs: Sequence[str]) -> Notice:
    plain = _tame(title).encode("ascii", "replace").decode("ascii")
    return Notice(event, plain, tuple(lines), tuple(runs))


def _words(state: JobState) -> str:
    return {
        JobState.FAILED: "failed",
        JobState.TIMEOUT: "timed out",
        JobState.OUT_OF_MEMORY: "ran out of memory",
        JobState.NODE_FAIL: "lost its node",
        JobState.PREEMPTED: "was preempted",
        JobState.NOT_SUBMITTED: "was not submitted",
    }.get(state, state.value.lower())


def _tame(text: str) -> str:
    """Returns one bounded, printable line, cut where it assigns a secret."""
    line = one_line(text)
    if name := assigned_secret(line):
        line = f"{line.partition(name)[0]}{name}=***"
    line = "".join(sign if sign.isprintable() else "?" for sign in line)
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def send(notify: Notify, notice: Notice) -> list[tuple[str, str | None]]:
    """Sends a notice once to each place; returns the places, each with why nothing arrived there, or None."""
    ways: list[Callable[[Notify, Notice], tuple[str, str | None]]] = []
    if notify.webhook or notify.webhook_command:
        ways.append(_by_webhook)
    if notify.command:
        ways.append(_by_command)
    return [way(notify, notice) for way in ways]


def _by_webhook(notify: Notify, notice: Notice) -> tuple[str, str | None]:
    url = notify.webhook or ""
    if notify.webhook_command is not None:
        place = f"webhook of {notify.webhook_command.argv[0]}"
        output, fault = _run(notify.webhook_command)
        if fault:
            return place, fault
        url = output.strip()
        if fault := url_fault(url):
            return place, f"what it printed {fault}"
    place = f"webhook {without_secret(url)}"
    kind = notify.webhook_kind or kind_of(url)
    if kind is None:
        return place, "its host does not tell what it expects: set notify.webhook_kind"
    what = request(url, kind, notice.event, notice.title, notice.lines, notice.runs)
    return place, post(what)


def _by_command(notify: Notify, notice: Notice) -> tuple[str, str | None]:
    program = notify.command
    assert program is not None
    variables = {
        "CLUSTERKIT_NOTICE_EVENT": notice.event,
        "CLUSTERKIT_NOTICE_TITLE": notice.title,
        "CLUSTERKIT_NOTICE_TEXT": notice.text,
        "CLUSTERKIT_NOTICE_RUNS": " ".join(notice.runs),
    }
    # Not among the arguments: there, a text that begins with a dash is an option.
    _, fault = _run(program, variables, text=f"{notice.title}\n{notice.text}\n")
    return f"command {program.argv[0]}", fault


def _run(
    program: LocalProgram, variables: dict[str, str] | None = None, text: str = ""
) -> tuple[str, str | None]:
    """Runs a program for at most `SECONDS`; returns its output, and what went wrong, or None."""
    try:
        process = subprocess.Popen(
            program.allowed(),
            cwd=program.folder,
            env={**os.environ, **(variables or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except NotAllowedError:
        return "", "you have not allowed it: `clusterkit config allow` shows it"
    except (OSError, ValueError) as error:
        return "", getattr(error, "strerror", None) or "it cannot be started"
    with process:
        try:
            out, err = process.communicate(text.encode(), timeout=SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            return "", f"it had not ended after {SECONDS:g} s"
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        last = err.decode(errors="replace").strip().splitlines()[-1:]
        return "", one_line(": ".join((f"it ended with code {process.returncode}", *last)))
    return out.decode(errors="replace"), None


def claim(connection: sqlite3.Connection, event: str, name: str, number: int) -> bool:
    """Returns whether this process, and no other before, may tell; also true of the next submission's end.

    Args:
        connection: of the ledger, which commits each statement.
        event: one of the setting `on`.
        name: a run id or a group.
        number: of the submission that ended; of a group, the sum over its runs.
    """
    connection.execute(_TABLE)
    answer = connection.execute("INSERT OR IGNORE INTO told VALUES (?, ?, ?)", (event, name, number))
    return answer.rowcount == 1
