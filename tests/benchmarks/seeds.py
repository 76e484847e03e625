"""Throughput of several seeds in one process, against one seed, and against as many processes at once.

Each side runs the whole loop in processes of its own, one side after the other: first a seed, then S seeds in
one process (ours), then S processes with a seed each. What counts is the time from when all learn until all
have made their steps. `ratio_one_...`: all seeds' environment steps a second over those of one seed.
`ratio_processes_...`: over those of S processes. `ratio_cpu_...`: processor seconds of S processes over those
of one with S seeds, which holds on a busy machine too. Updates are in proportion to steps.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.benchmarks._report import Row, arguments, report


class Case(NamedTuple):
    """What is trained: its arguments, steps before and within what counts, values unlike the recipe's."""

    argv: Sequence[str]
    before: int
    steps: int
    values: Mapping[str, Any] = MappingProxyType({})


def _on(environment: str, recipe: str) -> tuple[str, ...]:
    set_to = "--set", f"environment={environment}", "--unlock", "environment"
    return "--recipe", recipe, *set_to, "--workers", "0"


CASES = {
    "ppo_cartpole": Case(_on("CartPole-v1", "ppo"), 2048, 3 * 2048),
    "sac_pendulum": Case(_on("Pendulum-v1", "sac"), 150, 250, {"warmup_steps": 100}),
    "sac_local-demo": Case(("--recipe", "local-demo"), 1200, 4000, {"warmup_steps": 800}),
}


class Watch:
    """Progress of a run: when it began to count and when it was done, with the processor time until then."""

    due = 0.0

    def __init__(self, before: int, until: int) -> None:
        self._before = before
        self._until = until
        self.begun = self.done = (0.0, 0.0)
        self.step = 0

    def update(self, step: int, phase: str, rate: float | None, success: float | None) -> None:
        self.step = step
        if step >= self._before and not self.begun[0]:
            self.begun = _clocks()
        if step >= self._until and not self.done[0]:
            self.done = _clocks()

    def say(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


def _clocks() -> tuple[float, float]:
    from trainer.telemetry.usage import processor_seconds

    return time.time(), processor_seconds()


def measured(case: Case, seeds: Sequence[int]) -> dict[str, float]:
    """Trains these seeds in this process; returns when all learnt, when all were done, and what it took."""
    from trainer.preemption import StopSignals
    from trainer.seeds.together import Member, train_together
    from trainer.settings import read_settings

    total = case.before + case.steps
    with tempfile.TemporaryDirectory() as folder:
        members, watches = [], []
        for seed in seeds:
            argv = [
                *(*case.argv, "--seed", str(seed), "--total-steps", str(total), "--threads", "1"),
                *("--run-dir", f"{folder}/{seed}", "--eval-every", "0", "--checkpoint-every", "0"),
                *("--log-every", "10_000_000", "--wandb", "disabled", "--device", "auto"),
            ]
            settings = read_settings(argv, {}, len(seeds))
            values = MappingProxyType({**settings.recipe.values, **case.values})
            settings = dataclasses.replace(
                settings, recipe=dataclasses.replace(settings.recipe, values=values)
            )
            watch = Watch(case.before, settings.total_steps)
            watches.append(watch)
            members.append(Member(settings, StopSignals(), lambda *_, watch=watch: watch))  # type: ignore[misc]
        with contextlib.redirect_stdout(io.StringIO()):
            codes = train_together(members)
    assert not any(codes), codes
    begun, done = max(watch.begun for watch in watches), max(watch.done for watch in watches)
    return {
        "begun": begun[0],
        "done": done[0],
        "cpu": done[1] - begun[1],
        "steps": sum(settings.total_steps - case.before for _ in watches),
    }


def serve(seeds: Sequence[int]) -> None:
    """Measures a case for each line that comes in; answers with a line."""
    import trainer.seeds.together

    assert trainer.seeds.together
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(measured(CASES[line.strip()], seeds)), flush=True)


class Processes:
    """Processes with some seeds each, which measure at the same time."""

    def __init__(self, shares: Sequence[Sequence[int]]) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", __spec__.name, "--serve", *map(str, seeds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for seeds in shares
        ]
        for process in self._processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

    def __call__(self, case: str) -> tuple[float, float]:
        """Returns steps a second of all together, and processor seconds for a million steps."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{case}\n")
            process.stdin.flush()
        found = [json.loads(process.stdout.readline()) for process in self._processes if process.stdout]
        steps = sum(each["steps"] for each in found)
        rate = sum(each["steps"] / (each["done"] - each["begun"]) for each in found)
        return rate, sum(each["cpu"] for each in found) / steps * 1e6

    def close(self) -> None:
        """Ends them."""
        for process in self._processes:
            process.communicate()


def main() -> None:
    """Measures and reports."""
    if sys.argv[1:2] == ["--serve"]:
        serve([int(seed) for seed in sys.argv[2:]])
        return
    quick = arguments(__doc__).quick
    sizes, rounds, cases = ((3,), 1, [*CASES][:2]) if quick else ((2, 4, 8), 3, [*CASES])
    rows: list[Row] = []
    metrics: dict[str, float] = {}
    one = Processes([[1]])
    for size in sizes:
        seeds = range(1, size + 1)
        together, apart = Processes([seeds]), Processes([[seed] for seed in seeds])
        for case in cases:
            found = [(one(case), together(case), apart(case)) for _ in range(rounds)]
            name = f"{case}_{size}"
            for key, pick in (
                ("one", lambda one, ours, _: ours[0] / one[0]),
                ("processes", lambda _, ours, apart: ours[0] / apart[0]),
                ("cpu", lambda _, ours, apart: apart[1] / ours[1]),
            ):
                metrics[f"ratio_{key}_{name}"] = statistics.median(pick(*each) for each in found)
            middle = [
                [statistics.median(each[side][kind] for each in found) for side in range(3)]
                for kind in range(2)
            ]
            what = f"{case}, {size} seeds"
            (alone, ours, theirs), (_, own_cpu, their_cpu) = middle
            rows += [
                (f"steps a second, {what}", "in one process", ours, "one seed", alone, "1/s"),
                (f"steps a second, {what}", "in one process", ours, "a process each", theirs, "1/s"),
                (f"CPU for 1M steps, {what}", "in one process", own_cpu, "a process each", their_cpu, "s"),
            ]
        together.close()
        apart.close()
    one.close()
    report("seeds", rows, metrics)


if __name__ == "__main__":
    main()
