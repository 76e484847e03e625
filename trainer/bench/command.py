"""The command: measures one thing after the other until the time is over, and keeps each as it comes.

First the run's own settings, so that there is something to compare with; then the environments alone, over
their number and that of their processes; then the whole loop with the most promising of these; last the
memory of evaluations, the updates alone, and the whole loop in other precisions. A bench that is killed has
lost only what it was at.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainer.arguments import Parser, at_least
from trainer.bench.candidates import Combination, combinations, environment_counts, line, table, worth_a_run
from trainer.bench.process import Order, measure
from trainer.envs.choice import factory_for
from trainer.errors import TrainerError, UsageError
from trainer.files import atomic_write_json
from trainer.machine.processors import usable_processors
from trainer.preemption import StopSignals
from trainer.recipe.environments import GYMNASIUM
from trainer.recipe.processes import quick
from trainer.settings import TrainSettings, read_settings
from trainer.telemetry.heartbeat import Heartbeat

FILE = "bench.json"
LEAST_SECONDS = 20
_FIRST_START = 8.0
"""Seconds from the start of a process to its first step, before any was seen."""
_WINDOWS = 30
"""A measurement takes this part of the whole time, within the bounds below."""
_SHORTEST, _LONGEST = 1.0, 10.0
_ENVS_UNTIL, _LOOPS_UNTIL = 0.5, 0.85
"""Shares of the time after which the next kind begins."""
_MOST, _PATIENCE = 0.3, 60.0
"""The longest that one measurement may take: this share of the time, or so many seconds if that is more."""
_PRECISIONS = ("fp32", "tf32", "bf16")


def main(argv: Sequence[str]) -> int:
    """Measures as the arguments say; returns the exit code.

    Raises:
        UsageError: an argument is wrong.
        RecipeError: the recipe is at fault.
        TrainerError: nothing could be measured, or the run directory cannot be written.
    """
    given, options = _parser().parse_known_args(list(argv))
    settings = read_settings(options, os.environ)
    if settings.recipe.entry.loop == "on-policy" and given.try_num_envs:
        raise UsageError(
            f"--try-num-envs: with {settings.recipe.name} their number says how long a rollout is, and so "
            "what is learnt",
            hint="workers can be tried: --try-workers",
        )
    wishes = BenchWishes(
        given.seconds,
        given.each or min(max(given.seconds / _WINDOWS, _SHORTEST), _LONGEST),
        _numbers(given.try_num_envs, "--try-num-envs", 1),
        _numbers(given.try_workers, "--try-workers", 0),
        _precisions(given.try_precision),
    )
    settings.run_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    with StopSignals() as stop:
        return BenchRun(settings, options, wishes, stop).run()


def _parser() -> Parser:
    parser = Parser(
        prog="python -m trainer bench",
        description="Measure on this machine how fast a recipe runs, with which settings. "
        "Takes the options of train too: what they say is the run's own setting.",
    )
    add = parser.add_argument
    add("--seconds", type=at_least(LEAST_SECONDS), default=300, metavar="N", help="for all of it (300)")
    add("--each", type=float, metavar="N", help="seconds of one measurement (a thirtieth, 1 to 10)")
    add("--try-num-envs", metavar="A,B", help="numbers of environments to try (by the number of tasks)")
    add("--try-workers", metavar="A,B", help="numbers of environment processes to try (by processors)")
    add("--try-precision", metavar="A,B", help="precisions to try (those the device computes in)")
    return parser


def _numbers(text: str | None, option: str, least: int) -> list[int]:
    try:
        return [at_least(least)(part) for part in text.split(",")] if text else []
    except (ValueError, OverflowError, ArgumentTypeError) as error:
        raise UsageError(
            f"{option} {text}: must be whole numbers of at least {least}, separated by commas"
        ) from error


def _precisions(text: str | None) -> tuple[str, ...]:
    precisions = tuple(text.split(",")) if text else _PRECISIONS
    if unknown := [precision for precision in precisions if precision not in _PRECISIONS]:
        raise UsageError(f"--try-precision: {unknown[0]!r} is not one of {', '.join(_PRECISIONS)}")
    return precisions


@dataclass(frozen=True)
class BenchWishes:
    """What is to be measured, and for how long.

    Attributes:
        seconds: for everything.
        each: seconds of one measurement.
        counts: numbers of environments to try; none for those that may be worth it.
        workers: numbers of environment processes to try; likewise.
        precisions: to try, where the device has them.
    """

    seconds: float
    each: float
    counts: Sequence[int]
    workers: Sequence[int]
    precisions: Sequence[str]


class BenchRun:
    """All measurements of a recipe on this machine.

    Args:
        settings: the run's own.
        options: of `train`, that they were read from.
        wishes: what is to be measured.
        stop: looked at while something is measured.
    """

    def __init__(
        self, settings: TrainSettings, options: Sequence[str], wishes: BenchWishes, stop: StopSignals
    ) -> None:
        self._settings, self._options, self._stop = settings, list(options), stop
        self._wishes, self._begun = wishes, time.monotonic()
        self._seconds, self._window = wishes.seconds, wishes.each
        self._starts = dict.fromkeys(("loop", "envs", "updates", "evaluation"), _FIRST_START)
        self._own = _own(settings)
        counts = list(wishes.counts) or _counts(settings)
        light = settings.recipe.environment is GYMNASIUM
        tries = combinations(self._own, counts, usable_processors(), light=light)
        if wishes.workers:
            pairs = (Combination(count, workers) for count in counts for workers in wishes.workers)
            tries = list(dict.fromkeys([self._own, *pairs]))
        self._tries = tries
        self._rows: list[dict[str, Any]] = []
        self._device: dict[str, Any] = {}
        self._precision = settings.precision  # until a process that has seen the device tells what `auto` is

    def run(self) -> int:
        """Measures; returns the exit code.

        Raises:
            TrainerError: nothing could be measured, or what was cannot be written.
        """
        path = self._settings.run_dir / "heartbeat.json"
        # the step is the second: progress and time left are then right wherever they are shown
        self._beat = Heartbeat(path, self._settings.attempt, int(self._seconds))
        try:
            self._beat.update(phase="bench")
            self._measure_all()
            if self._rows:
                self._keep(complete=not self._stop)
            if not self._stop:
                self._beat.update(step=int(self._seconds))
        finally:
            self._beat.close()
        if self._rows:
            _say(*table(self._rows))
        if self._stop.received is not None:
            _say(f"[bench] {self._stop.received.name} received, {len(self._rows)} measurements made")
        faults = [row["error"] for row in self._rows if row["kind"] == "loop"]
        if all(faults):
            raise TrainerError(f"the whole loop could not be measured: {(*faults, 'interrupted')[0]}")
        return 1 if self._stop else 0

    def _measure_all(self) -> None:
        own = self._measure(Order("loop", *_both(self._own), self._precision), needed=True)
        self._precision = precision = own["precision"] if own else self._precision
        rates: dict[Combination, float] = {}
        for combination in self._tries:
            if self._elapsed() < _ENVS_UNTIL * self._seconds:
                row = self._measure(Order("envs", *_both(combination), precision))
                if row and not row["error"]:
                    rates[combination] = row["env_steps_per_second"]
        measured = {self._own: own["steps_per_second"] or 0.0 if own else 0.0}
        for combination in worth_a_run(self._own, rates, measured[self._own] or None):
            if self._elapsed() < _LOOPS_UNTIL * self._seconds:
                row = self._measure(Order("loop", *_both(combination), precision))
                measured[combination] = (row and row["steps_per_second"]) or 0.0
        if len(measured) > 1:  # again, for the node may have been busy at first: the better one counts
            self._measure(Order("loop", *_both(self._own), precision))
        if self._settings.eval_every:
            self._measure(Order("evaluation", *_both(self._own), precision))
        best = max(measured, key=lambda combination: measured[combination])
        others = [other for other in self._precisions() if other != precision]
        for other in (precision, *others):
            self._measure(Order("updates", *_both(self._own), other))
        for other in others:
            self._measure(Order("loop", *_both(best), other))

    def _precisions(self) -> list[str]:
        """Those that are something of their own on this device."""
        cuda = self._device.get("type") == "cuda"
        has = {"fp32": True, "tf32": cuda, "bf16": bool(self._device.get("bf16"))}
        return [precision for precision in self._wishes.precisions if has[precision]]

    def _measure(self, order: Order, *, needed: bool = False) -> dict[str, Any] | None:
        """Measures, if there is time, and keeps the result."""
        left = self._seconds - self._elapsed()
        if self._stop or (not needed and left < self._starts[order.kind] + 2 * self._window):
            return None
        begun = time.monotonic()
        limit = min(left, max(self._seconds * _MOST, _PATIENCE))
        result = measure(order, self._options, self._window, limit, self._tick)
        if self._stop:
            return None
        took = time.monotonic() - begun
        if "error" not in result:
            self._starts[order.kind] = max(0.0, took - self._window)
        self._device = self._device or result.pop("device", {})
        row = {
            "kind": order.kind,
            "num_envs": order.num_envs,
            "workers": order.workers,
            "precision": order.precision,
            "seconds": round(took, 2),
            **dict.fromkeys(("env_steps_per_second", "updates_per_second", "steps_per_second")),
            **dict.fromkeys(("host_bytes", "device_bytes", "error")),
        }
        row |= {key: value for key, value in result.items() if key in row}
        self._rows.append(row)
        self._keep(complete=False)
        _say(line(row))
        return row

    def _tick(self) -> bool:
        self._beat.update(step=int(min(self._elapsed(), self._seconds)))
        return bool(self._stop)

    def _elapsed(self) -> float:
        return time.monotonic() - self._begun

    def _keep(self, *, complete: bool) -> None:
        settings = self._settings
        document = {
            "schema": 1,
            "time": time.time(),
            "complete": complete,
            "seconds": round(self._elapsed(), 1),
            "node": platform.node(),
            "processors": usable_processors(),
            "device": self._device,
            "recipe": settings.recipe.name,
            "modified": dict(settings.recipe.as_json()["modified"]),
            "tasks": len(settings.tasks),
            "own": {
                "num_envs": self._own.num_envs,
                "workers": self._own.workers,
                "precision": self._precision,
            },
            "rows": self._rows,
        }
        try:
            atomic_write_json(settings.run_dir / FILE, document)
        except OSError as error:
            raise TrainerError(f"{settings.run_dir / FILE} cannot be written: {error.strerror}") from error


def _own(settings: TrainSettings) -> Combination:
    """What the run would take: environments that are stepped in no time have no processes."""
    values, workers = settings.recipe.values, min(settings.workers, settings.num_envs)
    if settings.workers_optional and settings.recipe.environment is GYMNASIUM:
        factory = factory_for(settings.recipe.entry, values, settings.tasks, settings.seed)
        workers = 0 if quick(settings.own_envs, factory.step_seconds) else workers
    return Combination(settings.num_envs, workers)


def _counts(settings: TrainSettings) -> list[int]:
    """Numbers of environments to try: those that change nothing of what is learnt."""
    values, own = settings.recipe.values, settings.num_envs
    if settings.recipe.entry.loop == "on-policy":
        return [own]
    # of episodes that end by themselves nobody knows the length; a ring of transitions holds any
    episode_steps = values.get("episode_steps", 1)
    return environment_counts(len(settings.tasks), own, values["replay_capacity"], episode_steps)


def _both(combination: Combination) -> tuple[int, int]:
    return combination.num_envs, combination.workers


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
