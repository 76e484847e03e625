"""Which runs of a group one process can train, and which of them it trains together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterkit.commands.prepare import Prepared, Request, goes_on
from clusterkit.errors import ConfigError
from clusterkit.runs.program import option_of, trains

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings


def together(place: int, pack: int, count: int) -> range:
    """The places, of so many, that one process trains with this one; packs are filled one after the other."""
    first = place - place % pack
    return range(first, min(first + pack, count))


def check_group(names: set[str], pack: int, max_parallel: int | None, *, local: bool) -> None:
    """Refuse runs that no process could train together.

    Args:
        names: in which they differ.
        pack: runs that one process is to train.
        max_parallel: runs that may go at a time; None is said by nobody.
        local: whether they run on this machine.

    Raises:
        ConfigError: they differ in more than the seed, or may not all run at a time.
    """
    if rest := sorted(names - {"seed"}):
        raise ConfigError(
            f"--in-one has one process train runs that differ in their seed alone, not in {rest[0]}",
            hint="submit each value by itself, with --seeds; or leave --in-one out",
        )
    if local and max_parallel is not None and max_parallel % pack:
        raise ConfigError(
            f"--max-parallel {max_parallel}: on this machine each run is a job, and the "
            f"{pack} that one process trains have to run at the same time",
            hint=f"use --max-parallel {pack}, or a multiple of it",
        )


def check_run(settings: Settings, request: Request, prepared: Prepared) -> None:
    """Refuse a run that no process could train with others.

    Raises:
        ConfigError: it runs no training of the bundled trainer, or on several ranks, or would go on past a
            time limit that it does not share with the others.
    """
    profile = request.profile
    if not trains(prepared.spec.argv):
        raise ConfigError(
            "--in-one is for the bundled trainer, and this runs a program of your own",
            hint="leave it out: the runs of a pack are then processes that share the GPU",
        )
    if profile.gpu_count > 1:
        raise ConfigError(
            f"--in-one trains many runs on one GPU, and profile {profile.name} has gpus = {profile.gpus}",
            hint="take a profile with one, or leave --in-one out",
        )
    ranks = option_of(prepared.spec.argv, "--ranks")
    if ranks not in (None, "1"):
        raise ConfigError(
            f"--in-one trains many runs in one process, and --ranks {ranks} one run in several",
            hint="leave one of them out",
        )
    if request.cluster.kind == "local" and goes_on(settings, request):
        raise ConfigError(
            "--in-one does not go with --until-done here, where each run is a job with its own time limit",
            hint="use --not-until-done and enough --time; `resume` goes on with each",
        )
