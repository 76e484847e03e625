"""A report's facts about its runs: provenance, settings, attempts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clusterkit.report.evidence import tail
from clusterkit.report.groups import ReportRun
from clusterkit.report.measured import Measured
from clusterkit.results.logs.run_logs import fault_words
from clusterkit.results.metrics import KINDS
from clusterkit.runs.record import Attempt
from clusterkit.runs.run_dir import moment, table
from clusterkit.units import format_bytes, format_seconds, listed, plural, significant

_LINES, _LONGEST = 25, 300
"""Most lines of a log's end, and most characters of one."""
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NAMED = 4
"""Most runs that a sentence names."""
_PLACES = re.compile(r"[\w@%+=:,./{}-]+")
"""Words of a command with the names of values in braces, which need no quotes here."""
_OF_THE_MACHINE = re.compile(r"(?i)^(gpu|cpu|memory)/|time|second|elapsed|duration|speed|fps|sps")
"""Names of metrics that no two runs share, even if they compute the same."""


@dataclass(frozen=True)
class Fact:
    """A labelled line about a run."""

    name: str
    value: str
    warn: bool = False


@dataclass(frozen=True)
class EqualRuns:
    """Runs of different names that logged the same."""

    run_ids: tuple[str, ...]
    names: tuple[str, ...]
    """What they should differ by: `seed`, and the names of swept values."""

    def __str__(self) -> str:
        return (
            f"the runs {listed(self.run_ids, _NAMED)} are equal to the digit in every metric: "
            f"{' and '.join(self.names)} probably never reached the program"
        )


@dataclass(frozen=True)
class RunFacts:
    """All facts about one run on the page."""

    run: ReportRun
    facts: tuple[Fact, ...]
    attempts: tuple[tuple[str, ...], ...]
    """For each attempt its number, job, node, start, duration and end."""
    values: tuple[tuple[str, str], ...]
    """The recipe's values, by name."""
    log: str
    """The end of the newest attempt's log."""
    log_file: Path | None
    """The log; None if it was not brought home."""

    @property
    def ended(self) -> str:
        """How its last attempt ended."""
        return self.attempts[-1][-1] if self.attempts else "never started"


def equal_runs(runs: Iterable[ReportRun]) -> list[EqualRuns]:
    """Returns the runs that logged the same, but for times, although their seeds or swept values differ."""
    alike: dict[frozenset[tuple[str, int, str, float]], list[ReportRun]] = {}
    for run in runs:
        numbers = {
            (row.kind, row.step, name): value
            for row in run.rows
            if row.kind in KINDS
            for name in row.values
            if not _OF_THE_MACHINE.search(name) and (value := row.number(name)) is not None
        }
        if numbers:
            alike.setdefault(frozenset((*key, value) for key, value in numbers.items()), []).append(run)
    equals = []
    for equal in alike.values():
        labels = [{"seed": run.document.get("seed"), **table(run.document, "sweep")} for run in equal]
        names = dict.fromkeys(name for label in labels for name in label if name != "profile")
        differing = tuple(name for name in names if len({str(label.get(name)) for label in labels}) > 1)
        if differing:
            equals.append(EqualRuns(tuple(run.directory.run_id for run in equal), differing))
    return equals


def provenance(measured: Sequence[Measured]) -> list[Fact]:
    """Returns the provenance of a report's runs: commands, code, dates, durations and machines."""
    runs = [use.run for use in measured]
    dates = sorted(
        str(run.document["created"])[:16].replace("T", " ") for run in runs if "created" in run.document
    )
    spans = sorted(use.running for use in measured if use.running)
    attempts = [attempt.start or {} for run in runs for attempt in run.directory.attempts]
    machines = [f"{run.document.get('cluster')}: {_machine(run)}" for run in runs]
    return [
        Fact("program", _few(map(_command, runs))),
        Fact("code", _few(map(_code, runs))),
        Fact("submitted", f"{_range(dates)} UTC" if dates else "-"),
        Fact("duration", f"{_range([format_seconds(span) for span in spans])} a run" if spans else "-"),
        Fact("machine", _few(machines) if attempts else "-"),
    ]


def _command(run: ReportRun) -> str:
    """Returns a command line, as it was before its seed and swept values were filled in."""
    words = run.document.get("template") or run.document.get("argv")
    return " ".join(map(_quoted, words)) if isinstance(words, list) else "-"


def _quoted(word: object) -> str:
    """Returns a word as a shell takes it, but a name in braces as clusterkit does."""
    return str(word) if _PLACES.fullmatch(str(word)) else shlex.quote(str(word))


def _machine(run: ReportRun) -> str:
    starts = (attempt.start or {} for attempt in run.directory.attempts)
    nodes = dict.fromkeys(str(start["node"]) for start in starts if start.get("node"))
    device = _device(run)
    return ", ".join([*nodes, *([device] if device != "-" else [])])


def _range(texts: Sequence[str]) -> str:
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"


def _few(texts: Iterable[str]) -> str:
    """Returns the distinct values, at most three."""
    distinct = list(dict.fromkeys(texts))
    return "; ".join(distinct[:3]) + (f"; and {len(distinct) - 3} more" if len(distinct) > 3 else "")


def _code(run: ReportRun) -> str:
    snapshot = table(run.document, "snapshot")
    commit = str(snapshot.get("git_commit") or "")[:10]
    git = f"{snapshot.get('git_branch') or 'detached'}@{commit}" if commit else "no git"
    return git + (" with uncommitted changes" if snapshot.get("dirty") else "")


