"""What one training run is asked to do, read from the command line and the environment."""

from __future__ import annotations

import datetime
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainer import recipe as recipes
from trainer.arguments import NEWEST, nearest, train_parser
from trainer.errors import UsageError
from trainer.machine.processors import usable_processors
from trainer.ranks.place import ALONE, RankPlace, place_from
from trainer.recipe import Recipe, RecipeError
from trainer.recipe.processes import worker_processes

_WORTH_A_THREAD = 2**22
"""Multiplications of a layer's product that one thread is done with before another could have helped."""
_EVALUATIONS = 10
"""Evaluations, and checkpoints, in a run that does not say how often."""


@dataclass(frozen=True)
class TrainSettings:
    """The settings of a run. The science is in the recipe; the rest is hardware and habit.

    Attributes:
        recipe: the hyperparameters, with the unlocked changes.
        tasks: full names of the tasks; a recipe's environment is its only one.
        total_steps: environment steps, over all environments; whole rollouts where there are any.
        num_envs: environments; changes the speed, and how many updates fall between two actions.
        seed: of everything random.
        precision: `auto`, `fp32`, `tf32` or `bf16`; see `device.configure`.
        device: `auto`, `cpu` or `cuda`.
        run_dir: where everything is written.
        run_id: name of the run.
        attempt: which start of the run this is.
        eval_every: environment steps between evaluations; 0 for none at all.
        eval_episodes: episodes per task of an evaluation.
        final_episodes: episodes per task of the last one.
        stop_at: a level (`Evaluation.level`) at which the run is over once two evaluations in a row have
            reached it; None to make all steps.
        checkpoint_every: environment steps between checkpoints; 0 for one at the end only.
        keep: checkpoints to keep.
        log_every: environment steps between lines of training metrics.
        workers: environment processes; 0 steps the environments in the learner's own.
        workers_optional: whether environments that are stepped in no time are to have no processes, for
            nobody has asked for any.
        threads: PyTorch's threads; 0 for PyTorch's own choice, None for what `threads_on` chooses.
        lockstep: on a GPU, act with the newest weights instead of those of a vector step before.
        resume: None, `newest`, or the path of a checkpoint.
        wandb: `auto`, `offline`, `online` or `disabled`.
        place: which of the run's ranks this process is. All other numbers here are those of the whole run,
            but for the threads.
        wandb_id: W&B's id of the run; None for that of an earlier attempt, or a new one.
        together: runs in this process, which share the machine.
        most_threads: what `threads_on` may choose at most; None for as many as there are processors.
    """

    recipe: Recipe
    tasks: tuple[str, ...]
    total_steps: int
    num_envs: int
    seed: int
    precision: str
    device: str
    run_dir: Path
    run_id: str
    attempt: int
    eval_every: int
    eval_episodes: int
    final_episodes: int
    stop_at: float | None
    checkpoint_every: int
    keep: int
    log_every: int
    workers: int
    workers_optional: bool
    threads: int | None
    lockstep: bool
    resume: str | Path | None
    wandb: str
    place: RankPlace = ALONE
    wandb_id: str | None = None
    together: int = 1
    most_threads: int | None = None
    resumed_goals: int | None = None

    @property
    def goal_seed(self) -> int:
        """Seed of the goal lists of Meta-World's tasks: a run that was resumed keeps the ones it had."""
        if self.resumed_goals is not None:
            return self.resumed_goals
        return recipes.goal_seed(self.recipe.values, self.seed)

    def own(self, total: int) -> int:
        """Returns this rank's share of what all of them have together."""
        return total // self.place.size

    @property
    def own_envs(self) -> int:
        """Environments of this rank."""
        return self.own(self.num_envs)

    @property
    def own_workers(self) -> int:
        """Environment processes of this rank."""
        return max(1, self.own(self.workers)) if self.workers else 0

    def lag_on(self, device: str) -> int:
        """Returns how many vector steps the acting policy is behind the updates on a kind of device.

        On a CPU waiting for the updates costs nothing: they have been made before the environments are done.
        """
        return 0 if self.lockstep or device == "cpu" else 1

    def threads_on(self, device: str) -> int:
        """Returns PyTorch's threads where it learns on a kind of device.

        On a CPU as many as the largest product of an update is worth, at most this rank's processors. Workers
        do not count: where a product is worth several threads, updates take so long that workers mostly wait.
        """
        if self.threads is not None:
            return self.threads
        if device != "cpu":
            return 1
        recipe = self.recipe
        batch = self.own(recipe.entry.batch_size(recipe.name, recipe.values, self.num_envs))
        worth = batch * recipe.entry.widest(recipe.values) ** 2 // _WORTH_A_THREAD
        processors = usable_processors() // self.place.local_size
        return max(1, min(worth, processors, self.most_threads or processors))


def read_settings(argv: Sequence[str], environ: Mapping[str, str], together: int = 1) -> TrainSettings:
    """Reads the arguments of `python -m trainer train`.

    Args:
        argv: the arguments after `train`.
        environ: the environment; `CLUSTERKIT_RUN_DIR`, `CLUSTERKIT_RUN_ID`, `CLUSTERKIT_ATTEMPT`,
            `WANDB_RUN_ID`, `OMP_NUM_THREADS` and what `place_from` reads are looked at.
        together: runs that are to share a process.

    Raises:
        UsageError: an argument is wrong.
        RecipeError: the recipe or one of its values is unknown, locked or out of range, or the ranks cannot
            share it.
    """
    given = train_parser().read(argv)
    if given.seeds:
        raise UsageError("--seeds is for several runs, but this is a single one", hint="take --seed")
    return _settings(given, environ, together)


