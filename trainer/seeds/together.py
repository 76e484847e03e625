"""Trains several runs in one process, which differ in their seeds alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from trainer.errors import UsageError
from trainer.loops.generators import HostGenerators, Stream
from trainer.loops.resuming import refuse_to_overwrite
from trainer.loops.training import TrainingRun
from trainer.machine.device import configure
from trainer.preemption import EXIT_INTERRUPTED, EXIT_REQUEUE, StopSignals
from trainer.ranks.parallel import Ranks
from trainer.seeds.group import GroupedRun, SeedGroup
from trainer.settings import TrainSettings
from trainer.telemetry import Opens, SharedProgress, open_progress

_SHARED = ("recipe", "num_envs", "device", "precision", "threads")


def _nobody(code: int, why: str) -> None:
    """Is told nothing."""


@dataclass(frozen=True)
class Member:
    """A run among those of a process.

    Attributes:
        settings: what to do.
        stop: what it has received; looked at after each of its vector steps. May be all runs' in common.
        opens: what shows its progress, and what a person should know.
        ended: told its exit code and, if it failed, why (lines for a person), as soon as that is known. By
            then its files are complete.
    """

    settings: TrainSettings
    stop: StopSignals
    opens: Opens = open_progress
    ended: Callable[[int, str], None] = field(default=_nobody)


def train_together(members: Sequence[Member]) -> list[int]:
    """Carries out several runs, or goes on with them; returns the exit code of each.

    Whatever happens to one, the others go on. Signals are the caller's to receive.

    Raises:
        DeviceError: the device or the precision is not to be had here.
        UsageError: two runs have the same directory, or they differ in more than their seeds. Nothing has
            been started.
    """
    _check([member.settings for member in members])
    first = members[0].settings
    device = configure(first.device, first.precision, first.threads_on)
    codes = [EXIT_INTERRUPTED] * len(members)

    def grouped(number: int, member: Member) -> GroupedRun:
        def ended(code: int, why: str) -> None:
            codes[number] = code
            member.ended(code, why)

        def make() -> TrainingRun:
            return TrainingRun(member.settings, device, Ranks(), member.stop, member.opens)

        return GroupedRun(make, Stream(device), ended, _around(member.settings))

    SeedGroup([grouped(number, member) for number, member in enumerate(members)]).train()
    return codes


def train_seeds(runs: Sequence[TrainSettings]) -> int:
    """Carries out the runs of a command line; returns the exit code of the process.

    Signals are meant for all of them.

    Returns:
        0 if all are done; that of the signal if none has failed; else 1.

    Raises:
        DeviceError: as `train_together`.
        UsageError: as `train_together`; or a run directory already holds checkpoints and nobody asked to
            resume. Nothing has been started.
    """
    for settings in runs:
        refuse_to_overwrite(settings)
    shared = SharedProgress()
    with StopSignals() as stop:
        codes = train_together([_member(settings, stop, shared) for settings in runs])
    open_still = {code for code in codes if code}
    if open_still <= {EXIT_REQUEUE, EXIT_INTERRUPTED}:
        return max(open_still, default=0)
    return 1


def _member(settings: TrainSettings, stop: StopSignals, shared: SharedProgress) -> Member:
    label = f"seed {settings.seed}:"

    def ended(_: int, why: str) -> None:
        if why:
            sys.stderr.write(f"trainer: {label} {why}\n")

    return Member(settings, stop, shared.of(label), ended)


def _check(runs: Sequence[TrainSettings]) -> None:
    if len(runs) > 1 and runs[0].stop_at is not None:
        raise UsageError(
            "--stop-at ends one run, and the runs of a process end together",
            hint="leave out --stop-at, or start a process for each run",
        )
    for settings in runs[1:]:
        for name in _SHARED:
            if getattr(settings, name) != getattr(runs[0], name):
                raise UsageError(
                    f"the runs of a process may differ only in their seeds, but these differ in {name}"
                )
    places = [settings.run_dir.resolve() for settings in runs]
    if len({*places}) < len(places):
        raise UsageError("two runs of a process have the same directory")


def _around(settings: TrainSettings) -> AbstractContextManager[Any]:
    """Returns the generators that environments of one's own may draw from, if they are stepped here."""
    here = settings.workers == 0 or settings.workers_optional
    own = here and ":" in settings.recipe.values.get("environment", "").partition("?")[0]
    return HostGenerators() if own else nullcontext()
