"""The memory that training a recipe takes, part by part, by arithmetic alone.

Permanent tensors are counted to the byte. Temporary memory, and that of libraries and processes, is marked
as an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainer.lanes import Ring
from trainer.recipe import multitask_memory, on_policy_memory, sac_memory
from trainer.recipe.sizes import Sizes

_FLOAT, _LONG = 4, 8
_MIB = 2**20

CUDA_BYTES = 800 * _MIB
"""Context and loaded kernels: an allowance, not measured."""
_WORKSPACE_BYTES = 8 * 4 * _MIB
"""What cuBLAS keeps for a stream: `CUBLAS_WORKSPACE_CONFIG=:4096:8`, which `device.configure` sets."""
LEARNER_BYTES = 350 * _MIB
"""A learner's process without what it learns with; this and the next ones measured on Linux, PyTorch 2.13."""
LEARNER_CUDA_BYTES = 3072 * _MIB
"""The same with CUDA's libraries: an allowance, not measured."""
EVALUATOR_BYTES = 180 * _MIB
WORKER_BYTES = 100 * _MIB
EVALUATION_ENVIRONMENTS = 40
"""Kept for evaluation at most, unless there are more tasks."""
ENVIRONMENT_BYTES = 21 * _MIB
"""A Meta-World environment with the starts of its 50 goals."""
MODEL_BYTES = 46 * _MIB
"""What all environments of a task in a process share: the model with its meshes."""
GYMNASIUM_WORKER_BYTES = 60 * _MIB
GYMNASIUM_ENVIRONMENT_BYTES = 2 * _MIB
"""With MuJoCo, the largest of those that come with Gymnasium; nobody knows what another one takes."""
NCCL_BYTES = 300 * _MIB
"""What talks to the other GPUs: an allowance, not measured."""
_MODELS_A_TASK = 0.8
"""Some tasks share a model: MT10 has 8, MT50 36."""


@dataclass(frozen=True)
class Part:
    """One part of the memory.

    Attributes:
        name: for a table.
        bytes: how much.
        exact: counted to the byte; else estimated.
        note: what it is made of.
    """

    name: str
    bytes: int
    exact: bool = True
    note: str = ""


def learner_parts(sizes: Sizes, *, micro_batches: int = 1) -> tuple[Part, ...]:
    """What a rank keeps and works with where it learns, without its replay.

    Args:
        sizes: of the run, whose `unknown` is empty.
        micro_batches: parts in which a batch of a replay is computed.
    """
    if not sizes.on_policy:
        parts = _of_sac(sizes, micro_batches)
    else:
        parts = _of_tasks(sizes) if sizes.on_metaworld else _of_rollouts(sizes)
    if sizes.ranks > 1:
        parts += [Part("messages", sizes.count.trained * _FLOAT, note="the gradient, for all ranks")]
        parts += [Part("NCCL", NCCL_BYTES, exact=False)] if sizes.on_gpu else []
    return tuple(parts)


def _of_sac(sizes: Sizes, micro_batches: int) -> list[Part]:
    parts = [
        Part("networks", sac_memory.network_bytes(sizes), note="actor, two critics, temperatures"),
        Part("target critics", sizes.count.targets * _FLOAT),
        Part("optimiser", sac_memory.optimizer_bytes(sizes), note="two moments a parameter"),
        Part("gradients", sizes.count.trained * _FLOAT),
    ]
    if sizes.on_gpu and (acting := sac_memory.acting_bytes(sizes)):
        parts += [Part("acting", acting, note="copies of the actor, inputs and outputs")]
    workspace = sac_memory.workspace_bytes(sizes, micro_batches)
    return [*parts, Part("update", workspace, exact=False, note="activations of one update")]


def _of_rollouts(sizes: Sizes) -> list[Part]:
    cuts = sizes.cuts
    estimates, update = on_policy_memory.estimate_bytes(sizes), on_policy_memory.update_bytes(sizes)
    looked_at = f"values of {cuts.rollout // sizes.ranks:,} transitions at once"
    parts = [
        Part("networks", on_policy_memory.network_bytes(sizes), note="policy, values, statistics"),
        Part("optimiser", on_policy_memory.optimizer_bytes(sizes)),
        Part("gradients", on_policy_memory.gradient_bytes(sizes)),
        Part(
            "rollout", on_policy_memory.rollout_bytes(sizes), note=f"{cuts.steps} steps of each environment"
        ),
        Part("rows", on_policy_memory.rows_bytes(sizes), note="the rollout, as it is learnt from"),
    ]
    working = [
        Part("estimates", estimates, exact=False, note=looked_at),
        Part("update", update, exact=False, note=f"activations of {sizes.own_batch:,} transitions"),
    ]
    # a GPU's graphs keep what they work with; elsewhere one gives it back before the other takes it
    parts += working if sizes.on_gpu else [max(working, key=lambda part: part.bytes)]
    return [part for part in parts if part.bytes]


