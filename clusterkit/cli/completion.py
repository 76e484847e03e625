"""`clusterkit completion`, and the responses to the scripts that it prints.

A script passes the line up to the cursor in `_CLUSTERKIT_LINE` and the shell's name in `_CLUSTERKIT_SHELL`.
The first line of the response is `words`, `beginnings` (append no space) or `files` (the shell completes them
itself); every other line is a value, followed by a tab and its description if it has one.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from clusterkit import folders
from clusterkit.cli.catalogue import SHORT, children
from clusterkit.cli.complete import FILES, Candidate, ProjectFolder, project, values_of
from clusterkit.errors import ClusterkitError, ConfigError


class Shell(StrEnum):
    """The supported shells."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[
        Shell | None, typer.Argument(metavar="bash|zsh|fish", help="Shell; yours if left out.")
    ] = None,
    install: Annotated[
        bool, typer.Option("--install", help="Install it for your user and print what was written.")
    ] = False,
) -> None:
    """Print or install completion for your shell.

    Completes commands, options, run ids, groups, profiles, clusters, tasks and checkpoints, without asking
    any cluster.

    Examples:
      clusterkit completion --install  # for your shell
      clusterkit completion zsh        # print the script for zsh

    See also: commands.md
    """
    from clusterkit.cli.ui.console import note
    from clusterkit.resources import TEMPLATES

    chosen = shell or _own_shell()
    text = (TEMPLATES / "completion" / f"clusterkit.{chosen}").read_text(encoding="utf-8")
    if not install:
        typer.echo(text, nl=False)
        return
    for line in _install(chosen, text):
        note(line)
    note("it takes effect in new shells")


def _own_shell() -> Shell:
    name = Path(os.environ.get("SHELL", "")).name
    try:
        return Shell(name)
    except ValueError:
        raise ConfigError(
            f"there is no completion for your shell, {name or 'which $SHELL does not name'}",
            hint="name one: `clusterkit completion bash`, `zsh` or `fish`",
        ) from None


def _install(shell: Shell, text: str) -> list[str]:
    """Writes the script, and for bash and zsh the line that loads it; returns what to report.

    Raises:
        ClusterkitError: a file cannot be written, or the home folder is unknown.
    """
    home = folders.home()
    if home is None:
        raise ClusterkitError(
            "your home folder is not known", hint="set HOME, or load what is printed without --install"
        )
    if shell is Shell.FISH:
        base = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        return [_write(base / "fish" / "completions" / "clusterkit.fish", text)]
    base = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    script = base / "clusterkit" / f"completion.{shell}"
    rc = home / ".bashrc" if shell is Shell.BASH else Path(os.environ.get("ZDOTDIR") or home) / ".zshrc"
    told, line = _write(script, text), f"[ -r {shlex.quote(str(script))} ] && . {shlex.quote(str(script))}"
    try:
        before = rc.read_text(encoding="utf-8", errors="surrogateescape") if rc.exists() else ""
        if line in before.splitlines():
            return [told, f"{rc}: loads it already"]
        with rc.open("a", encoding="utf-8") as file:
            file.write(f"{'' if before.endswith(chr(10)) or not before else chr(10)}{line}\n")
    except OSError as error:
        raise ClusterkitError(
            f"{rc}: cannot be written: {error.strerror}", hint=f"add this line to it yourself: {line}"
        ) from error
    return [told, f"{rc}: added the line that loads it"]


def _write(file: Path, text: str) -> str:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ClusterkitError(
            f"{file}: cannot be written: {error.strerror}",
            hint="`clusterkit completion` prints the script; load it from a file of your own",
        ) from error
    return f"{file}: written"


def words_of(line: str) -> list[str]:
    """Splits a line up to the cursor into words; the last one, possibly empty, is being completed."""
    for closed in (line, f"{line}'", f'{line}"'):
        try:
            words = shlex.split(closed)
        except ValueError:
            continue
        return [*words, ""] if closed is line and line[-1:].isspace() else words or [""]
    return [""]


