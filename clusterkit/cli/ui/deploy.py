"""The output of deploy, and its question about large files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.text import Text

from clusterkit.asking import agree
from clusterkit.cli.ui import console
from clusterkit.cli.ui.console import print_document, printable, say, warn, warn_of_trusted
from clusterkit.units import format_bytes, format_seconds, listed, plural

if TYPE_CHECKING:
    from clusterkit.snapshots import Large, Snapshot
    from clusterkit.submit.materials import DeploymentPlan

_NAMES = 5


def show_deployed(done: DeploymentPlan) -> None:
    """Prints one line for the image and one for the code."""
    say(f"  {done.root}", head=done.cluster)
    for each in (done, *done.others):
        if each.image is None:
            continue
        size = format_bytes(each.image.bytes)
        sent = each.image_sent
        state = f"sent {format_bytes(sent.bytes)} of {size}" if sent else f"{size}  already there"
        say(f"  image  {each.image.digest[:12]}  {_arch(done, each)}{state}")
        if sent and sent.damaged:
            warn(
                f"image {sent.damaged[:12]} there was damaged",
                " and is no longer used: deploy it again for pending runs that need it",
            )
    state = "already there" if done.standing.present else f"sent {format_bytes(done.standing.bytes_to_send)}"
    say(f"  code   {described(done.snapshot)}  {state}")
    _say_environment(done, f"job {done.build_job} builds it" if done.build_job else "")
    warn_of(done.snapshot)
    warn_of_trusted(done.trusted)


def show_plan(plan: DeploymentPlan) -> None:
    """Prints what the cluster has, what would be uploaded, how long it takes, and each root's free space."""
    say(f"  {plan.root}", head=plan.cluster)
    for each in (plan, *plan.others):
        if each.image:
            state = _state(each.image_plan.present, each.image_plan.bytes_to_send)
            size = format_bytes(each.image.bytes)
            say(f"  image  {each.image.digest[:12]}  {_arch(plan, each)}{size}  {state}")
    standing = plan.standing
    state = _state(standing.present, standing.bytes_to_send, len(standing.missing))
    say(f"  code   {described(plan.snapshot)}  {state}")
    _say_environment(plan, "not built: `deploy` starts a job that builds it")
    if plan.seconds is not None and plan.bytes_to_send and plan.rate:
        source = f"remembered from {plan.rate.measured}" if plan.rate.measured else "measured now"
        rate = f"{format_bytes(plan.rate.bytes_per_second)}/s, {source}"
        say(f"  time   about {format_seconds(max(1, plan.seconds))} ({rate})")
    for space in plan.spaces:
        if space.free is not None:
            quota = "" if space.quota_left is None else f", quota leaves {format_bytes(space.quota_left)}"
            total = "" if space.total is None else f" of {format_bytes(space.total)}"
            say(f"  room   {space.role}: {format_bytes(space.free)} free{total}{quota}  {space.path}")
    if plan.shortage:
        warn("does not fit:", f" {plan.shortage}", colour="bold red")
    warn_of(plan.snapshot)
    console.note("dry run: nothing was changed" if plan.bytes_to_send else "dry run: nothing to send")


def _arch(plan: DeploymentPlan, one: DeploymentPlan) -> str:
    """Returns the architecture of one of several images."""
    return f"{one.image.arch}  " if plan.others and one.image else ""


def _say_environment(plan: DeploymentPlan, missing: str) -> None:
    if plan.environment:
        state = f"{format_bytes(max(plan.built))}  built" if plan.built else missing
        packages = plural(plan.environment.packages, "package")
        say(f"  python {plan.environment.digest[:12]}  {plan.environment.file}, {packages}  {state}")


