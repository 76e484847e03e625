"""`clusterkit init`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.asking import at_terminal
from clusterkit.cli.common import AcceptNewOption, ConfigOption, without_plugins
from clusterkit.cli.ui.console import note
from clusterkit.errors import ConfigError

if TYPE_CHECKING:
    from clusterkit.config.settings_file import Proposal


def init(
    host: Annotated[
        str | None,
        typer.Argument(metavar="HOST", help="As you type it after ssh; asked for if left out."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Name of the cluster; the host's if left out."),
    ] = None,
    root: Annotated[
        str | None, typer.Option("--root", metavar="PATH", help="Folder there for images, code and runs.")
    ] = None,
    account: Annotated[
        str | None, typer.Option("--account", metavar="NAME", help="Account that pays for the jobs.")
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option("--partition", metavar="NAME", help="Partition to use for all that it has."),
    ] = None,
    container: Annotated[
        str | None,
        typer.Option("--container", metavar="RUNTIME", help="apptainer, singularity or none."),
    ] = None,
    image: Annotated[
        str | None, typer.Option("--image", metavar="FILE", help="The image on this machine, a .sif.")
    ] = None,
    user: Annotated[
        bool,
        typer.Option("--user/--project", help="For all your projects; or for this one, as if left out."),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Take what is suggested instead of asking.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Change what is there already without asking.")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show what would change; write nothing.")] = False,
    local: Annotated[
        bool, typer.Option("--local", help="For this machine alone: no login, no cluster.")
    ] = False,
    program: Annotated[
        str | None,
        typer.Option(
            "--program", metavar="COMMAND", help='With --local: your own program, e.g. "python train.py".'
        ),
    ] = None,
    example: Annotated[
        str | None,
        typer.Option("--example", metavar="NAME", help="Take a ready-made description; no login."),
    ] = None,
    examples: Annotated[bool, typer.Option("--examples", help="List the ready-made descriptions.")] = False,
    accept_new: AcceptNewOption = False,
    ssh_config: Annotated[
        Path | None,
        typer.Option("--ssh-config", metavar="FILE", help="Use this instead of ~/.ssh/config."),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Look at a cluster over one login and write its settings.

    With --local it looks at this machine and for your program instead, and logs in nowhere.

    GPU types and how the site spells them, partitions, limits, account, container, folders: all with
    comments, and small profiles that fit. Nothing changes on the cluster.
    """
    with without_plugins():
        from clusterkit.cli.ui import init as ui
        from clusterkit.commands import init as command
        from clusterkit.config import settings_file

    if examples:
        ui.show_examples(settings_file.examples())
        return
    file = settings_file.target(config, user=user)
    if example is not None:
        _settle(settings_file.from_example(example, file), yes=yes, force=force, diff=diff)
        return
    if local:
        _local(file, host, program, yes=yes, force=force, diff=diff)
        return
    if program is not None:
        raise ConfigError("--program goes with --local", hint="or write `program` below [project] yourself")
    from clusterkit.transport.questions import accepting_new_hosts, ask_on_terminal

    asks = at_terminal() and not yes
    request = command.InitRequest(
        host=host or _host(ssh_config, asks=asks),
        file=file,
        name=name,
        root=root,
        account=account,
        partition=partition,
        container=container,
        image=image,
        ssh_config=ssh_config and ssh_config.resolve(),
    )
    note(f"looking at {request.host}, over one login")
    done = command.init(
        request,
        ask=accepting_new_hosts(ask_on_terminal) if accept_new else ask_on_terminal,
        choose=ui.take_first if yes else ui.choose if asks else ui.refuse,
    )
    ui.show_site(done)
    done.surveyor.check_usable(done.survey, request.host)
    if _settle(done, yes=yes, force=force, diff=diff):
        ui.show_next(done)


def _local(file: Path, host: str | None, program: str | None, *, yes: bool, force: bool, diff: bool) -> None:
    from clusterkit.cli.ui.init import show_here, show_next_here
    from clusterkit.commands.init_local import init_local

    if host is not None:
        raise ConfigError(
            f"--local is this machine, and {host} was named, too",
            hint=f'`clusterkit init --local --program "{host}"`, if it is your program',
        )
    done = init_local(file, program)
    show_here(done)
    if _settle(done, yes=yes, force=force, diff=diff) or not (diff or done.changes):
        show_next_here(done)


def _host(ssh_config: Path | None, *, asks: bool) -> str:
    """Asks the user for a host."""
    from clusterkit.cli.ui.init import choose_host
    from clusterkit.transport.hosts import configured_hosts

    hosts = configured_hosts(ssh_config)
    if not asks:
        known = f"; your ssh configuration has: {', '.join(hosts[:20])}" if hosts else ""
        raise ConfigError(
            "no host was named", hint=f"name it as you type it after ssh: `clusterkit init HOST`{known}"
        )
    return choose_host(hosts)


def _settle(proposal: Proposal, *, yes: bool, force: bool, diff: bool) -> bool:
    """Shows the changes and writes them if the user agrees; returns whether they were written."""
    from clusterkit.cli.ui import init as ui
    from clusterkit.config.settings_file import save

    if not proposal.changes:
        note("nothing to change: the settings are up to date")
        return False
    if proposal.old is not None or diff:
        ui.show_changes(proposal)
    if diff:
        return False
    if proposal.old is not None and not force and not (yes and proposal.only_adds):
        if yes or not at_terminal():
            raise ConfigError(
                f"{proposal.file} is there, and would change as shown; nothing was written",
                hint="write it all the same with --force, or to another file with --config FILE",
            )
        if not ui.confirmed(proposal):
            note("nothing was written")
            return False
    save(proposal)
    ui.show_saved(proposal)
    return True
