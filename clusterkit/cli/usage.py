"""Turns what click says of a wrong command line into an error of ours: a cause and the next step."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Sequence
from typing import Any

from clusterkit.config.options import NATIVE_OPTION
from clusterkit.errors import ClusterkitError

_OF_THE_PROFILE = {
    "--gpu": "gpu",
    "--gpus": "gpus",
    "--cpus": "cpus",
    "--memory": "memory",
    "--mem": "memory",
}
_OF_THE_CLUSTER = {"--partition": "partition", "--account": "account", "--qos": "qos"}
"""Options that people expect -> the setting that says it."""
_NATIVE = {"gpus": "gpus=1", "cpus": "cpus-per-task=8", "memory": "mem=32G"}
_REMOVED = {
    "--compare": "`clusterkit plan` for each profile or cluster",
    "command 'work'": "`clusterkit ssh-config`, then rsync, sftp or an editor",
}
"""What an error of click names that once was -> what to use instead of it."""
_ALIKE = 0.75
_VALUE = re.compile(r"Invalid value for '([^']*)': (?:Value error, )?(.)", re.DOTALL)


class CommandLineError(ClusterkitError):
    """The command line is wrong. Nothing was done."""

    exit_code = 2


def usage_error(error: Any, words: Sequence[str]) -> CommandLineError:
    """Returns the error to show.

    Args:
        error: click's, whichever of its copies Typer uses.
        words: the command line without the program's name.
    """
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "clusterkit"
    removed = next((use for named, use in _REMOVED.items() if named in error.format_message()), "")
    if hasattr(error, "possibilities"):
        instead = _instead(error.option_name, context.command, words) if context else ""
        cause = f"`{path}` has no option {error.option_name}"
        return CommandLineError(cause, hint=removed or instead or f"`{path} -h` shows its options")
    said = _VALUE.sub(lambda found: f"{found[1]}: {found[2].lower()}", error.format_message())
    said = said.removesuffix(".").partition(", unable to parse")[0]
    return CommandLineError(
        f"{said[:1].lower()}{said[1:]}", hint=removed or f"`{path} -h` shows what it takes"
    )


def _instead(option: str, command: Any, words: Sequence[str]) -> str:
    """Returns what to write in place of an option that a command does not have; "" if nothing is close."""
    known = {name: each for each in command.params for name in (*each.opts, *each.secondary_opts)}
    if key := "--profile" in known and _OF_THE_PROFILE.get(option):
        once = f"; or once, for a cluster: `{NATIVE_OPTION} {_NATIVE[key]}`" if key in _NATIVE else ""
        return f"set `{key}` in [profiles.NAME] of clusterkit.toml{once if NATIVE_OPTION in known else ''}"
    if key := NATIVE_OPTION in known and _OF_THE_CLUSTER.get(option):
        return f"set `{key}` in [clusters.NAME] of clusterkit.toml; or once: `{NATIVE_OPTION} {key}=NAME`"
    if close := difflib.get_close_matches(option, known, n=1, cutoff=_ALIKE):
        return f"did you mean {close[0]}?"
    if not any((each.metavar or "").startswith("-- ") for each in command.params):
        return ""
    return f"an option of your program stands after `--`: `{_with_arguments_last(known, words)}`"


def _with_arguments_last(known: dict[str, Any], words: Sequence[str]) -> str:
    """Returns the command line with the options that the command does not know behind `--`."""
    at = words.index("--") if "--" in words else len(words)
    own: list[str] = []
    programs: list[str] = []
    to, follows = own, False
    for word in words[:at]:
        name = word.partition("=")[0]
        if word.startswith("-"):
            to = own if name in known else programs
            follows = name == word and not (name in known and known[name].is_flag)
        elif follows:
            follows = False
        else:
            to = own
        to.append(word)
    return shlex.join(["clusterkit", *own, "--", *programs, *words[at + 1 :]])
