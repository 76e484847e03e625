"""Puts a training run together, resumes it if asked to, and ends it with its exit code."""

from __future__ import annotations

from dataclasses import replace
from importlib import metadata
from types import TracebackType
from typing import Any, Self

import torch

from trainer.checkpoint import CheckpointStore
from trainer.envs.choice import factory_for
from trainer.errors import DivergedError, TrainerError, UsageError
from trainer.loops.generators import fresh_generators
from trainer.loops.off_policy import OffPolicyRun
from trainer.loops.on_policy import OnPolicyRun
from trainer.loops.resuming import find
from trainer.loops.saving import of_rank
from trainer.loops.state import FoundCheckpoint
from trainer.machine.device import configure, describe, device_name, known_as, precision_on, seed_everything
from trainer.machine.processors import usable_processors
from trainer.preemption import StopSignals
from trainer.ranks.parallel import Ranks
from trainer.recipe.processes import quick
from trainer.settings import TrainSettings
from trainer.telemetry import Opens, SilentTelemetry, Telemetry, open_progress

_MOST_ROLLBACKS = 2
"""How often an attempt goes back to a checkpoint because of numbers that are not finite."""


def train(settings: TrainSettings) -> int:
    """Carries out a run, or goes on with it; returns the exit code.

    Raises:
        DeviceError: the device or the precision is not to be had here.
        UsageError: the run directory already holds checkpoints and nobody asked to resume; or the recipe's
            environment cannot be had here.
        TrainerError: the run directory cannot be written, or the device's memory is too small.
        CheckpointError: the checkpoint to resume does not fit.
        WorkerError: an environment worker died or hangs.
        DivergedError: the numbers are not finite, also after going back to a checkpoint.
        RankLostError: another rank has failed or is gone.
    """
    with StopSignals() as stop:  # first of all: a signal during the start must not be lost
        device = configure(settings.device, settings.precision, settings.threads_on, settings.place)
        with (
            Ranks.meet(settings.place, device) as ranks,
            TrainingRun(_agreed(settings, ranks), device, ranks, stop) as run,
        ):
            return run.train()


class TrainingRun:
    """A run from its beginning, or from where it was left, to its end. Use as a context manager.

    Args:
        settings: what to do.
        device: where to learn.
        ranks: with whom.
        stop: looked at after each vector step.
        opens: what shows progress.

    Raises:
        TrainerError: as `train`.
    """

    def __init__(
        self,
        settings: TrainSettings,
        device: torch.device,
        ranks: Ranks,
        stop: StopSignals,
        opens: Opens = open_progress,
    ) -> None:
        seed_everything(settings.seed, ranks.rank)
        events: list[str] = []
        self._store = CheckpointStore(
            settings.run_dir, run_id=settings.run_id, recipe=settings.recipe.name, keep=settings.keep
        )
        resumed = find(settings, self._store, events, ranks)
        step = resumed.parts["state"]["progress"]["step"] if resumed else 0
        if resumed:
            goals = resumed.parts["model"]["about"]["goal_seed"]
            if goals != settings.goal_seed:
                events.append(f"on with the goals of seed {goals}, which it began with")
            settings = replace(settings, resumed_goals=goals)
        recipe = settings.recipe
        self._factory = factory_for(
            recipe.entry, recipe.values, settings.tasks, settings.seed, settings.goal_seed
        )
        if settings.workers_optional and quick(settings.own_envs, self._factory.step_seconds):
            settings = replace(settings, workers=0)
        self._settings, self._device, self._ranks, self._stop = settings, device, ranks, stop
        self._resumed = resumed
        self._failures = 0
        self._attempt: OffPolicyRun | OnPolicyRun | None = None
        self._begun_at = step
        self._events = (
            [_setting(settings, device), *_loop(settings).notes(settings), *events] if ranks.writes else []
        )
        self._telemetry = _telemetry(
            settings, device, step, ranks, opens
        )  # last: whoever gets this closes it

    @property
    def attempt(self) -> OffPolicyRun | OnPolicyRun:
        """The present attempt; there is none between `go_back` and the next `start`."""
        assert self._attempt is not None
        return self._attempt

    def train(self) -> int:
        """Runs to the end or a signal; returns the exit code."""
        while True:
            self.start()
            try:
                code = self.attempt.train()
                break
            except DivergedError as error:
                self.go_back(error)
        self.close(code)
        return code

    def start(self) -> None:
        """Makes the attempt, from the checkpoint found if there is one."""
        while self._events:
            self._telemetry.event(self._begun_at, self._events.pop(0))
        self._attempt = _loop(self._settings)(
            self._settings,
            self._factory,
            self._device,
            self._telemetry,
            self._stop,
            self._store,
            self._resumed,
            self._ranks,
        )

    def go_back(self, error: DivergedError) -> None:
        """Ends the attempt, whose numbers have become useless, and finds the checkpoint to start anew from.

        The memory of the attempt is needed for the next one, so nothing may hold it by then.

        Raises:
            DivergedError: the one given, where there is no checkpoint or the run has gone back too often.
        """
        self._end_attempt(error)
        self._failures += 1
        self._resumed = _last_good(
            self._settings, self._store, self._telemetry, error, self._failures, self._ranks
        )

    def close(self, code: int) -> None:
        """Ends the run with its exit code."""
        self._end_attempt(None)
        self._telemetry.close(code)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end_attempt(error)
        finally:
            self._telemetry.__exit__(kind, error, trace)

    def _end_attempt(self, error: BaseException | None) -> None:
        if (attempt := self._attempt) is not None:
            self._attempt = None
            attempt.__exit__(type(error) if error else None, error, None)