def _of_tasks(sizes: Sizes) -> list[Part]:
    work, steps = multitask_memory.work_bytes(sizes), f"{sizes.cuts.steps} steps of each environment"
    return [
        Part("networks", multitask_memory.network_bytes(sizes), note="the policy"),
        Part("optimiser", multitask_memory.optimizer_bytes(sizes)),
        Part("gradients", multitask_memory.network_bytes(sizes)),
        Part("rollout", on_policy_memory.rollout_bytes(sizes), note=steps),
        Part("rows", multitask_memory.rows_bytes(sizes), note="the rollout, as it is learnt from"),
        Part("update", work, exact=False, note="the whole rollout looked at, or one update"),
    ]


def library_parts(sizes: Sizes) -> tuple[Part, ...]:
    """What CUDA keeps on a GPU, and cuBLAS for each stream: one for what is not captured, one a graph."""
    if sizes.on_policy:
        graphs = 1 if sizes.on_metaworld else 2  # the update, and the estimates unless a solver makes them
    else:
        graphs = 2 if sac_memory.acting_bytes(sizes) else 1
    workspaces = (1 + graphs) * _WORKSPACE_BYTES
    return (
        Part("CUDA", CUDA_BYTES, exact=False, note="context and kernels"),
        Part("workspaces", workspaces, exact=False, note=f"of cuBLAS, for {1 + graphs} streams"),
    )


def replay_parts(sizes: Sizes) -> tuple[Part, ...]:
    """A rank's replay, and the tables by which a GPU finds its rows; nothing for recipes without one."""
    if sizes.on_policy:
        return ()
    layout = sizes.layout
    parts = [Part("replay", layout.nbytes, note=f"{layout.capacity:,} transitions")]
    if sizes.on_gpu:
        parts += [Part("replay index", sac_memory.index_bytes(layout))]
    return tuple(parts)


def staged_parts(sizes: Sizes) -> tuple[Part, ...]:
    """What stays on a GPU of a replay that lies in the host's memory: one batch."""
    layout = sizes.layout
    width = sum(layout.widths) if isinstance(layout, Ring) else layout.window_width
    return (Part("batch", layout.batch_size * (width * _FLOAT + _LONG)),)


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
    if workers is None:
        usual = helper_processes if sizes.on_policy else worker_processes
        workers = usual(sizes.own_environments, processors // ranks) * ranks
    where = "in the learner" if workers == 0 else f"in {workers} process{'' if workers == 1 else 'es'}"
    if sizes.on_policy and 0 < workers < count:
        where += " and the learner"
    learner = ranks * (LEARNER_CUDA_BYTES if sizes.on_gpu else LEARNER_BYTES)
    parts = [
        Part("learner", learner, exact=False, note=f"{ranks} of them" if ranks > 1 else ""),
        _played(sizes, "environments", count, min(workers, count), where),
    ]
    if sizes.on_policy and sizes.on_gpu:
        pinned = ranks * on_policy_memory.rollout_bytes(sizes)
        parts += [Part("rollout", pinned, note="as it is gathered")]
    each = sizes.recipe.values["evaluation_episodes"] if episodes is None else episodes
    playing = sizes.tasks * max(1, min(each, EVALUATION_ENVIRONMENTS // sizes.tasks))
    beside = min(processors, playing) if workers else 0
    evaluation = _played(sizes, "evaluation", playing, beside, "of its own")
    return (*parts, replace(evaluation, bytes=evaluation.bytes + EVALUATOR_BYTES))


def worker_processes(num_envs: int, processors: int) -> int:
    """How many processes step the environments where nobody says.

    No more than needed for the same longest share: 32 environments on 15 processors take 11 workers of at
    most 3. One processor is the learner's; without another there is nothing to overlap, and 0 is returned.
    """
    if processors < 2:
        return 0
    share = -(-num_envs // (processors - 1))
    return -(-num_envs // share)


def helper_processes(num_envs: int, processors: int) -> int:
    """How many do, where nobody says, beside a learner that steps a share itself, as large as theirs."""
    return worker_processes(num_envs, processors + 1) - 1


def _played(sizes: Sizes, name: str, count: int, workers: int, where: str) -> Part:
    """Environments in so many processes, the tasks dealt evenly."""
    processes = workers or 1
    if sizes.on_metaworld:
        tasks = sizes.tasks
        models = round(processes * min(-(-count // processes), tasks) * _MODELS_A_TASK)
        size = workers * WORKER_BYTES + count * ENVIRONMENT_BYTES + models * MODEL_BYTES
    else:
        size = workers * GYMNASIUM_WORKER_BYTES + count * GYMNASIUM_ENVIRONMENT_BYTES
    return Part(name, size, exact=False, note=f"{count} environment{'' if count == 1 else 's'} {where}")