def answer(group: Any, line: str, shell: str) -> str:
    """Builds the response to a script printed by `clusterkit completion`.

    Args:
        group: the click group; it is untyped because Typer may bundle its own click or use the installed one.
        line: the line up to the cursor.
        shell: the shell's name; bash completes only what follows the last `=` or `:` of a word.
    """
    kind, found, start = _complete(group, words_of(line))
    if shell == Shell.FISH:
        cut = 0
    elif shell == Shell.BASH:
        cut = max(start.rfind("="), start.rfind(":")) + 1
    else:
        cut = start.find("=") + 1 if start.startswith("-") else 0
    if found and all(value.endswith(("=", ":", "/")) for value, _ in found):
        kind = "beginnings"
    lines = [f"{value[cut:]}\t{about}" if about else value[cut:] for value, about in found]
    return "\n".join([kind, *lines])


def _complete(group: Any, words: list[str]) -> tuple[str, list[Candidate], str]:
    """Returns the kind, the candidates as whole words, and the word they complete."""
    *before, start = words[1:] or [""]
    config, before = (before[:2], before[2:]) if before[:1] == ["--config"] else ([], before)
    if config == ["--config"]:
        return "files", [], start
    command, path = group, ""
    while hasattr(command, "commands"):  # a group of commands
        word = next((word for word in before if not word.startswith("-")), None)
        if word is None:
            named = [(word, SHORT[name]) for word, name in children(path).items()]
            options = _options(command.params) if start.startswith("-") else named
            return "words", _fitting(start, options), start
        if word not in command.commands:
            return "words", [], start
        command, path = command.commands[word], f"{path} {word}".strip()
        before = before[before.index(word) + 1 :]
    kind, found = _words_of_command(command, [*config, *before], start)
    return kind, found, start


def _words_of_command(command: Any, before: list[str], start: str) -> tuple[str, list[Candidate]]:
    if "--" in before:
        return "files", []
    flags = [param for param in command.params if param.param_type_name == "option"]
    options = {name: param for param in flags for name in (*param.opts, *param.secondary_opts)}
    waiting = options.get(before[-1]) if before else None
    if waiting is not None and waiting.is_flag:
        waiting = None
    context = command.context_class(command, resilient_parsing=True)
    # Only the parser: what converts the values to their types takes longer to import than all else here.
    values, _, order = command.make_parser(context).parse_args(before[:-1] if waiting else [*before])
    given = [param for param in order if isinstance(values.get(param.name), (str, tuple, list, bool))]
    at = project(values.get("config"), before)
    if start.startswith("--") and "=" in start:
        name, _, value = start.partition("=")
        kind, found = _values(options[name], at, value) if name in options else ("words", [])
        return kind, [(f"{name}={text}", about) for text, about in found]
    if waiting is not None:
        return _values(waiting, at, start)
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    place = next((param for param in arguments if param.nargs == -1 or param not in given), None)
    if place is not None and not start.startswith("-") and not (place.metavar or "").startswith("--"):
        kind, found = _values(place, at, start)
        if kind == "files":
            return kind, found
        found = [candidate for candidate in found if candidate[0] not in before]
        if found or start:
            return ("files", []) if not found and "/" in start else (kind, found)
    return "words", _fitting(start, _options(command.params, given))


def _values(param: Any, at: ProjectFolder, start: str) -> tuple[str, list[Candidate]]:
    metavar = param.metavar or ""
    if metavar in FILES:
        return "files", []
    long = next((name for name in param.opts if name.startswith("--")), "")
    head = start[: start.rfind(",") + 1] if metavar == "STATE" else ""  # a comma-separated list
    return "words", _fitting(start, [(head + value, about) for value, about in values_of(long, metavar, at)])


def _options(params: Sequence[Any], given: Sequence[Any] = ()) -> list[Candidate]:
    """Lists the long names of the options that may still be given."""
    return [
        (name, param.help or "")
        for param in params
        if param.param_type_name == "option" and not param.hidden
        if param.multiple or param not in given
        for name in (*param.opts, *param.secondary_opts)
        if name.startswith("--")
    ] + [("--help", "")]


def _fitting(start: str, found: list[Candidate]) -> list[Candidate]:
    return [one for one in found if one[0].startswith(start)]
