"""From profile, recipe and arguments to the program's argv and environment. Pure: no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clusterkit.config.exposure import HINT, secret_argument
from clusterkit.errors import ConfigError, RecipeLockedError
from clusterkit.resources import page
from clusterkit.runs.placeholders import fill, has_place
from clusterkit.runs.recipe_names import load, resolve
from trainer import recipe as recipes

if TYPE_CHECKING:
    from clusterkit.config.models import Profile, Wandb

_TRAIN = ["python", "-m", "trainer", "train"]
SEED, TOTAL_STEPS = "CLUSTERKIT_SEED", "CLUSTERKIT_TOTAL_STEPS"
"""Where such a program finds the two in its environment."""
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Program:
    """What a run executes."""

    argv: tuple[str, ...]
    recipe: Mapping[str, Any] | None
    """`name`, `values`, `modified`; None when the bundled trainer does not train."""
    env: Mapping[str, str]
    template: tuple[str, ...] | None = None
    """The argv before `{seed}` and the like were filled in; None when nothing was."""


def choose_recipe(name: str, overrides: Mapping[str, str], unlock: Sequence[str]) -> recipes.Recipe:
    """The recipe with its overrides, checked on the laptop before anything is sent.

    Raises:
        RecipeLockedError: a locked value is overridden without being named in `unlock`.
        ConfigError: the recipe or a value is unknown or wrong.
    """
    name, overrides, unlock = resolve(name, overrides, unlock)
    locked = load(name)
    try:
        return locked.override(overrides, unlock)
    except recipes.RecipeLocked as error:
        raise RecipeLockedError(str(error), hint="the run will be marked as modified for ever") from error
    except recipes.RecipeError as error:
        raise ConfigError(str(error), hint=f"{name} has {', '.join(sorted(locked.values))}") from error


def _check_batches(recipe: recipes.Recipe, num_envs: int | None) -> None:
    """Refuses, before a job waits hours for it, a rollout that its batches do not divide."""
    if recipes.on_policy(recipe.values):
        try:
            recipes.batches(recipe.name, recipe.values, num_envs or recipes.usual_envs(recipe.values))
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
        arguments: the user's arguments, appended to the letter; in those of their own program, and in the
            program itself, `{seed}`, `{total_steps}`, `{run_id}` and `{run_dir}` stand for what they name.
        overrides: recipe values as text, by name.
        unlock: recipe values that may be overridden.
        seed: of the run.
        wandb: where the run appears in W&B.
        run_id: also the stable W&B run id.
        run_dir: absolute path on the cluster; W&B writes below it.

    Raises:
        ConfigError, RecipeLockedError: as `choose_recipe`; a batch size that does not divide the rollout;
            overrides for a program without a recipe; or several GPUs that cannot share the run.
    """
    env = _environment(profile, wandb, run_id, run_dir)
    fixed = profile.program or own_program
    if fixed or profile.recipe is None:
        if overrides or unlock:
            raise ConfigError("--set and --unlock change a recipe, and this run trains none")
        if not fixed:
            raise ConfigError(f"profile {profile.name} names neither a recipe nor a program")
        own = {SEED: str(seed)} | ({TOTAL_STEPS: str(profile.total_steps)} if profile.total_steps else {})
        env = {**env, **own}
        template = (*fixed, *arguments)
        _no_secret(template)
        known = filled(template, env, run_id, run_dir)
        return Program(known, None, env, template if known != template else None)
    name, overrides, unlock = resolve(profile.recipe, overrides, unlock)
    recipe = choose_recipe(name, overrides, unlock)
    _check_batches(recipe, profile.num_envs)
    argv = [*_TRAIN, "--recipe", recipe.name, *train_options(profile, seed), *_ranks(profile, recipe)]
    for name, text in overrides.items():
        argv += ["--set", f"{name}={text}"]
    for name in unlock:
        argv += ["--unlock", name]
    _no_secret(arguments)
    document = {"name": recipe.name, "values": dict(recipe.values), "modified": dict(recipe.modified)}
    return Program((*argv, *arguments), document, env)


