"""Describes a run as named values, which can be compared with another run's. Pure."""

from __future__ import annotations

import posixpath
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterkit.backends.submission import Submission
from clusterkit.config.options import NATIVE
from clusterkit.results.metrics import MetricRow, last_step, latest, meant, own_names
from clusterkit.results.series import series
from clusterkit.runs.program import trains
from clusterkit.runs.record import Attempt
from clusterkit.runs.run_dir import moment, table

Name = tuple[str, str]
"""Section and name of a value."""

_IN_ARGUMENTS = frozenset(
    {
        *("recipe", "total_steps", "num_envs", "precision", "device", "eval_every", "eval_episodes"),
        *("stop_at", "checkpoint_every", "seed", "threads", "workers"),
    }
)
"""Profile values that a training run gets as arguments; the arguments say what was used in the end."""
_MOST_METRICS = 24
"""Most metrics of a user's own program that are described."""
_OF_ONE_RUN = frozenset({"WANDB_RUN_ID", "WANDB_DIR", "CLUSTERKIT_SEED"})


@dataclass(frozen=True)
class DescribedRate:
    """A success rate, 0..1, with its 95% interval."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Description:
    """The values of one run."""

    run_id: str
    where: str
    """The source that it was read from."""
    values: Mapping[Name, Any]
    words: tuple[str, ...]
    """Arguments of a program that is not the bundled trainer."""
    snapshot: Mapping[str, Any]
    """The snapshot section of run.json."""
    has_results: bool
    logged: frozenset[str] = frozenset()
    """Names of all numbers that it logged."""


def describe(
    document: Mapping[str, Any],
    where: str,
    request: Submission = Submission(0),  # noqa: B008 - immutable
    rows: Sequence[MetricRow] | None = None,
    attempts: Sequence[Attempt] = (),
    metric: str | None = None,
) -> Description:
    """Describes a run by section and name.

    Args:
        document: run.json.
        where: the source that it was read from.
        request: its newest submission.
        rows: of its logs; None when only run.json is available.
        attempts: of the run.
        metric: the only one to describe; None describes the main ones.
    """
    env = request.env or table(document, "env")
    own = str(env.get("WANDB_DIR") or "\0")  # the run directory; when unknown, in no text
    argv = tuple(str(word).replace(own, "RUN_DIR") for word in request.argv or _list(document, "argv"))
    training, bundles = trains(argv), _list(document, "python_path")
    recipe, snapshot, image = (table(document, name) for name in ("recipe", "snapshot", "image"))
    left_out = {"env", "program", *(_IN_ARGUMENTS if training else ())}
    no_file = {"digest": str(table(document, "versions").get("image") or "no container")}
    sections: dict[str, dict[str, Any]] = {
        "run": {
            **{name: document.get(name) for name in ("name", "project", "cluster", "created")},
            "group": table(document, "group").get("id"),
            "wandb project": table(document, "wandb").get("project"),
            **({} if training else {"seed": document.get("seed")}),
        },
        "recipe": {
            "name": recipe.get("name"),
            **table(recipe, "values"),
            **{f"{name} unlocked": change for name, change in table(recipe, "modified").items()},
        },
        "profile": {
            name: value for name, value in table(document, "profile").items() if name not in left_out
        },
        "arguments": dict(_options(argv[4:])) if training else {},
        "environment": {
            name: str(value).replace(own, "RUN_DIR") for name, value in env.items() if name not in _OF_ONE_RUN
        },
        NATIVE: {
            name: value if equals else True
            for name, equals, value in (option.partition("=") for option in request.options)
        },
        "code": {
            "snapshot": snapshot.get("id"),
            "commit": snapshot.get("git_commit"),
            "branch": snapshot.get("git_branch"),
            "uncommitted changes": bool(snapshot.get("dirty")),
            **({"trainer": posixpath.basename(posixpath.dirname(str(bundles[-1])))} if bundles else {}),
        },
        "image": {name: value for name, value in (image or no_file).items() if name != "path"},
        "versions": _versions(document, rows or ()),
        "results": {} if rows is None else dict(_results(rows, attempts, own=not recipe, metric=metric)),
    }
    return Description(
        str(document.get("run_id") or posixpath.basename(where)),
        where,
        {(section, name): value for section, items in sections.items() for name, value in items.items()},
        () if training else argv,
        snapshot,
        rows is not None,
        frozenset(own_names(rows or ())),
    )


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yields options of a training run, except `--set` and `--unlock`, which the recipe's values reflect."""
    name = None
    for word in arguments:
        if word.startswith("--"):
            if name is not None:
                yield name, True
            name, equals, value = word.partition("=")
            if equals:
                yield name, value
                name = None
        elif name is not None:
            if name not in ("--set", "--unlock", "--recipe"):
                yield name, word
            name = None
        else:
            yield word, True
    if name is not None:
        yield name, True


def _versions(document: Mapping[str, Any], rows: Sequence[MetricRow]) -> dict[str, str]:
    """Returns package versions that the node reported and those that the laptop recorded."""
    reported = [row.values["versions"] for row in rows if row.kind == "run" and "versions" in row.values]
    there = reported[-1] if reported and isinstance(reported[-1], dict) else {}
    here = {f"{name} (laptop)": text for name, text in table(document, "versions").items()}
    return {name: text for name, text in (here | there).items() if isinstance(text, str)}


def _results(
    rows: Sequence[MetricRow], attempts: Sequence[Attempt], *, own: bool, metric: str | None
) -> Iterator[tuple[str, Any]]:
    evaluations, training = latest(rows, "eval"), latest(rows, "train")
    evaluated = set()
    if evaluations and metric is None:
        final = evaluations[-1]
        evaluated = {name for name in final.values if name.startswith("success")}
        yield "evaluated at step", final.step
        names = [key.removeprefix("success/") for key in final.values if key.startswith("success/")]
        for name in names:
            value, title = final.number(f"success/{name}"), "success" if name == "mean" else f"success {name}"
            if value is not None:
                low, high = (final.number(f"success_{side}/{name}") for side in ("low", "high"))
                yield title, DescribedRate(value, low, high)
            elif (why := series(rows, f"success/{name}").why) is not None:
                yield title, why.removeprefix(f"success/{name} was ")
    names = own_names(rows)
    shown = [name for name in names if name not in evaluated][:_MOST_METRICS] if own else []
    if metric is not None:
        shown = [name for name in names if name == meant(metric, names)]
    for name in shown:
        values = series(rows, name)
        yield name, values.final[1] if values.final else (values.why or "").removeprefix(f"{name} was ")
    if rows:
        yield "steps", last_step(rows)
    speeds = [speed for row in training if (speed := row.number("steps_per_second")) is not None]
    if speeds:
        yield "steps a second", statistics.median(speeds)
    spans = [
        ended - started
        for attempt in attempts
        if (ended := moment(attempt.exit or {}, "ended")) is not None
        and (started := moment(attempt.start or {}, "started")) is not None
    ]
    if spans:
        yield "seconds", sum(spans)
    yield "attempts", len(attempts)
    if attempts:
        yield "end", (attempts[-1].exit or {}).get("why")


def _list(document: Mapping[str, Any], key: str) -> list[Any]:
    value = document.get(key)
    return value if isinstance(value, list) else []
