"""`clusterkit storage prune`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.asking import agree
from clusterkit.cli import options
from clusterkit.cli.ui.console import err, note, out, print_document, transfer_bar
from clusterkit.errors import ConfigError
from clusterkit.project import load, open_ledger
from clusterkit.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

    from clusterkit.commands.storage import Garbage, Rubbish


def storage_prune(
    cluster: options.Cluster = None,
    ended: Annotated[bool, typer.Option("--ended", help="Also what only ended runs used.")] = False,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Remove images, snapshots and environments that no run uses.

    Keeps what a waiting or running run uses, what this project deploys, and images that others may read.
    Asks first.

    Examples:
      # what would be removed
      clusterkit storage prune --dry-run
      # also what only ended runs used; asks first
      clusterkit storage prune --ended

    See also: clusterkit storage list, clusterkit storage clean, images.md
    """
    from clusterkit.commands.storage import prune as command

    settings = load(config)
    agrees = ask_first(err if as_json else out, dry_run=dry_run, yes=yes)
    with open_ledger(settings, only_reads=dry_run) as ledger:
        done = command(settings.cluster(cluster), ledger, ended=ended, agrees=agrees, bar=transfer_bar)
    (print_json if as_json else show_pruned)(done)


def may_remove(command: str, size: int, where: str, *, dry_run: bool, yes: bool) -> bool:
    """Returns whether the listed items may be removed.

    Args:
        command: the name of the command that asks.
        size: bytes that would be freed.
        where: the names of the clusters.
        dry_run: only report what would happen.
        yes: the user already agreed, with --yes.

    Raises:
        ConfigError: --yes was not given, and there is no terminal to ask on.
    """
    if dry_run:
        note(f"would free {format_bytes(size)} on {where}; nothing was removed")
        return False
    if yes:
        return True
    if not sys.stdin.isatty():
        cause = f"{command} asks before it removes anything, but there is no terminal"
        raise ConfigError(cause, hint="use --yes or --dry-run")
    agreed = agree(f"Remove this on {where} and free {format_bytes(size)}?")
    if not agreed:
        note("nothing was removed")
    return agreed


def ask_first(to: Console, *, dry_run: bool, yes: bool) -> Callable[[str, Rubbish], bool]:
    """Returns a callback that shows what was found, on `to`, and asks whether to remove it."""

    def agrees(cluster: str, rubbish: Rubbish) -> bool:
        for image in rubbish.images:
            why = "damaged" if image.damaged else "no run uses it"
            to.print(f"  image     {image.digest[:12]}  {format_bytes(image.bytes)}  {why}")
        for name in rubbish.snapshots:
            to.print(f"  snapshot  {name[:12]}")
        for name, size in rubbish.environments.items():
            to.print(f"  environment  {name[:12]}  {format_bytes(size)}")
        for kind, name in rubbish.left_over:
            to.print(f"  upload    {name} ({kind}), interrupted", soft_wrap=True)
        _say_what_stays(rubbish)
        return may_remove("storage prune", rubbish.bytes, cluster, dry_run=dry_run, yes=yes)

    return agrees


def _say_what_stays(rubbish: Rubbish) -> None:
    """Lists what no run in sight uses and stays nevertheless, with the reason and the next step."""
    for image in rubbish.kept_images:
        why = "others may use it" if image.shared else "a work root that uses the store cannot be read"
        note(f"stays: image {image.digest[:12]} ({format_bytes(image.bytes)}): {why}")
    if any(image.shared for image in rubbish.kept_images):
        note("ask those who may read the images; what nobody needs you can remove there:")
        names = (image.name for image in rubbish.kept_images if image.shared)
        note(f"  cd {shlex.quote(rubbish.store)} && rm -f {' '.join(names)}")
    for link, root in rubbish.lost.items() if rubbish.kept_images else ():
        link = shlex.quote(f"{rubbish.store}/{link}")
        note(f"{root} uses the store and cannot be read here; if it is gone for good: rm {link}")
    for one in rubbish.young:
        name = one.name.removeprefix(".damaged-").removeprefix("sha256-")[:12]
        size = f"{format_bytes(one.bytes)}, " if one.bytes is not None else ""
        age = f"used {max(0, one.age) // 60} min ago"
        note(f"stays: {one.kind} {name} ({size}{age}); it can go in {-(-one.left // 60)} min")


def show_pruned(done: Garbage) -> None:
    """Prints the outcome on one line."""
    rubbish = done.rubbish
    if rubbish.empty:
        also = " besides" if rubbish.young or rubbish.kept_images else ""
        note(f"{done.cluster}: nothing to remove; every image, snapshot and environment{also} is in use")
        _say_what_stays(rubbish)
    elif done.removed:
        kinds = (rubbish.images, rubbish.snapshots, rubbish.environments, rubbish.left_over)
        went = sum(map(len, kinds)) - len(done.kept)
        out.print(f"{done.cluster}: {went} removed, {format_bytes(rubbish.bytes)} freed")
        if done.kept:
            note(f"kept, because a run began to use it: {', '.join(sorted(done.kept))}")


def print_json(done: Garbage) -> None:
    """Prints one JSON object on standard output; see docs/json.md."""
    rubbish = done.rubbish
    print_document(
        {
            "schema": 1,
            "carried_out": done.removed,
            "cluster": done.cluster,
            "bytes": rubbish.bytes,
            "images": [
                {"digest": one.digest, "bytes": one.bytes, "damaged": one.damaged} for one in rubbish.images
            ],
            "snapshots": list(rubbish.snapshots),
            "environments": [
                {"digest": digest, "bytes": size} for digest, size in rubbish.environments.items()
            ],
            "uploads": [{"kind": kind, "name": name} for kind, name in rubbish.left_over],
            "young": [
                {"kind": one.kind, "name": one.name, "bytes": one.bytes, "seconds_left": one.left}
                for one in rubbish.young
            ],
            "kept": sorted(done.kept),
            "others": [
                {"digest": image.digest, "bytes": image.bytes, "shared": image.shared}
                for image in rubbish.kept_images
            ],
            "lost_roots": sorted(set(rubbish.lost.values())),
        }
    )