def _agreed(settings: TrainSettings, ranks: Ranks) -> TrainSettings:
    """Returns the settings of this rank, with rank 0's run directory and id.

    Raises:
        UsageError: this rank was started with others than rank 0.
    """
    names = "total_steps num_envs seed precision eval_every stop_at checkpoint_every log_every resume"
    own = {name: getattr(settings, name) for name in names.split()} | {"recipe": settings.recipe.as_json()}
    for name, theirs in ranks.share(own).items():
        if own[name] != theirs:
            raise UsageError(
                f"rank 0 was started with {name} = {theirs}, and rank {ranks.rank} with {own[name]}",
                hint="if each is a separate run, give each --ranks 1",
            )
    # a folder named after the time may be named after two
    run_dir, run_id = ranks.share((settings.run_dir, settings.run_id))
    return replace(settings, run_dir=run_dir, run_id=run_id)


def _last_good(
    settings: TrainSettings,
    store: CheckpointStore,
    telemetry: Telemetry,
    error: DivergedError,
    failures: int,
    ranks: Ranks,
) -> FoundCheckpoint:
    """Returns the newest good checkpoint, with other random numbers to go on with than led here."""
    path = None
    if ranks.writes and failures <= _MOST_ROLLBACKS:
        path = store.newest(lambda _: None)
    path = ranks.share(path)
    if path is None:
        raise error
    parts, _ = of_rank(store.load(path), ranks, settings.seed, lambda _: None)
    entropy = (failures, ranks.rank) if ranks.rank else (failures,)
    parts["state"]["generators"] = fresh_generators(settings.seed, *entropy)
    step = parts["state"]["progress"]["step"]
    telemetry.event(step, f"{error.cause}: back to step {step:,}, continuing with other random numbers")
    return FoundCheckpoint(path, parts)


def _loop(settings: TrainSettings) -> type[OffPolicyRun] | type[OnPolicyRun]:
    """Returns the loop that the run's algorithm is trained by."""
    loops: dict[str, type[OffPolicyRun] | type[OnPolicyRun]]
    loops = {"off-policy": OffPolicyRun, "on-policy": OnPolicyRun}
    return loops[settings.recipe.entry.loop]


def _setting(settings: TrainSettings, device: torch.device) -> str:
    """Says what was chosen where the settings left a choice."""
    plural = "" if settings.workers == 1 else "es"
    where = f"{settings.workers} worker process{plural}" if settings.workers else "the learner's own process"
    helps = not _loop(settings).learns_meanwhile and settings.together == 1
    if helps and 0 < settings.own_workers < settings.own_envs:
        where += " and the learner's own"
    lag = ", acting one vector step behind the updates" if settings.lag_on(device.type) else ""
    if settings.place.size > 1:
        where += f" on {settings.place.size} ranks"
    if settings.together > 1:
        where += f", one of {settings.together} runs in this process"
    return (
        f"learning on {device.type} ({device_name(device)}) in {precision_on(device, settings.precision)}, "
        f"{settings.num_envs} environment{'' if settings.num_envs == 1 else 's'} in {where}{lag}"
    )


def _telemetry(
    settings: TrainSettings,
    device: torch.device,
    step: int,
    ranks: Ranks,
    opens: Opens = open_progress,
) -> Telemetry:
    if not ranks.writes:
        return SilentTelemetry(ranks.rank)
    try:
        return Telemetry.open(
            settings.run_dir,
            _header(settings, device),
            settings.total_steps,
            settings.attempt,
            settings.wandb,
            step=step,
            config=settings.recipe.values,
            gpu_uuid=known_as(device),
            name=settings.run_id,
            wandb_id=settings.wandb_id,
            opens=opens,
        )
    except OSError as error:
        raise TrainerError(
            f"cannot write to {settings.run_dir}: {error.strerror}",
            hint="free space, or name another --run-dir",
        ) from error


def _header(settings: TrainSettings, device: torch.device) -> dict[str, Any]:
    recipe = settings.recipe.as_json()
    facts = describe(device)
    packages = ("metaworld", "mujoco", "gymnasium", "numpy")
    return {
        "recipe": recipe["name"],
        "modified": recipe["modified"],
        **({"label": recipe["label"]} if "label" in recipe else {}),
        "tasks": list(settings.tasks),
        "seed": settings.seed,
        "total_steps": settings.total_steps,
        "num_envs": settings.num_envs,
        "ranks": settings.place.size,
        "precision": precision_on(device, settings.precision),
        "device": facts.pop("name"),
        "processors": usable_processors(),
        "versions": facts | {name: metadata.version(name) for name in packages},
    }
