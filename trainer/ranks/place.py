"""Which of the processes of a run this one is: told by torchrun, by Slurm, or by nobody. No torch in here."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from trainer.errors import UsageError

PARENT = "TRAINER_LAUNCHER"
"""The environment variable with the process id of the launcher: a rank ends when that is gone."""


@dataclass(frozen=True)
class RankPlace:
    """A rank: one of the processes that learn one run together, each on a GPU of its own.

    Attributes:
        rank: 0 to size - 1; rank 0 is the one that writes. Of a process that starts ranks, their first.
        size: how many there are.
        local_rank: its number among those of the same node.
        local_size: how many share the node's processors with it, itself included.
        bound: whether the scheduler has given it processors and a GPU of its own.
        started: whether the ranks are there already; if not, this process has to start them.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    bound: bool = False
    started: bool = True


ALONE = RankPlace()


def python() -> list[str]:
    """Returns how another process of the trainer starts, so that it finds the same packages as this one."""
    return [sys.executable, *(["-P"] if sys.flags.safe_path else [])]


def place_from(environ: Mapping[str, str], asked: int | None) -> RankPlace:
    """Reads the place of this process from the environment.

    Args:
        environ: torchrun's `RANK`, `WORLD_SIZE`, `LOCAL_RANK` and `LOCAL_WORLD_SIZE`; or, in a step that srun
            has started with several tasks, `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS` and `SLURM_LOCALID`.
        asked: how many ranks the command line asks for; 1 is alone, whatever the environment says. Where one
            process has been started on each of several nodes (`NNODES`), each starts its share of more.

    Raises:
        UsageError: the command line and the environment do not agree, or the ranks could not meet.
    """
    if asked == 1:
        return ALONE
    place = _torchrun(environ) or _slurm(environ)
    if place is None:
        return ALONE if asked is None else RankPlace(size=asked, local_size=asked, started=False)
    nodes = int(environ.get("NNODES") or 1)
    if asked is not None and nodes == place.size < asked and asked % nodes == 0:
        share = asked // nodes
        return RankPlace(place.rank * share, asked, local_size=share, started=False)
    if asked not in (None, place.size):
        raise UsageError(
            f"--ranks {asked}, but {place.size} processes have been started",
            hint="leave --ranks out: the number of processes started is the number of ranks",
        )
    return place


def _torchrun(environ: Mapping[str, str]) -> RankPlace | None:
    if not {"RANK", "WORLD_SIZE"} <= environ.keys():
        return None
    rank, size = int(environ["RANK"]), int(environ["WORLD_SIZE"])
    if size == 1:
        return ALONE
    _meeting_point(environ, size)
    local_rank = int(environ.get("LOCAL_RANK", rank))
    return RankPlace(rank, size, local_rank, int(environ.get("LOCAL_WORLD_SIZE", size)))


def _slurm(environ: Mapping[str, str]) -> RankPlace | None:
    # of the step, not SLURM_NTASKS: that is there in a batch script too, which is one process
    size = int(environ.get("SLURM_STEP_NUM_TASKS") or 1)
    if size == 1 or "SLURM_PROCID" not in environ:
        return None
    _meeting_point(environ, size)
    return RankPlace(int(environ["SLURM_PROCID"]), size, int(environ.get("SLURM_LOCALID", 0)), bound=True)


def _meeting_point(environ: Mapping[str, str], size: int) -> None:
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not environ.get(name)]
    if missing:
        raise UsageError(
            f"{size} processes have been started together, and {' and '.join(missing)} not said: "
            "they cannot find each other",
            hint="export MASTER_ADDR (the first node's name) and MASTER_PORT (a free port, such as 29500); "
            "or give each --ranks 1, if each is a separate run",
        )
