"""What deploy, submit and a dry run say."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from rich.syntax import Syntax

from clusterkit.images import Way
from clusterkit.ui.console import err, note, out
from clusterkit.ui.text import format_bytes

if TYPE_CHECKING:
    from clusterkit.snapshots import Snapshot
    from clusterkit.verbs.deploy import Deployed
    from clusterkit.verbs.submit import Prepared, Submitted


def show_deployed(done: Deployed) -> None:
    """One line for the image and one for the code."""
    out.print(f"[bold]{done.cluster}[/]  {done.root}", soft_wrap=True)
    if done.image and done.image_sent:
        sent, size = done.image_sent, format_bytes(done.image.bytes)
        there = sent.way is Way.PRESENT
        state = f"{size}  already there" if there else f"sent {format_bytes(sent.bytes)} of {size}"
        out.print(f"  image  {done.image.digest[:12]}  {state}")
        if sent.damaged:
            err.print(
                f"[yellow]image {sent.damaged[:12]} there was damaged[/] and is no longer used: "
                "runs that still wait for it need it deployed again",
                soft_wrap=True,
            )
    state = "sent" if done.snapshot_sent else "already there"
    out.print(f"  code   {_described(done.snapshot)}  {state}")
    _warn_withheld(done.snapshot)


def show_submitted(done: Submitted) -> None:
    """The run id on standard output, alone, so that scripts can take it; the rest on standard error."""
    spec = done.spec
    recipe = spec.recipe
    if recipe:
        note(f"recipe {recipe['name']}, {spec.total_steps:,} steps, seed {spec.seed}")
        if recipe["modified"]:
            changed = ", ".join(f"{name}: {old} -> {new}" for name, (old, new) in recipe["modified"].items())
            err.print(f"[yellow]modified recipe[/] ({changed}): the run is marked for ever", soft_wrap=True)
    note(f"job {done.job_id} on {spec.cluster}; next: clusterkit status, clusterkit logs {spec.run_id} -f")
    out.print(spec.run_id, markup=False, soft_wrap=True)


def show_dry_run(prepared: Prepared) -> None:
    """The exact script, the argv, and what would travel."""
    spec = prepared.spec
    _title("job script", f"{prepared.run_dir}/job.sh")
    if out.is_terminal:
        out.print(Syntax(prepared.script, "bash", background_color="default", word_wrap=True))
    else:
        out.file.write(prepared.script)
    _title("program")
    for number, argument in enumerate(spec.argv):
        out.print(f"  argv[{number}]  {shlex.quote(argument)}", markup=False, soft_wrap=True)
    _title("environment")
    for name, value in spec.env.items():
        out.print(f"  {name}={shlex.quote(value)}", markup=False, soft_wrap=True)
    _title("would be sent", "unless it is there already")
    if prepared.image:
        out.print(f"  image  {prepared.image.digest[:12]}  {format_bytes(prepared.image.bytes)} (by deploy)")
    snapshot = prepared.snapshot
    out.print(f"  code   {_described(snapshot)}")
    for name in snapshot.project.files:
        out.print(f"         {name}", markup=False, soft_wrap=True)
    _warn_withheld(snapshot)
    note("dry run: nothing was changed")


def _described(snapshot: Snapshot) -> str:
    count = len(snapshot.project.files)
    git = snapshot.git
    place = f"  {git.branch}@{git.commit[:7]}{' + changes' if git.dirty else ''}" if git.commit else ""
    files = f"{count} file{'' if count == 1 else 's'} and the trainer"
    return f"{snapshot.id[:12]}  {format_bytes(snapshot.bytes)}, {files}{place}"


def _warn_withheld(snapshot: Snapshot) -> None:
    if snapshot.withheld:
        names = ", ".join(snapshot.withheld[:5]) + (", ..." if len(snapshot.withheld) > 5 else "")
        err.print(f"[yellow]stays here[/] (looks like a secret): {names}", soft_wrap=True)


def _title(text: str, more: str = "") -> None:
    out.print(f"[bold]{text}[/]  [dim]{more}[/]", soft_wrap=True)
