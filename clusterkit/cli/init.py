"""`clusterkit init`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.asking import at_terminal
from clusterkit.cli import options
from clusterkit.cli.ui.console import note, print_document
from clusterkit.config.options import SCHEDULER
from clusterkit.errors import ConfigError
from clusterkit.project import without_plugins
from clusterkit.runtimes import BUILT_IN

if TYPE_CHECKING:
    from clusterkit.config.settings_file import Proposal


def init(
    host: Annotated[
        str | None,
        typer.Argument(metavar="HOST", help="Host as you type it after ssh; asked for if left out."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Name for the cluster; the host's name if left out."),
    ] = None,
    root: Annotated[
        str | None,
        typer.Option("--root", metavar="PATH", help="Folder on the cluster for images, code and runs."),
    ] = None,
    account: Annotated[
        str | None, typer.Option("--account", metavar="NAME", help=f"{SCHEDULER} account to charge.")
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option("--partition", metavar="NAME", help="Partition to use wherever it fits."),
    ] = None,
    container: Annotated[
        str | None,
        typer.Option(
            "--container",
            metavar="RUNTIME",
            help=f"Container runtime: {', '.join(BUILT_IN[:-1])} or {BUILT_IN[-1]}.",
        ),
    ] = None,
    image: Annotated[
        str | None, typer.Option("--image", metavar="FILE", help="Image on this machine.")
    ] = None,
    user: Annotated[
        bool,
        typer.Option("--user/--project", help="Write settings for all your projects, or for this one."),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Accept every suggestion instead of asking.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also overwrite existing settings, without asking.")
    ] = False,
    dry_run: options.DryRun = False,
    local: Annotated[
        bool, typer.Option("--local", help="Set up this machine only: no login, no cluster.")
    ] = False,
    program: Annotated[
        str | None,
        typer.Option(
            "--program", metavar="COMMAND", help='With --local: your program, e.g. "python train.py".'
        ),
    ] = None,
    trainer: Annotated[
        bool, typer.Option("--trainer", help="With --local: train with the bundled trainer instead.")
    ] = False,
    example: Annotated[
        str | None,
        typer.Option("--example", metavar="NAME", help="Write a ready-made description; no login."),
    ] = None,
    examples: Annotated[bool, typer.Option("--examples", help="List the ready-made descriptions.")] = False,
    accept_new: options.AcceptNew = False,
    ssh_config: Annotated[
        Path | None,
        typer.Option("--ssh-config", metavar="FILE", help="Use this file instead of ~/.ssh/config."),
    ] = None,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Inspect a cluster over one login and write its settings.

    Finds GPU types and how the site spells them, partitions, limits, account, container runtime and folders,
    and writes them with comments, along with small profiles that fit. Changes nothing on the cluster.

    With --local, it looks at this machine and for your program instead, without a login.

    Examples:
      # ask for a host from ~/.ssh/config
      clusterkit init
      # accept every suggestion
      clusterkit init uni --yes
      # show what would change, write nothing
      clusterkit init uni --dry-run
      # this machine only: your own program, no login
      clusterkit init --local

    See also: clusterkit doctor, clusterkit config, first-cluster.md
    """
    with without_plugins():
        from clusterkit.cli.ui import init as ui
        from clusterkit.commands import init as command
        from clusterkit.config import settings_file

    if examples:
        known = settings_file.examples()
        if as_json:
            print_document({"schema": 1, "examples": dict(known)})
        else:
            ui.show_examples(known)
        return
    file = settings_file.target(config, user=user)
    if example is not None:
        proposal = settings_file.from_example(example, file)
        _settle(proposal, yes=yes, force=force, dry_run=dry_run, as_json=as_json)
        return
    if local:
        _local(file, host, program, trainer, yes=yes, force=force, dry_run=dry_run, as_json=as_json)
        return
    if program is not None or trainer:
        option = "--trainer" if program is None else "--program"
        raise ConfigError(f"{option} goes with --local", hint="or write `program` below [project] yourself")
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
    note(f"inspecting {request.host} over one login")
    done = command.init(
        request,
        ask=accepting_new_hosts(ask_on_terminal) if accept_new else ask_on_terminal,
        choose=ui.take_first if yes else ui.choose if asks else ui.refuse,
    )
    ui.show_site(done)
    done.surveyor.check_usable(done.survey, request.host)
    if _settle(done, yes=yes, force=force, dry_run=dry_run, as_json=as_json) and not as_json:
        ui.show_next(done)


def _local(
    file: Path,
    host: str | None,
    program: str | None,
    trainer: bool,
    *,
    yes: bool,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    from clusterkit.cli.ui.init import choose, show_here, show_next_here
    from clusterkit.commands.init_local import init_local

    if host is not None:
        raise ConfigError(
            f"--local sets up this machine, but the host {host} was named",
            hint=f'`clusterkit init --local --program "{host}"`, if it is your program',
        )
    done = init_local(file, program, trainer=trainer, choose=choose if at_terminal() and not yes else None)
    show_here(done)
    written = _settle(done, yes=yes, force=force, dry_run=dry_run, as_json=as_json)
    if not as_json and (written or not (dry_run or done.changes)):
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


def _settle(proposal: Proposal, *, yes: bool, force: bool, dry_run: bool, as_json: bool) -> bool:
    """Shows the changes and writes them if the user agrees; returns whether they were written."""
    written = _write(proposal, yes=yes, force=force, dry_run=dry_run, shown=not as_json)
    if as_json:
        document = {"file": str(proposal.file), "diff": proposal.changes}
        print_document({"schema": 1, "carried_out": written, **document})
    return written


def _write(proposal: Proposal, *, yes: bool, force: bool, dry_run: bool, shown: bool) -> bool:
    from clusterkit.cli.ui import init as ui
    from clusterkit.config.settings_file import save

    if not proposal.changes:
        note("nothing to change: the settings are up to date")
        return False
    if shown and (proposal.old is not None or dry_run):
        ui.show_changes(proposal)
    if dry_run:
        return False
    if proposal.old is not None and not force and not (yes and proposal.only_adds):
        if yes or not at_terminal():
            raise ConfigError(
                f"{proposal.file} exists and would change as shown; nothing was written",
                hint="overwrite it with --force, or write to another file with --config FILE",
            )
        if not ui.confirmed(proposal):
            note("nothing was written")
            return False
    save(proposal)
    ui.show_saved(proposal)
    return True
