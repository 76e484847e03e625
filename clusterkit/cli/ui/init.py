"""The questions and output of init: hosts to choose from, the site, changes to the file, next commands."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from clusterkit.asking import agree, ask
from clusterkit.backends.survey import Choice
from clusterkit.cli.ui.console import err, note, out
from clusterkit.cli.ui.lines import plain_table
from clusterkit.config.layers import display_path
from clusterkit.environments.environment import find_file
from clusterkit.errors import ConfigError
from clusterkit.hardware import machine_name
from clusterkit.submit.own_program import OUTPUT
from clusterkit.units import format_bytes, format_duration

if TYPE_CHECKING:
    from clusterkit.commands.init import Described
    from clusterkit.commands.init_local import Local
    from clusterkit.config.settings_file import Proposal

_MOST_HOSTS = 30


def choose_host(hosts: Sequence[str]) -> str:
    """Asks for a host and lists those of the ssh configuration; the user can also type another one."""
    for number, host in enumerate(hosts[:_MOST_HOSTS], 1):
        err.print(Text.assemble((f"{number:>3}  ", "bold"), host))
    first = f" [1 to {min(len(hosts), _MOST_HOSTS)}, or as you type it after ssh]" if hosts else ""
    while True:
        said = ask(f"Which host?{first}{':' if first else ''}").strip()
        if said.isdecimal() and 1 <= int(said) <= len(hosts):
            return hosts[int(said) - 1]
        if said and not said.isdecimal():
            return said


def choose(choice: Choice) -> str:
    """Asks the user at the terminal; an empty answer selects the first option."""
    err.print(Text(choice.question, "bold"))
    widest = max(len(option.value) for option in choice.options)
    for number, option in enumerate(choice.options, 1):
        line = Text.assemble((f"{number:>3}  ", "bold"), f"{option.value:<{widest}}  ", (option.about, "dim"))
        err.print(line, soft_wrap=True)
    names = [option.value for option in choice.options]
    free = choice.flag == "--root"
    while True:
        said = ask(f"1 to {len(names)}{', or another path' if free else ''} [1]:").strip()
        if not said:
            return names[0]
        if said.isdecimal() and 1 <= int(said) <= len(names):
            return names[int(said) - 1]
        if said in names or (free and said.startswith(("/", "~", "$"))):
            return said


def take_first(choice: Choice) -> str:
    """Returns the suggested answer and prints it on one line."""
    note(f"{choice.flag} {choice.options[0].value}, the first of {len(choice.options)}")
    return choice.options[0].value


def refuse(choice: Choice) -> str:
    """Rejects the question with a ConfigError: there is no terminal, and --yes was not given."""
    values = ", ".join(option.value for option in choice.options)
    raise ConfigError(
        f"{choice.question} There are: {values}",
        hint=f"set it with {choice.flag}, or accept the suggestion with --yes",
    )


def confirmed(proposal: Proposal) -> bool:
    """Asks whether to write the changes that were shown."""
    return agree(f"Write {display_path(proposal.file)}?")


def show_examples(examples: Mapping[str, str]) -> None:
    """Prints one line per ready-made description."""
    widest = max(map(len, examples))
    for name, about in examples.items():
        out.print(Text.assemble((f"{name:<{widest}}  ", "bold"), about), soft_wrap=True)


def show_changes(proposal: Proposal) -> None:
    """Prints a unified diff, coloured on a terminal."""
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for number, line in enumerate(proposal.changes):
        style = "bold" if number < 2 else styles.get(line[:1], "")
        out.print(Text(line, style=style), soft_wrap=True)


def show_site(done: Described) -> None:
    """Prints what was found: where each GPU type is, where files go, what is missing."""
    survey = done.survey
    runtime = next(
        (f"{one.name} {one.version or ''}".strip() for one in survey.runtimes), "no container runtime"
    )
    found = [survey.scheduler, runtime]
    if survey.login_shell:
        found.append("on a login shell's PATH")
    err.print(Text.assemble((done.name, "bold"), f"  {survey.host_name}: {', '.join(found)}"), soft_wrap=True)
    if done.draft.gpus:
        err.print(_gpus(done))
    missing = Table.grid(padding=(0, 1, 0, 0))
    for one in done.draft.missing:
        missing.add_row(Text("missing:", style="bold yellow"), Text(one.what))
        missing.add_row(Text("do:", style="bold"), Text(one.do))
    if done.draft.missing:
        err.print(missing)
    if survey.silent:
        note(f"no answer in time: {', '.join(survey.silent)}")


def show_saved(proposal: Proposal) -> None:
    """Prints which file was written."""
    done = "wrote" if proposal.old is None else "changed"
    err.print(Text.assemble(f"{done} ", (display_path(proposal.file), "bold")), soft_wrap=True)


def show_next(done: Described) -> None:
    """Prints the next commands if the site is ready for them."""
    if not done.survey.ready:
        return
    cluster = done.settings.cluster(done.name)
    at = "" if done.settings.project.default_cluster == done.name else f" --cluster {done.name}"
    words = []
    if done.questions:
        words.append((f"clusterkit login {done.name}", "one login for the day"))
    if cluster.image is not None and cluster.runtime.builds and not cluster.image_files:
        here = machine_name(platform.machine())
        fits = not cluster.arch or {here, "any"}.intersection(cluster.arch.values())
        made = display_path(Path(str(cluster.image).replace("{arch}", here)))
        words.append((f"clusterkit build {made if fits else f'--cluster {done.name}'}", "the image, once"))
    if not done.settings.of_project:
        words.append(("clusterkit init --local", "in your project's folder, once"))
    words.append((f"clusterkit deploy{at}", "image and code" if cluster.image else "the code"))
    project = done.settings.project
    profiles = [table.key[-1] for table in done.draft.profiles]
    first = "the first run" if project.program else "the first run: container and GPU"
    for profile in profiles[:1]:
        words.append((f"clusterkit doctor{at} --profile {profile}", "everything from here to a node"))
        words.append((f"clusterkit submit{at} --profile {profile}", first))
    if project.program and not project.environment and (file := find_file(done.settings.project_dir)):
        note(f'environment = "{file}" in [project] builds what the program needs there, once')
    _show_commands(words)


def _show_commands(words: Sequence[tuple[str, str]]) -> None:
    widest = max(len(command) for command, _ in words)
    for number, (command, about) in enumerate(words):
        start = "next:" if number == 0 else "     "
        err.print(Text.assemble((start, "bold"), f"  {command:<{widest}}  ", (about, "dim")), soft_wrap=True)


def show_here(done: Local) -> None:
    """Prints this machine's resources and the program to run."""
    err.print(Text.assemble(("this machine", "bold"), f"  {done.machine}"), soft_wrap=True)
    own = done.settings.project.program
    words = shlex.join(own) if own else "the bundled trainer"
    err.print(Text.assemble(("program", "bold"), f"  {words}"), soft_wrap=True)
    if own and any(OUTPUT in word for word in own):
        note(f"it writes to {OUTPUT}, which `clusterkit sync-results` brings home")


