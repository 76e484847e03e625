"""The memory that training a recipe takes, part by part, by arithmetic alone.

Permanent tensors are counted to the byte. Temporary memory, and that of libraries and processes, is marked
as an estimate.
"""

from __future__ import annotations

from dataclasses import replace

from trainer.recipe.lanes import LaneLayout, Ring
from trainer.recipe.share import DOUBLE, FLOAT, LONG, Part
from trainer.recipe.sizes import Sizes

_MIB = 2**20

CUDA_BYTES = 1440 * _MIB
"""Context, loaded kernels and what graphs reserve: 1,404 to 1,425 MiB on an H200 with PyTorch 2.11."""
_WORKSPACE_BYTES = 8 * 4 * _MIB
"""What cuBLAS keeps for a stream: `CUBLAS_WORKSPACE_CONFIG=:4096:8`, which `device.configure` sets."""
LEARNER_BYTES = 350 * _MIB
"""A learner's process without what it learns with; this and the next ones measured on Linux, PyTorch 2.13."""
LEARNER_CUDA_BYTES = 3072 * _MIB
"""The same with CUDA's libraries: an allowance, not measured."""
EVALUATOR_BYTES = 180 * _MIB
EVALUATION_ENVIRONMENTS = 40
"""Kept for evaluation at most, unless there are more tasks."""
NCCL_BYTES = 300 * _MIB
"""What talks to the other GPUs: an allowance, not measured."""


def learner_parts(sizes: Sizes, *, micro_batches: int = 1) -> tuple[Part, ...]:
    """What a rank keeps and works with where it learns, without its replay.

    Args:
        sizes: of the run, whose `unknown` is empty.
        micro_batches: parts in which a batch of a replay is computed.
    """
    share = sizes.share
    parts = sizes.recipe.entry.memory(share, micro_batches)
    if sizes.ranks > 1:
        parts += [Part("messages", share.count.trained * FLOAT, note="the gradient, for all ranks")]
        parts += [Part("NCCL", NCCL_BYTES, exact=False)] if sizes.on_gpu else []
    return tuple(parts)


def library_parts(sizes: Sizes) -> tuple[Part, ...]:
    """What CUDA keeps on a GPU, and cuBLAS for each stream: one for what is not captured, one a graph."""
    graphs = sizes.recipe.entry.graphs(sizes.share)
    workspaces = (1 + graphs) * _WORKSPACE_BYTES
    return (
        Part("CUDA", CUDA_BYTES, exact=False, note="context, kernels, graphs"),
        Part("workspaces", workspaces, exact=False, note=f"of cuBLAS, for {1 + graphs} streams"),
    )


def replay_parts(sizes: Sizes) -> tuple[Part, ...]:
    """A rank's replay, and the tables by which a GPU finds its rows; nothing for recipes without one."""
    layout = sizes.layout
    if layout is None:
        return ()
    parts = [Part("replay", layout.nbytes, note=f"{layout.capacity:,} transitions")]
    if sizes.on_gpu:
        parts += [Part("replay index", _index_bytes(layout))]
    return tuple(parts)


def _index_bytes(layout: LaneLayout | Ring) -> int:
    """What a draw on a device keeps: tasks of each batch, lanes, slots, random numbers."""
    if isinstance(layout, Ring):
        return DOUBLE + layout.batch_size * (DOUBLE + LONG)
    lanes = layout.num_tasks * len(layout.lane_slots)
    whole = layout.rotations * layout.batch_size + 1 + 3 * lanes + lanes * max(layout.lane_slots)
    return (whole + layout.batch_size) * LONG


def staged_parts(layout: LaneLayout | Ring) -> tuple[Part, ...]:
    """What stays on a GPU of a replay that lies in the host's memory: one batch."""
    width = sum(layout.widths) if isinstance(layout, Ring) else layout.window_width
    return (Part("batch", layout.batch_size * (width * FLOAT + LONG)),)


def host_parts(
    sizes: Sizes, processors: int, workers: int | None, *, episodes: int | None = None
) -> tuple[Part, ...]:
    """What a run's processes take of the host's memory, without what the ranks learn with.

    Args:
        sizes: of the run.
        processors: that the run may use, all ranks together.
        workers: environment processes of all ranks; None as the trainer chooses, 0 steps them in the
            learner's own.
        episodes: a task of an evaluation; None is the recipe's.
    """
    count, ranks = sizes.environments, sizes.ranks
    entry = sizes.recipe.entry
    if workers is None:
        workers = entry.usual_workers(count // ranks, processors // ranks) * ranks
    where = "in the learner" if workers == 0 else f"in {workers} process{'' if workers == 1 else 'es'}"
    if entry.loop == "on-policy" and 0 < workers < count:
        where += " and the learner"
    learner = ranks * (LEARNER_CUDA_BYTES if sizes.on_gpu else LEARNER_BYTES)
    parts = [
        Part("learner", learner, exact=False, note=f"{ranks} of them" if ranks > 1 else ""),
        _played(sizes, "environments", count, min(workers, count), where),
    ]
    if sizes.on_gpu:
        parts += [replace(part, bytes=ranks * part.bytes) for part in entry.host_memory(sizes.share)]
    per_task = sizes.recipe.values["evaluation_episodes"] if episodes is None else episodes
    playing = sizes.tasks * max(1, min(per_task, EVALUATION_ENVIRONMENTS // sizes.tasks))
    beside = min(processors, playing) if workers else 0
    evaluation = _played(sizes, "evaluation", playing, beside, "of its own")
    return (*parts, replace(evaluation, bytes=evaluation.bytes + EVALUATOR_BYTES))


def _played(sizes: Sizes, name: str, count: int, workers: int, where: str) -> Part:
    """Environments in so many processes, the tasks divided evenly."""
    size = sizes.recipe.environment.process_bytes(sizes.tasks, count, workers)
    return Part(name, size, exact=False, note=f"{count} environment{'' if count == 1 else 's'} {where}")
