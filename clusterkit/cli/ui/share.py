"""What export and rerun say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterkit.cli.ui.console import note, out
from clusterkit.cli.ui.submit import described_way, warn_lacking, warn_untold_seed
from clusterkit.cli.ui.text import format_bytes
from clusterkit.cli.ui.trusted import warn_of_trusted

if TYPE_CHECKING:
    from clusterkit.commands.export import Exported
    from clusterkit.runs.pipeline import Submitted


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


def show_rerun(done: Submitted) -> None:
    """The run id on standard output, alone; the rest on standard error."""
    (run,), (placed,) = done.runs, done.placed
    seed = f", seed {run.seed}" if run.recipe or run.seed else ""
    note(f"as {placed.spec.rerun_of}: its code, image and arguments{seed}")
    if placed.planned.seed_in_environment:
        warn_untold_seed()
    warn_lacking(done.lacking)
    warn_of_trusted(done.trusted)
    if done.continuation:
        note(f"goes on past its time limit by {described_way(done.continuation)}")
    note(f"job {run.job_id} on {run.cluster}")
    note(f"next: clusterkit status, clusterkit logs {run.run_id} -f")
    out.print(run.run_id, markup=False, soft_wrap=True)