def show_next_here(done: Local) -> None:
    """Prints the next commands for this machine."""
    at = "" if done.settings.project.default_cluster == "local" else " --cluster local"
    _show_commands(
        [
            (f"clusterkit plan{at}", "does it fit this machine?"),
            (f"clusterkit submit{at}", "the first run, in the background; `-- ARGUMENTS` for the program"),
            ("clusterkit status", "where it is; `clusterkit logs last --follow`"),
        ]
    )


def _gpus(done: Described) -> Table:
    numbers = ("nodes", "each", "memory", "cpus", "at most")
    table = plain_table("gpu", "partition", *numbers, "asked for as", right=numbers, fold=("asked for as",))
    gpus = done.settings.cluster(done.name).gpus
    for one in done.draft.gpus:
        setting = gpus[one.name]
        memory = "?" if setting.memory is None else format_bytes(setting.memory)
        words = [setting.request.format(type=one.name, count="N")]
        words += [
            f"--{key}={value}" for key in ("account", "qos", "constraint") if (value := getattr(setting, key))
        ]
        table.add_row(
            Text(one.name, style="bold"),
            Text(one.partition),
            str(one.nodes),
            str(one.per_node),
            memory,
            str(one.cpus),
            format_duration(one.limit) if one.limit else "-",
            Text(" ".join(words)),
        )
    return table