def describe(run: ReportRun) -> RunFacts:
    """Describes a run in words."""
    document = run.document
    profile, snapshot = table(document, "profile"), table(document, "snapshot")
    image, wandb = table(document, "image"), table(document, "wandb")
    modified = table(run.recipe, "modified")
    changes = ", ".join(f"{name}: {_change(both)}" for name, both in modified.items())
    total, argv = document.get("total_steps"), document.get("argv")
    speed = run.steps_per_second
    facts = [
        Fact("cluster", str(document.get("cluster") or "-")),
        Fact("profile", str(profile.get("name") or "-")),
        Fact("recipe", _recipe(run.recipe)),
        *(
            [Fact("locked values", f"modified: {changes}" if modified else "unchanged", warn=bool(modified))]
            if run.recipe
            else []
        ),
        Fact("seed", str(document.get("seed"))),
        Fact("steps", f"{run.last_step:,}" + (f" of {total:,}" if isinstance(total, int) else "")),
        Fact(
            "steps a second",
            "-" if speed is None else significant(speed) + (" (median)" if run.recipe else ""),
        ),
        Fact("asked for", _resources(run)),
        Fact("settings", _settings(run)),
        Fact("device", _device(run)),
        Fact("code", _code(run)),
        Fact("snapshot", str(snapshot.get("id") or "-")),
        Fact("image", str(image.get("digest") or table(document, "versions").get("image") or "no container")),
        Fact("created", str(document.get("created") or "-")),
        Fact("W&B run", str(wandb.get("run_id") or "-")),
        Fact("versions", ", ".join(f"{name} {text}" for name, text in _versions(run).items()) or "-"),
        Fact("program", shlex.join(map(str, argv if isinstance(argv, list) else []))),
        Fact("logs", "; ".join(fault_words(run.faults)) or "-", warn=True),
    ]
    values = table(run.recipe, "values")
    log = _log_file(run)
    return RunFacts(
        run,
        tuple(fact for fact in facts if (run.recipe and not fact.warn) or fact.value != "-"),
        tuple(map(_attempt, run.directory.attempts)),
        tuple((name, _value(value)) for name, value in values.items()),
        _log(log) if log else "",
        log,
    )


def _log_file(run: ReportRun) -> Path | None:
    """Returns the newest attempt's log."""
    numbers = [attempt.number for attempt in run.directory.attempts]
    path = run.directory.path / "attempts" / str(numbers[-1]) / "log" if numbers else None
    return path if path and path.is_file() else None


def _log(path: Path) -> str:
    """Returns the last lines of a log, of progress bars what was shown last."""
    lines = tail(path)
    shown = (_CONTROLS.sub("", line.rstrip("\r").rpartition("\r")[2])[:_LONGEST] for line in lines)
    return "\n".join([line for line in shown if line.strip()][-_LINES:])


def _recipe(recipe: Mapping[str, Any]) -> str:
    if not recipe.get("name"):
        return "-"
    return f"{recipe['name']} ({recipe['label']})" if recipe.get("label") else str(recipe["name"])


def _resources(run: ReportRun) -> str:
    """Returns the profile's request; "-" if run.json lacks it."""
    profile = table(run.document, "profile")
    parts = [
        f"{profile['gpus'] if profile.get('gpus') else 1} x {profile['gpu']}" if profile.get("gpu") else ""
    ]
    parts += [plural(profile["cpus"], "CPU") if profile.get("cpus") else ""]
    memory, seconds = profile.get("memory"), run.document.get("time_limit_seconds")
    parts += [f"{format_bytes(memory)} memory" if isinstance(memory, int) else ""]
    parts += [f"{format_seconds(seconds)} an attempt" if isinstance(seconds, int) else ""]
    return ", ".join(part for part in parts if part) or "-"


def _settings(run: ReportRun) -> str:
    header = run.header
    profile = table(run.document, "profile")
    trainers = ("num_envs", "precision", "eval_every", "stop_at", "checkpoint_every", "workers")
    names = (*(trainers if run.recipe else ()), "threads")
    settings = {name: header.get(name, profile.get(name)) for name in names}
    return (
        ", ".join(f"{name} {_value(value)}" for name, value in settings.items() if value is not None) or "-"
    )


def _device(run: ReportRun) -> str:
    header = run.header
    processors = header.get("processors")
    parts = [str(header["device"]) if header.get("device") else ""]
    parts += [plural(processors, "processor") if processors else ""]
    return ", ".join(part for part in parts if part) or "-"


def _value(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(_value, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _versions(run: ReportRun) -> dict[str, str]:
    """Versions reported by the node or else recorded by the laptop."""
    reported = [row.values["versions"] for row in run.rows if row.kind == "run" and "versions" in row.values]
    newest = reported[-1] if reported else run.document.get("versions")
    versions = newest if isinstance(newest, dict) else {}
    return {name: text for name, text in versions.items() if isinstance(text, str)}


def _change(both: object) -> str:
    return " → ".join(map(str, both)) if isinstance(both, list) else str(both)


def _attempt(attempt: Attempt) -> tuple[str, ...]:
    start, end = attempt.start or {}, attempt.exit or {}
    started, ended = moment(start, "started"), moment(end, "ended")
    began = lasted = "-"
    if started is not None:
        began = f"{datetime.fromtimestamp(started, UTC):%Y-%m-%d %H:%M:%S}"
        lasted = format_seconds(ended - started) if ended is not None else "-"
    how = [str(end.get("why") or "no record: still running, or the node died")]
    how += [str(end["signal"])] if end.get("signal") else []
    how += [f"exit code {end['code']}"] if end.get("code") not in (None, 0) else []
    job, node = (str(start.get(key) or "-") for key in ("job_id", "node"))
    return str(attempt.number), job, node, began, lasted, ", ".join(how)