def _no_secret(argv: Sequence[str]) -> None:
    """Raises ConfigError where a program's arguments hold a secret."""
    if name := secret_argument(argv):
        raise ConfigError(
            f"{name} among the program's arguments looks like a secret: run.json and `ps` show it", hint=HINT
        )


def train_options(profile: Profile, seed: int) -> list[str]:
    """What a profile and a seed say of a training, as the trainer's options."""
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
    return [
        word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))
    ]


def filled(argv: Sequence[str], env: Mapping[str, str], run_id: str, run_dir: str) -> tuple[str, ...]:
    """The argv of a program of the user's own with the values of its run in their places.

    >>> filled(["--seed={seed}", "{run_dir}/logs", "{lr}"], {"CLUSTERKIT_SEED": "7"}, "a-1", "/r/a-1")
    ('--seed=7', '/r/a-1/logs', '{lr}')

    Args:
        argv: as it was written.
        env: of the program; it has the seed and the steps.
        run_id: of the run.
        run_dir: absolute path on the cluster.

    Raises:
        ConfigError: `{total_steps}` stands there, and the run has none.
    """
    known = {"seed": env.get(SEED), "total_steps": env.get(TOTAL_STEPS), "run_id": run_id, "run_dir": run_dir}
    for name, text in known.items():
        if text is None and has_place(argv, name):
            raise ConfigError(
                f"{{{name}}} stands among the program's arguments, and this run has no {name}",
                hint=f"give --{name.replace('_', '-')}, or set {name} in the profile",
            )
    return fill(argv, {name: text or "" for name, text in known.items()})


def keeps_seed(argv: Sequence[str], template: Sequence[str] | None) -> bool:
    """Whether the arguments of a program of the user's own are the same whatever the seed is."""
    return not trains(argv) and not has_place(template, "seed")


def _ranks(profile: Profile, recipe: recipes.Recipe) -> list[str]:
    """How many processes learn together, one a GPU, as the trainer's option; nothing for one.

    Raises:
        ConfigError: they cannot share the environments, the batch or the replay; or they would lie on several
            nodes, of which the job script knows nothing.
    """
    if profile.gpu_count < 2:
        return []
    nodes = profile.sbatch.get("nodes", profile.sbatch.get("N", 1))
    if str(nodes) != "1":
        raise ConfigError(
            f"profile {profile.name} asks for {nodes} nodes, and a training uses the GPUs of one",
            hint=f"{page('trainer.md')}, Several GPUs, shows how to start one on several nodes by hand",
        )
    try:
        recipes.check_shares(recipe, profile.num_envs, profile.gpu_count)
    except recipes.RecipeError as error:
        raise ConfigError(
            f"profile {profile.name}, learnt on {profile.gpu_count} GPUs: {error}",
            hint="change that, or take another number of GPUs, by `gpus` of the profile or --ranks of `plan`",
        ) from error
    return ["--ranks", str(profile.gpu_count)]


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


def with_steps(
    argv: Sequence[str], env: Mapping[str, str], template: Sequence[str] | None, steps: int
) -> tuple[list[str], dict[str, str]]:
    """Argv and environment of a run that is to make so many steps.

    The argv of a program of the user's own is still to be filled in.

    Raises:
        ConfigError: nothing tells the program of the user's own how many they are.
    """
    if trains(argv):
        return with_option(argv, "--total-steps", str(steps)), dict(env)
    if not has_place(template, "total_steps"):
        raise ConfigError(
            "--total-steps: the program of this run has no {total_steps} among its arguments",
            hint="leave it out; a run submitted with {total_steps} there can be given another number",
        )
    return list(argv), {**env, TOTAL_STEPS: str(steps)}


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
        if profile.gpu_count > 1 or option_of(argv, "--ranks"):
            changed = with_option(changed, "--ranks", str(max(profile.gpu_count, 1)))
    threads = {"OMP_NUM_THREADS": str(profile.threads), "MKL_NUM_THREADS": str(profile.threads)}
    graphics = {"MUJOCO_GL": profile.mujoco_gl} if profile.mujoco_gl else {}
    return changed, {**env, **threads, **graphics, **profile.env}
