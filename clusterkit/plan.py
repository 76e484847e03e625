"""From profile, recipe and arguments to the program's argv and environment. Pure: no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clusterkit.errors import ConfigError, RecipeLockedError
from trainer import recipe as recipes

if TYPE_CHECKING:
    from clusterkit.config.models import Profile, Wandb

_TRAIN = ["python", "-m", "trainer", "train"]
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Program:
    """What a run executes."""

    argv: tuple[str, ...]
    recipe: Mapping[str, Any] | None
    """`name`, `values`, `modified`; None when the bundled trainer does not train."""
    env: Mapping[str, str]


def choose_recipe(name: str, overrides: Mapping[str, str], unlock: Sequence[str]) -> recipes.Recipe:
    """The recipe with its overrides, checked on the laptop before anything is sent.

    Raises:
        RecipeLockedError: a locked value is overridden without being named in `unlock`.
        ConfigError: the recipe or a value is unknown or wrong.
    """
    try:
        locked = recipes.load(name)
    except recipes.RecipeError as error:
        raise ConfigError(str(error)) from error
    try:
        return locked.override(overrides, unlock)
    except recipes.RecipeLocked as error:
        raise RecipeLockedError(str(error), hint="the run will be marked as modified for ever") from error
    except recipes.RecipeError as error:
        raise ConfigError(str(error), hint=f"{name} has {', '.join(sorted(locked.values))}") from error


def _check_batches(recipe: recipes.Recipe, num_envs: int | None) -> None:
    """Refuses, before a job waits hours for it, a rollout that its batches do not divide."""
    if "rollout_size" in recipe.values:
        try:
            recipes.batches(recipe.name, recipe.values, num_envs or recipes.ON_POLICY_ENVS)
        except recipes.RecipeError as error:
            raise ConfigError(str(error)) from error


def assignments(texts: Sequence[str], option: str) -> dict[str, str]:
    """Parse `name=value` options.

    Raises:
        ConfigError: a text is not of that form.
    """
    parsed = {}
    for text in texts:
        match = _ASSIGNMENT.fullmatch(text)
        if not match:
            raise ConfigError(f"{option} {text}: not of the form name=value")
        parsed[match[1]] = match[2]
    return parsed


def program(
    profile: Profile,
    *,
    own_program: Sequence[str] | None,
    arguments: Sequence[str],
    overrides: Mapping[str, str],
    unlock: Sequence[str],
    seed: int,
    wandb: Wandb,
    run_id: str,
    run_dir: str,
) -> Program:
    """Argv and environment of a run.

    Args:
        profile: hardware settings and the recipe's name.
        own_program: argv of the user's own program; None is the bundled trainer.
        arguments: the user's arguments, appended to the letter.
        overrides: recipe values as text, by name.
        unlock: recipe values that may be overridden.
        seed: of the run.
        wandb: where the run appears in W&B.
        run_id: also the stable W&B run id.
        run_dir: absolute path on the cluster; W&B writes below it.

    Raises:
        ConfigError, RecipeLockedError: as `choose_recipe`; a batch size that does not divide the rollout;
            or overrides for a program without a recipe.
    """
    env = _environment(profile, wandb, run_id, run_dir)
    fixed = profile.program or own_program
    if fixed or profile.recipe is None:
        if overrides or unlock:
            raise ConfigError("--set and --unlock change a recipe, and this run trains none")
        if not fixed:
            raise ConfigError(f"profile {profile.name} names neither a recipe nor a program")
        return Program((*fixed, *arguments), None, env)
    recipe = choose_recipe(profile.recipe, overrides, unlock)
    _check_batches(recipe, profile.num_envs)
    argv = [*_TRAIN, "--recipe", recipe.name]
    options: dict[str, object] = {
        "total-steps": profile.total_steps,
        "num-envs": profile.num_envs,
        "seed": seed,
        "precision": profile.precision,
        "device": profile.device,
        "eval-every": profile.eval_every,
        "eval-episodes": profile.eval_episodes,
        "checkpoint-every": profile.checkpoint_every,
        "threads": profile.threads,
        "workers": profile.workers,
    }
    for name, value in options.items():
        if value is not None:
            argv += [f"--{name}", str(value)]
    for name, text in overrides.items():
        argv += ["--set", f"{name}={text}"]
    for name in unlock:
        argv += ["--unlock", name]
    document = {"name": recipe.name, "values": dict(recipe.values), "modified": dict(recipe.modified)}
    return Program((*argv, *arguments), document, env)


def _environment(profile: Profile, wandb: Wandb, run_id: str, run_dir: str) -> dict[str, str]:
    env = {
        "OMP_NUM_THREADS": str(profile.threads),
        "MKL_NUM_THREADS": str(profile.threads),
        "PYTHONUNBUFFERED": "1",
        "WANDB_MODE": wandb.mode,
        "WANDB_PROJECT": wandb.project,
        "WANDB_RUN_ID": run_id,
        "WANDB_RESUME": "allow",
        "WANDB_DIR": run_dir,
    }
    if wandb.entity:
        env["WANDB_ENTITY"] = wandb.entity
    if profile.mujoco_gl:
        env["MUJOCO_GL"] = profile.mujoco_gl
    return {**env, **profile.env}


def trains(argv: Sequence[str]) -> bool:
    """Whether an argv is a training of the bundled trainer."""
    return list(argv[:4]) == _TRAIN


def option_of(argv: Sequence[str], name: str) -> str | None:
    """The value of an option that `program` has put into a training's argv; the user's own, later, wins."""
    found = None
    for here, after in zip(argv, [*argv[1:], None], strict=True):
        if here == name:
            found = after
        elif here.startswith(f"{name}="):
            found = here.partition("=")[2]
    return found


def with_option(argv: Sequence[str], name: str, value: str) -> list[str]:
    """The argv of a training with an option set, wherever it was given before.

    >>> with_option(["python", "-m", "trainer", "train", "--seed", "1"], "--seed", "2")[4:]
    ['--seed', '2']
    """
    changed: list[str] = []
    arguments = iter(argv)
    for argument in arguments:
        if argument == name:
            next(arguments, None)
        elif not argument.startswith(f"{name}="):
            changed.append(argument)
    return [*changed, name, value]


def with_hardware(
    argv: Sequence[str], env: Mapping[str, str], profile: Profile
) -> tuple[list[str], dict[str, str]]:
    """Argv and environment of a run on the hardware of another profile.

    A training keeps its recipe, its number of environments and its precision, and so its numbers.
    """
    changed = list(argv)
    if trains(argv):
        options = {"--device": profile.device, "--threads": profile.threads, "--workers": profile.workers}
        for name, value in options.items():
            if value is not None:
                changed = with_option(changed, name, str(value))
    threads = {"OMP_NUM_THREADS": str(profile.threads), "MKL_NUM_THREADS": str(profile.threads)}
    graphics = {"MUJOCO_GL": profile.mujoco_gl} if profile.mujoco_gl else {}
    return changed, {**env, **threads, **graphics, **profile.env}
