"""hydra: submit the jobs of a Hydra multirun as one group. Loads nothing of Hydra itself."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.errors import ConfigError
from clusterkit.resources import NODE_PROGRAMS
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.program import PLACES, literal, variable_of
from clusterkit.submit import pipeline
from clusterkit.submit.pipeline import Submitted, resolve
from clusterkit.submit.plan import Plan
from clusterkit.submit.request import SubmitRequest
from clusterkit.submit.sweep import OF_THE_RUN, POINT
from clusterkit.transport.base import Bar

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings

FOLDER = "hydra.sweep.dir={run_dir}/hydra"
"""Hydra's own files go where the results come from."""
_FOLDERS = re.compile(r"\+*hydra\.sweep\.dir=.*", re.DOTALL)
_MULTIRUN = "hydra.mode=MULTIRUN"


@dataclass(frozen=True)
class Multirun:
    """What Hydra was asked to run."""

    jobs: Sequence[Sequence[str]]
    """The overrides of each job."""
    settings: Sequence[str] = ()
    """Overrides of Hydra's own settings."""
    first: int = 0
    """Number of the first job in the multirun."""
    configs: Sequence[tuple[str, str, object]] = ()
    """Group, name and content of the launcher's and the sweeper's configs, whose plugins a job may lack."""
    now: Sequence[tuple[Sequence[str], object]] = ()
    """Arguments and values of `${now:...}`, which the jobs of a multirun share."""
    config_name: str | None = None
    config_dir: str | None = None
    """The folder of `--config-dir`."""
    profile: str | None = None
    cluster: str | None = None
    name: str | None = None
    max_parallel: int | None = None
    """Maximum number of jobs that run at a time."""
    argv: Sequence[str] = field(default_factory=lambda: own_command())
    """The command that runs the application."""


def launch(
    settings: Settings, ledger: Ledger, multirun: Multirun, *, bar: Bar, agree: Callable[[Plan], None]
) -> Submitted:
    """Submits a multirun's jobs as one group, without waiting for them.

    Raises:
        ConfigError: the jobs cannot be expressed, or the application is not in the project.
        ClusterkitError: as `submit`.
    """
    profile = settings.profile(multirun.profile).name
    python, *application = (_in_project(settings, word) for word in multirun.argv)
    code = (NODE_PROGRAMS / "hydra_job.py").read_bytes().decode()
    program = [python, "-c", "exec(__import__('sys').argv.pop(1))"]  # settings have no line breaks
    settings = settings.with_values({"profiles": {profile: {"program": program}}})
    words, points = points_of(multirun.jobs)
    hydra = [word for word in multirun.settings if not _FOLDERS.fullmatch(word)]
    hydra += [] if _MULTIRUN in hydra else [_MULTIRUN]
    known = {"configs": multirun.configs, "now": multirun.now}
    names = {*points[0], *PLACES, POINT}

    def unchanged(*words: str) -> tuple[str, ...]:
        return tuple(literal(word, names) for word in words)

    job = (*unchanged(code, json.dumps(known), str(multirun.first)), f"{{{POINT}}}")
    options = ["--config-name", multirun.config_name] if multirun.config_name else []
    if multirun.config_dir:
        options += ["--config-dir", _in_project(settings, multirun.config_dir)]
    cluster = settings.cluster(multirun.cluster)
    if cluster.here and not cluster.contained and not cluster.python:
        cluster = cluster.model_copy(update={"python": sys.executable})  # it can import what this one imports
    request = SubmitRequest(
        cluster=cluster,
        profile=settings.profile(profile),
        name=multirun.name,
        arguments=(*job, *unchanged(*application, *options), *words, *unchanged(*hydra), FOLDER),
        points=points,
        max_parallel=multirun.max_parallel,
    )
    return pipeline.submit(settings, resolve(settings, request), ledger, bar=bar, agree=agree)


def points_of(jobs: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], tuple[dict[str, str], ...]]:
    """Turns the jobs' overrides into arguments with placeholders, and the values of each job.

    >>> points_of([["net.lr=1", "+x='{seed}'"], ["net.lr=3", "+x='{seed}'"]])
    (('net.lr={net_lr}', "+x='{{seed}}'"), ({'net_lr': '1'}, {'net_lr': '3'}))

    Raises:
        ConfigError: the jobs have different numbers of overrides, or two have the same.
    """
    if len({len(job) for job in jobs}) > 1:
        raise ConfigError("the jobs of this multirun have different numbers of overrides")
    places: dict[tuple[str, ...], int] = {}
    for place, job in enumerate(jobs):
        if (first := places.setdefault(tuple(job), place)) != place:
            raise ConfigError(
                f"jobs {first} and {place} of this multirun would differ in name only: "
                f"both have {' '.join(job) or 'no overrides'}",
                hint="give each value once; an override such as +repeat=1,2 makes jobs differ",
            )
    arguments: list[tuple[str, bool]] = []
    """Each argument, and whether it is an override as it is."""
    points: list[dict[str, str]] = [{} for _ in jobs]
    for place, column in enumerate(zip(*jobs, strict=True)):
        if len(set(column)) == 1:
            arguments.append((column[0], True))
            continue
        pairs = [word.partition("=") for word in column]
        (key, *others), values = dict.fromkeys(pair[0] for pair in pairs), [pair[2] for pair in pairs]
        name = re.sub(r"\W+", "_", key).strip("_")
        if others or not name or name[0].isdigit():
            key, values, name = "", list(column), f"override{place}"
        taken = {variable_of(other) for other in (*points[0], POINT)}
        while variable_of(name) in taken or (name in (*OF_THE_RUN, *PLACES) and not _seeds(name, values)):
            name += "_"
        arguments.append((f"{key}={{{name}}}" if key else f"{{{name}}}", False))
        for point, value in zip(points, values, strict=True):
            point[name] = value
    names = {*points[0], *PLACES, POINT}
    return tuple(literal(word, names) if same else word for word, same in arguments), tuple(points)


def _seeds(name: str, values: Sequence[str]) -> bool:
    """Returns whether values are seeds: those of the runs too, so that a report averages over them."""
    return name == "seed" and all(value.isdigit() for value in values)


def own_command() -> list[str]:
    """Returns the command that runs this process's main module."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return ["python", "-m", str(spec.name).removesuffix(".__main__")]
    return ["python", str(Path(getattr(main, "__file__", None) or sys.argv[0]).resolve())]


def _in_project(settings: Settings, word: str) -> str:
    """Returns a path relative to the project's folder; any other word stays as it is."""
    if not word.startswith("/"):
        return word
    try:
        return Path(word).resolve().relative_to(settings.project_dir.resolve()).as_posix()
    except ValueError:
        raise ConfigError(
            f"{word} is not in the project, {settings.project_dir}",
            hint="put a clusterkit.toml into a folder above it: `clusterkit init` writes one",
        ) from None
