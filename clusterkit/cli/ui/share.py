"""What export and rerun say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterkit.cli.ui.console import note, out
from clusterkit.cli.ui.submit import described_way, warn_untold_seed
from clusterkit.cli.ui.text import format_bytes
from clusterkit.cli.ui.trusted import warn_of_trusted

if TYPE_CHECKING:
    from clusterkit.commands.export import Exported
    from clusterkit.commands.rerun import Rerun


def show_exported(done: Exported) -> None:
    """The path of the archive on standard output; what is in it on standard error."""
    image = "no container"
    if done.image:
        how = "" if done.with_image else " by its digest (--with-image puts it in)"
        image = f"image {done.image[:12]}{how}"
    model = done.model.name if done.model else "no model"
    note(f"{done.files} files, {format_bytes(done.bytes)}, read again and checked; {model}; {image}")
    if not done.ended:
        note("the run is not over: this is how it stands now")
    out.print(str(done.path), markup=False, soft_wrap=True)


def show_rerun(done: Rerun) -> None:
    """The run id on standard output, alone; the rest on standard error."""
    run = done.run
    seed = f", seed {run.seed}" if run.recipe or run.seed else ""
    note(f"as {done.of}: its code, image and arguments{seed}")
    if done.untold:
        warn_untold_seed()
    warn_of_trusted(done.trusted)
    if done.choice:
        note(f"goes on past its time limit by {described_way(done.choice)}")
    note(f"job {done.job_id} on {run.cluster}")
    note(f"next: clusterkit status, clusterkit logs {run.run_id} -f")
    out.print(run.run_id, markup=False, soft_wrap=True)