def read_each(argv: Sequence[str], environ: Mapping[str, str]) -> list[TrainSettings]:
    """Reads the arguments as `read_settings` does, of one run or of those of `--seeds`, each with a folder.

    Raises:
        UsageError: an argument is wrong, or does not go with `--seeds`.
        RecipeError: as `read_settings`.
    """
    given = train_parser().read(argv)
    if not given.seeds:
        return [_settings(given, environ, 1)]
    if given.seed is not None:
        raise UsageError("--seed and --seeds exclude each other", hint="give all seeds with --seeds")
    if given.resume not in (None, NEWEST):
        raise UsageError(
            "--resume PATH is for one run, and --seeds for several",
            hint="--resume alone continues from the newest checkpoint of each",
        )
    shared = _settings(given, environ, len(given.seeds))
    if shared.place.size > 1:
        raise UsageError(
            f"{shared.place.size} ranks share one run, but --seeds puts several into one process",
            hint="use --ranks 1",
        )
    return [
        replace(
            shared,
            seed=seed,
            run_dir=shared.run_dir / f"seed-{seed}",
            run_id=f"{shared.run_id}-seed-{seed}",
            wandb_id=None,
        )
        for seed in given.seeds
    ]


def _settings(given: Namespace, environ: Mapping[str, str], together: int) -> TrainSettings:
    recipe = _recipe(given.recipe, given.overrides, given.tasks, given.unlock)
    values, entry = recipe.values, recipe.entry
    attempt = int(environ.get("CLUSTERKIT_ATTEMPT") or 0)
    run_dir = Path(given.run_dir or environ.get("CLUSTERKIT_RUN_DIR") or _new_run_dir(recipe.name))
    eval_episodes = given.eval_episodes or values["evaluation_episodes"]
    if given.stop_at is not None and given.eval_every == 0:
        raise UsageError("--stop-at needs evaluations", hint="leave out --eval-every 0")
    place = place_from(environ, given.ranks)
    num_envs = given.num_envs or recipes.shared_envs(entry.usual_envs(values), place.size)
    recipes.check_shares(recipe, num_envs, place.size)
    total_steps = entry.whole_steps(recipe.name, values, num_envs, given.total_steps)
    often = max(total_steps // _EVALUATIONS, 1)
    workers = _workers(recipe, num_envs, place, together) if given.workers is None else given.workers
    return TrainSettings(
        recipe=recipe,
        tasks=recipe.environment.tasks(values),
        total_steps=total_steps,
        num_envs=num_envs,
        seed=given.seed or 0,
        precision=given.precision,
        device=given.device,
        run_dir=run_dir,
        run_id=environ.get("CLUSTERKIT_RUN_ID") or run_dir.resolve().name,
        attempt=attempt,
        eval_every=often if given.eval_every is None else given.eval_every,
        eval_episodes=eval_episodes,
        final_episodes=given.final_episodes or eval_episodes,
        stop_at=given.stop_at,
        checkpoint_every=often if given.checkpoint_every is None else given.checkpoint_every,
        keep=given.keep,
        log_every=given.log_every or max(1000, total_steps // 1000),
        workers=workers,
        workers_optional=given.workers is None,
        threads=given.threads,
        most_threads=_most_threads(environ),
        lockstep=given.lockstep,
        resume=_resume(given.resume, attempt),
        wandb=given.wandb,
        place=place,
        wandb_id=environ.get("WANDB_RUN_ID") or None,
        together=together,
    )


def _recipe(name: str, pairs: Sequence[str], tasks: str | None, unlock: Sequence[str]) -> Recipe:
    recipe = recipes.load(name)
    overrides = {} if tasks is None else {"tasks": tasks}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--set {pair}: expected NAME=VALUE{nearest(key, list(recipe.values))}")
        if overrides.setdefault(key, value) != value:
            raise RecipeError(f"{key} is set twice, to {overrides[key]} and {value}")
    return recipe.override(overrides, set(unlock))


def _workers(recipe: Recipe, num_envs: int, place: RankPlace, together: int) -> int:
    """Returns environment processes for all ranks, by the processors that each of them has.

    Runs that share a process share its learner's processor, and divide the others.
    """
    processors, envs = usable_processors() // place.local_size, num_envs // place.size
    if together > 1:
        others = max(1, (processors - 1) // together) if processors > 1 else 0
        return worker_processes(envs, others + 1) * place.size
    return recipe.entry.usual_workers(envs, processors) * place.size


def _most_threads(environ: Mapping[str, str]) -> int | None:
    """Returns what OMP_NUM_THREADS says, whose further numbers are of nested regions; None for nothing."""
    first = environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


def _resume(given: str | None, attempt: int) -> str | Path | None:
    if given is None:
        return NEWEST if attempt > 0 else None
    return given if given == NEWEST else Path(given)


def _new_run_dir(recipe: str) -> Path:
    now = datetime.datetime.now(datetime.UTC)
    return Path("runs") / f"{recipe}-{now:%Y%m%d-%H%M%S}"
