"""Builds a program's argv and environment from profile, recipe and arguments. Pure: no I/O."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from clusterkit.config.exposure import HINT, secret_argument
from clusterkit.errors import ConfigError

if TYPE_CHECKING:
    from clusterkit.config.models import Profile, Wandb

_TRAIN = ["python", "-m", "trainer", "train"]
SEED, TOTAL_STEPS = "CLUSTERKIT_SEED", "CLUSTERKIT_TOTAL_STEPS"
"""Environment variables that give a user's own program the seed and the number of steps."""
PREVIOUS = "CLUSTERKIT_PREVIOUS_RUN_DIR"
"""Environment variable with the run directory of the previous pipeline stage."""
_SWEPT_SEED = "CLUSTERKIT_SWEEP_SEED"
"""Environment variable that gives a user's own program a swept seed."""
# Only known names are placeholders. JSON and other braces stay unchanged, and so does `${name}`, a variable
# of a shell or of OmegaConf; `{{name}}` stands for a literal `{name}`.
_PLACE = re.compile(r"(?<!\$)(?:\{\{(?P<literal>[A-Za-z_][\w.-]*)\}\}|\{(?P<name>[A-Za-z_][\w.-]*)\})")
_INNERMOST = re.compile(r"(?<!\$)\{([A-Za-z_][\w.-]*)\}")
PLACES = ("seed", "total_steps", "run_id", "run_dir")
"""Placeholders that every own program has."""
_NAMES_TRAINER = re.compile(r"(?<!\S)-m\s+trainer(?![\w.-])")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Program:
    """What a run executes, independent of its run directory."""

    argv: tuple[str, ...]
    recipe: Mapping[str, Any] | None
    """`name`, `values` and `modified`; None if the run does not use the bundled trainer."""
    env: Mapping[str, str]
    has_places: bool = False
    """Whether `{seed}`, `{total_steps}`, `{run_id}` and `{run_dir}` in argv are placeholders."""
    home: str = ""
    """The run directory of the earlier run, which paths in `env` point into."""

    def placed(self, run_id: str, run_dir: str) -> tuple[tuple[str, ...], dict[str, str]]:
        """Returns argv and environment for a run directory, an absolute path on the cluster.

        Raises:
            ConfigError: the arguments contain `{total_steps}`, but the run has none.
        """
        env = {name: moved(value, self.home, run_dir) for name, value in self.env.items()}
        env = {"WANDB_RUN_ID": run_id, "WANDB_DIR": run_dir, **env}
        return (filled(self.argv, env, run_id, run_dir) if self.has_places else self.argv), env

    @property
    def total_steps(self) -> int | None:
        """Number of steps in the arguments or the environment; None if absent."""
        text = option_of(self.argv, "--total-steps") if trains(self.argv) else self.env.get(TOTAL_STEPS)
        return int(text) if text and text.isdigit() else None

    @property
    def keeps_seed(self) -> bool:
        """Whether the arguments do not depend on the seed."""
        return not trains(self.argv) and not (self.has_places and has_place(self.argv, "seed"))

    def replaced(self, name: str, value: str) -> str | None:
        """Returns the option and the value by which later arguments replace a value; None if none do.

        An option of the user's own program is recognized by the placeholder that it stands before.
        """
        if trains(self.argv):
            option = f"--{name.replace('_', '-')}"
            last = option_of(self.argv, option)
            return None if last in (None, value) else f"{option} {last}"
        for before, word, *later in (self.argv[place:] for place in range(len(self.argv) - 2)):
            option = before if word == f"{{{name}}}" else word.removesuffix(f"={{{name}}}")
            last = option_of(later, option)
            if last is not None and option != word and not has_place([last], name):
                return f"{option} {last}"
        return None

    def with_seed(self, seed: int) -> Program:
        """Returns the same program with another seed."""
        if trains(self.argv):
            return replace(self, argv=with_option(self.argv, "--seed", str(seed)))
        swept = {_SWEPT_SEED: str(seed)} if _SWEPT_SEED in self.env else {}
        return replace(self, env={**self.env, SEED: str(seed), **swept})

    def with_steps(self, steps: int) -> Program:
        """Returns the same program with another number of steps.

        Raises:
            ConfigError: the user's own program has no placeholder for the steps.
        """
        if trains(self.argv):
            return replace(self, argv=with_option(self.argv, "--total-steps", str(steps)))
        if not (self.has_places and has_place(self.argv, "total_steps")):
            raise ConfigError(
                "--total-steps: the program of this run has no {total_steps} among its arguments",
                hint="leave it out; only a run submitted with {total_steps} there can take another number",
            )
        return replace(self, env={**self.env, TOTAL_STEPS: str(steps)})

    def with_hardware(self, profile: Profile) -> Program:
        """Returns the same program on the hardware of another profile.

        A training run keeps its recipe, number of environments and precision, and thus its results.
        """
        changed = self.argv
        if trains(changed):
            options = {"--device": profile.device, "--threads": profile.threads, "--workers": profile.workers}
            for name, value in options.items():
                if value is not None:
                    changed = with_option(changed, name, str(value))
            if profile.ranks > 1 or option_of(changed, "--ranks"):
                changed = with_option(changed, "--ranks", str(profile.ranks))
        graphics = {"MUJOCO_GL": profile.mujoco_gl} if profile.mujoco_gl else {}
        return replace(self, argv=changed, env={**self.env, **_threads(profile), **graphics, **profile.env})


