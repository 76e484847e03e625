"""Options of the scheduler as users write them: names, those that are not theirs to set, secrets. Pure.

These words are Slurm's. Settings hold its options, and other schedulers read what they know of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from clusterkit.config.exposure import HINT, assigned_secret, names_secret
from clusterkit.errors import ConfigError

SCHEDULER = "Slurm"
NATIVE = "sbatch"
"""The command whose options they are, and the table of settings that holds them."""
NATIVE_OPTION = f"--{NATIVE}"
"""The option of commands that hands an option to the scheduler."""
GPU_REQUEST = "--gres=gpu:{type}:{count}"
"""The usual request for GPUs."""
SHOWN = f"{SCHEDULER} shows the options of a job to others"
_LONG = re.compile(r"[a-z][a-z0-9-]+")
_SHORT = {
    "A": "account", "C": "constraint", "D": "chdir", "G": "gpus", "H": "hold", "J": "job-name",
    "L": "licenses", "M": "clusters", "N": "nodes", "S": "core-spec", "W": "wait", "a": "array", "b": "begin",
    "c": "cpus-per-task", "d": "dependency", "e": "error", "i": "input", "m": "distribution", "n": "ntasks",
    "o": "output", "p": "partition", "q": "qos", "s": "oversubscribe", "t": "time", "w": "nodelist",
    "x": "exclude",
}  # fmt: skip
"""sbatch's one-letter options (man sbatch)."""
_PROTECTED = {
    "job-name": "clusterkit names the job after the run",
    "output": "the log is in the run directory, where `logs` and `sync-results` look",
    "error": "the log is in the run directory, where `logs` and `sync-results` look",
    "open-mode": "a requeued run appends to its log",
    "chdir": "the job starts in its run directory",
    "wrap": "the job script is clusterkit's own",
    "array": "one run is one job; submit one run for each seed",
    "parsable": f"clusterkit reads the job id from {NATIVE}'s answer",
    "quiet": f"clusterkit reads the job id from {NATIVE}'s answer",
    "wait": "submit does not wait for the job; `clusterkit status` follows it",
    "test-only": "nothing would be submitted; `clusterkit submit --dry-run` shows the request",
}
_RIVALS = (("mem", "mem-per-cpu", "mem-per-gpu"), ("requeue", "no-requeue"))


def long_name(written: str) -> str:
    """The long name without dashes of "mail-user", "mail_user", "--mail-user" or "p".

    Raises:
        ValueError: it is no option's name, or clusterkit sets that option itself.
    """
    name = written.removeprefix("--").removeprefix("-")
    name = _SHORT.get(name, name.replace("_", "-"))
    if not _LONG.fullmatch(name):
        raise ValueError(f'{written!r} is not an {NATIVE} option; write its long name, e.g. "mail-user"')
    if reason := _PROTECTED.get(name):
        raise ValueError(f"--{name} cannot be set: {reason}")
    return name


def parse_options(texts: Sequence[str]) -> dict[str, str | int | bool]:
    """The options of a command line by long name, a flag as True.

    Args:
        texts: "--name=value" and "--flag".

    Raises:
        ConfigError: a text is not of that form, or not an option one may set.
    """
    table: dict[str, str | int | bool] = {}
    for text in texts:
        written, equals, value = text.partition("=")
        if not written.startswith("--") or (equals and not value) or not text.isprintable():
            raise ConfigError(
                f"{text!r} is not an {NATIVE} option", hint="write --name=value, or --name for a flag"
            )
        try:
            table[long_name(written)] = value if equals else True
        except ValueError as error:
            raise ConfigError(f"command line: {error}", hint="leave it out") from None
    return table


def refuse_secrets(options: Iterable[str]) -> None:
    """Raises ConfigError where the value of an option looks like a secret: others can read them."""
    for option in options:
        name, _, value = option.partition("=")
        passed = (part.partition("=")[0] for part in value.split(",")) if name == "--export" else ()
        if secret := assigned_secret(value) or next(filter(names_secret, passed), None):
            raise ConfigError(
                f"{name}: {secret} looks like a secret, and {SHOWN}",
                hint=HINT,
            )


def names_of(options: Iterable[str]) -> frozenset[str]:
    """The long names of "--name=value" and "--flag" texts; what is none, or not to be set, stays as it is.

    >>> sorted(names_of(["--c=4", "--mail_user=me", "--exclusive"]))
    ['cpus-per-task', 'exclusive', 'mail-user']
    """
    names = set()
    for option in options:
        written = option.partition("=")[0]
        try:
            names.add(long_name(written))
        except ValueError:
            names.add(written.lstrip("-"))
    return frozenset(names)


def rivals(name: str) -> tuple[str, ...]:
    """Options that sbatch does not take beside this one."""
    group = next((group for group in _RIVALS if name in group), ())
    return tuple(other for other in group if other != name)


def native_words(texts: list[str] | None) -> tuple[str, ...]:
    """Normalizes `--sbatch` values, given with or without leading dashes, to `--name=value`."""
    return tuple(text if text.startswith("-") else f"--{text}" for text in texts or ())