def print_plan_json(plan: DeploymentPlan, *, carried_out: bool) -> None:
    """Prints the plan as JSON; docs/json.md lists the keys."""
    snapshot, standing = plan.snapshot, plan.standing
    document = {
        "schema": 1,
        "carried_out": carried_out,
        "cluster": plan.cluster,
        "root": plan.root,
        "image": _image_as_json(plan),
        "others": [_image_as_json(each) for each in plan.others],
        "code": {
            "id": snapshot.id,
            "bytes": snapshot.bytes,
            "files": len(snapshot.project.files),
            "present": standing.present,
            "basis": standing.basis,
            "files_to_send": len(standing.missing),
            "bytes_to_send": standing.bytes_to_send,
            "withheld": snapshot.withheld,
            "environments": snapshot.environments,
            "special": snapshot.special,
            "links_outside": snapshot.outside,
        },
        "environment": environment_as_json(plan),
        "bytes_to_send": plan.bytes_to_send,
        "seconds": plan.seconds,
        "rate": plan.rate and asdict(plan.rate),
        "roots": [{**asdict(space), "left": space.left} for space in plan.spaces],
        "shortage": plan.shortage,
    }
    print_document(document)


def _image_as_json(plan: DeploymentPlan) -> dict[str, Any] | None:
    if plan.image is None:
        return None
    return {
        "digest": plan.image.digest,
        "arch": plan.image.arch or None,
        "path": str(plan.image_path) if plan.image_path else None,
        "bytes": plan.image.bytes,
        "present": plan.image_plan.present,
        "bytes_to_send": plan.image_plan.bytes_to_send,
        "disk_bytes": plan.image_plan.disk_bytes,
        "way": plan.image_plan.way,
    }


def environment_as_json(plan: DeploymentPlan) -> dict[str, Any] | None:
    """Returns what a plan says of the project's Python environment; None without one."""
    environment = plan.environment
    return (
        None
        if environment is None
        else {
            "digest": environment.digest,
            "file": environment.file,
            "packages": environment.packages,
            "built": list(plan.built),
            "build_job": plan.build_job or None,
        }
    )


def described(snapshot: Snapshot) -> str:
    """Describes a snapshot in half a line."""
    git = snapshot.git
    place = f"  {git.branch}@{git.commit[:7]}{' + changes' if git.dirty else ''}" if git.commit else ""
    files = plural(len(snapshot.project.files), "file") + (" and the trainer" if snapshot.bundle else "")
    return f"{snapshot.id[:12]}  {format_bytes(snapshot.bytes)}, {files}{place}"


def warn_of(snapshot: Snapshot) -> None:
    """Warns about files that stay on this machine and links that will be broken."""
    _warn(
        "stays here",
        "looks like a secret; `include` of [project] uploads it anyway",
        snapshot.withheld,
        every=True,
    )
    _warn(
        "stay here", "virtual environments; `include` of [project] uploads them anyway", snapshot.environments
    )
    _warn("stays here", "no file: a socket, pipe or device", snapshot.special)
    _warn("points outside the project", "is uploaded as a link, without its target", snapshot.outside)


def ask_about_large(files: Sequence[Large], limit: int) -> bool:
    """Asks on the terminal whether to upload files over the limit."""
    for name, size in files[:_NAMES]:
        console.note(f"{printable(name)}: {format_bytes(size)}")
    if len(files) > _NAMES:
        console.note(f"and {len(files) - _NAMES} more")
    over = "is over" if len(files) == 1 else "are over"
    return agree(f"{over} the limit of {format_bytes(limit)} a file. Send?")


def _state(present: bool, size: int, files: int | None = None) -> str:
    if present:
        return "already there"
    count = "" if files is None else f" in {plural(files, 'file')}"
    return f"{format_bytes(size)} to send{count}"


def _warn(what: str, why: str, names: Sequence[str], *, every: bool = False) -> None:
    if names:
        shown = listed([printable(name) for name in names], len(names) if every else _NAMES)
        text = Text(shown, overflow="fold")
        console.err.print(Text.assemble((what, "yellow"), f" ({why}): ", text))