def variable_of(name: str) -> str:
    """Returns the environment variable that holds a swept value.

    >>> variable_of("model.lr")
    'CLUSTERKIT_SWEEP_MODEL_LR'
    """
    return f"CLUSTERKIT_SWEEP_{re.sub('[.-]', '_', name).upper()}"


def moved(value: str, old: str, new: str) -> str:
    """Replaces the folder `old` at the start of a path with `new`; returns other text unchanged."""
    return new + value[len(old) :] if old and (value == old or value.startswith(f"{old}/")) else value


def assignments(texts: Sequence[str], option: str) -> dict[str, str]:
    """Parses `name=value` options.

    Raises:
        ConfigError: a text does not have this form.
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
) -> Program:
    """Returns the program of a new run.

    Args:
        profile: hardware settings and the recipe's name.
        own_program: argv of the user's own program; None means the bundled trainer.
        arguments: the user's arguments, appended verbatim. The user's own program and its arguments may
            contain the placeholders `{seed}`, `{total_steps}`, `{run_id}` and `{run_dir}`.
        overrides: recipe values as text, by name.
        unlock: recipe values that may be overridden.
        seed: the run's seed.
        wandb: the run's W&B project.

    Raises:
        ConfigError, RecipeLockedError: as `choose_recipe`; or a batch size does not divide the rollout, a
            program without a recipe has overrides, or the GPUs cannot share the run.
    """
    env = _environment(profile, wandb)
    fixed = profile.program or own_program
    if fixed or profile.recipe is None:
        if overrides or unlock:
            raise ConfigError("--set and --unlock change a recipe, but this run does not use one")
        if not fixed:
            raise ConfigError(f"profile {profile.name} names neither a recipe nor a program")
        own = {SEED: str(seed)} | ({TOTAL_STEPS: str(profile.total_steps)} if profile.total_steps else {})
        env = {**env, **own}
        own_argv = (*fixed, *arguments)
        _no_secret(own_argv)
        check_places(own_argv, env)
        return Program(own_argv, None, env, has_places=True)
    from clusterkit.runs.recipe_names import check_batches, choose_recipe, ranks, resolve

    name, overrides, unlock = resolve(profile.recipe, overrides, unlock)
    recipe = choose_recipe(name, overrides, unlock)
    check_batches(recipe, profile.num_envs)
    argv = [*_TRAIN, "--recipe", recipe.name, *train_options(profile, seed), *ranks(profile, recipe)]
    for name, text in overrides.items():
        argv += ["--set", f"{name}={text}"]
    for name in unlock:
        argv += ["--unlock", name]
    _no_secret(arguments)
    return Program((*argv, *arguments), recipe.as_json(), env)


def _no_secret(argv: Sequence[str]) -> None:
    """Raises ConfigError if a program's arguments contain a secret."""
    if name := secret_argument(argv):
        raise ConfigError(
            f"{name} among the program's arguments looks like a secret: run.json and `ps` show it", hint=HINT
        )


def train_options(profile: Profile, seed: int) -> list[str]:
    """Returns a profile and a seed as options of the trainer."""
    options: dict[str, object] = {
        "total-steps": profile.total_steps,
        "num-envs": profile.num_envs,
        "seed": seed,
        "precision": profile.precision,
        "device": profile.device,
        "eval-every": profile.eval_every,
        "eval-episodes": profile.eval_episodes,
        "stop-at": profile.stop_at,
        "checkpoint-every": profile.checkpoint_every,
        "threads": profile.threads,
        "workers": profile.workers,
    }
    return [
        word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))
    ]


