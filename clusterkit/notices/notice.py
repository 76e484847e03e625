"""What a notice says. Pure. Whatever a run's program may have written is bounded and printable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from clusterkit.backends.jobs import JobState
from clusterkit.config.exposure import assigned_secret
from clusterkit.runs.status import StatusRow
from clusterkit.units import format_seconds, percent
from clusterkit.untrusted import one_line

_LONGEST = 300
"""Characters of one line."""
_MOST = 10
"""Ended runs in one notice; others are counted."""
_WELL = (JobState.COMPLETED, JobState.CANCELLED)


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
    """Whether a run ended neither well nor by a cancel."""
    return row.state.state not in _WELL


def of_run(row: StatusRow, cause: FailureCause | None = None) -> Notice:
    """Returns the notice of one ended run."""
    run, state = row.run, row.state
    if failed(row):
        said = cause.sentence if cause else state.why
        lines = [_tame(said)] if said else []
        lines.append(f"next: clusterkit why {run.run_id}")
    else:
        facts = [f"after {format_seconds(state.elapsed_seconds)}"] if state.elapsed_seconds else []
        facts += [f"success {percent(state.success)}"] if state.success is not None else []
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
        _tame(": ".join(filter(None, (each.title, "; ".join(each.lines[:-1]))))) for each in notices[:_MOST]
    ]
    if len(notices) > _MOST:
        lines.append(f"and {len(notices) - _MOST} more")
    lines.append("next: clusterkit status")
    troubled = sum(each.event == "failed" for each in notices)
    title = f"{len(notices)} ended" + (f", {troubled} failed" if troubled else "")
    return _notice("several", title, lines, [name for each in notices for name in each.runs])


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
    """One bounded, printable line, cut where it assigns a secret."""
    line = one_line(text)
    if name := assigned_secret(line):
        line = f"{line.partition(name)[0]}{name}=***"
    line = "".join(sign if sign.isprintable() else "?" for sign in line)
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."