def fill(argv: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the arguments with the placeholders of the given names filled.

    >>> fill(["-s{seed}", "{lr}", "{{seed}}", "${seed}", '{"a": {"seed": {seed}}}'], {"seed": "7"})
    ('-s7', '{lr}', '{seed}', '${seed}', '{"a": {"seed": 7}}')
    """

    def written(match: re.Match[str]) -> str:
        if match["literal"] in values:
            return match[0][1:-1]
        return values.get(match["name"], match[0])

    return tuple(_PLACE.sub(written, text) for text in argv)


def literal(text: str, names: Collection[str]) -> str:
    """Returns text of which `fill` makes the given text again, if it fills some of these names.

    >>> literal('{lr} {{lr}} ${lr} ${{lr}} {x}', ["lr"])
    '{{lr}} {{{lr}}} ${lr} ${{{lr}}} {x}'
    """

    def doubled(match: re.Match[str]) -> str:
        return f"{{{match[0]}}}" if match[1] in names else match[0]

    return _INNERMOST.sub(doubled, text)


def has_place(argv: Sequence[str] | None, name: str) -> bool:
    """Returns whether the arguments contain the placeholder."""
    return any(match["name"] == name for text in argv or () for match in _PLACE.finditer(text))


def filled(argv: Sequence[str], env: Mapping[str, str], run_id: str, run_dir: str) -> tuple[str, ...]:
    """Returns the argv of a user's own program with its placeholders filled.

    >>> filled(["--seed={seed}", "{run_dir}/logs", "{lr}"], {"CLUSTERKIT_SEED": "7"}, "a-1", "/r/a-1")
    ('--seed=7', '/r/a-1/logs', '{lr}')

    Args:
        argv: the program and its arguments as the user wrote them.
        env: the program's environment, with the seed and the steps.
        run_id: the run's id.
        run_dir: the run directory, an absolute path on the cluster.

    Raises:
        ConfigError: the arguments contain `{total_steps}`, but the run has none.
    """
    check_places(argv, env)
    known = {"seed": "", "total_steps": "", **_of_environment(env)}
    return fill(argv, {**known, "run_id": run_id, "run_dir": run_dir})


def check_places(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Raises ConfigError if the arguments contain `{seed}` or `{total_steps}`, but the run has none."""
    known = _of_environment(env)
    for name in ("seed", "total_steps"):
        if name not in known and has_place(argv, name):
            raise ConfigError(
                f"{{{name}}} is among the program's arguments, but this run has no {name}",
                hint=f"give --{name.replace('_', '-')}, or set {name} in the profile",
            )


def _of_environment(env: Mapping[str, str]) -> dict[str, str]:
    places = {"seed": env.get(SEED), "total_steps": env.get(TOTAL_STEPS)}
    return {name: text for name, text in places.items() if text is not None}


def _threads(profile: Profile) -> dict[str, str]:
    """Returns what tells libraries how many threads they may take, if the profile says it."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if profile.threads is not None else ()
    return dict.fromkeys(names, str(profile.threads))


def _environment(profile: Profile, wandb: Wandb) -> dict[str, str]:
    env = {
        **_threads(profile),
        "PYTHONUNBUFFERED": "1",
        **wandb_environment(wandb),
        "WANDB_RESUME": "allow",
    }
    if profile.mujoco_gl:
        env["MUJOCO_GL"] = profile.mujoco_gl
    return {**env, **profile.env}


def wandb_environment(wandb: Wandb) -> dict[str, str]:
    """Returns the environment variables that tell the W&B client a run's mode, project and entity."""
    entity = {"WANDB_ENTITY": wandb.entity} if wandb.entity else {}
    return {"WANDB_MODE": wandb.mode, "WANDB_PROJECT": wandb.project, **entity}


def trains(argv: Sequence[str]) -> bool:
    """Returns whether an argv runs the bundled trainer."""
    return list(argv[:4]) == _TRAIN


def names_trainer(argv: Sequence[str]) -> bool:
    """Returns whether a program starts the bundled trainer, as torchrun or a shell may, too.

    Only such a program gets it: any other may import a `trainer` of its own.

    >>> names_trainer(["bash", "-c", "python -m trainer check"])
    True
    """
    return _NAMES_TRAINER.search(" ".join(argv)) is not None


def needs_trainer(profile: Profile, own_program: Sequence[str] | None) -> bool:
    """Returns whether runs of a profile use the bundled trainer; arguments as of `program`."""
    fixed = profile.program or own_program
    return names_trainer(fixed) if fixed else profile.recipe is not None


def option_of(argv: Sequence[str], name: str) -> str | None:
    """Returns the value of an option in an argv; the last occurrence, the user's own, wins."""
    found = None
    for here, after in zip(argv, [*argv[1:], None], strict=True):
        if here == name:
            found = after
        elif here.startswith(f"{name}="):
            found = here.partition("=")[2]
    return found


def with_option(argv: Sequence[str], name: str, value: str) -> tuple[str, ...]:
    """Returns the trainer's argv with an option replaced or added.

    >>> with_option(["python", "-m", "trainer", "train", "--seed", "1"], "--seed", "2")[4:]
    ('--seed', '2')
    """
    changed: list[str] = []
    arguments = iter(argv)
    for argument in arguments:
        if argument == name:
            next(arguments, None)
        elif not argument.startswith(f"{name}="):
            changed.append(argument)
    return (*changed, name, value)
