"""What training a recipe takes of memory, part by part, by arithmetic alone.

Tensors that stay are counted to the byte. What comes and goes, and what libraries and processes take, is
estimated: an estimate says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainer.lanes import Layout
from trainer.recipe.batches import ON_POLICY_ENVS
from trainer.recipe.footprint import ACTION_SIZE, OBSERVATION_SIZE, parameter_count, replay_layout
from trainer.recipe.recipe import Recipe, task_names

_FLOAT, _LONG = 4, 8
_MIB = 2**20

CUDA_BYTES = 700 * _MIB
"""Context, loaded kernels and the workspaces of cuBLAS: an allowance, not measured."""
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
_MODELS_A_TASK = 0.8
"""Some tasks share a model: MT10 has 8, MT50 36."""


@dataclass(frozen=True)
class Part:
    """One part of what is taken.

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


@dataclass(frozen=True)
class Sizes:
    """What of a run decides how much memory it takes.

    Attributes:
        recipe: any; memory can be reckoned where it runs on Meta-World, see `known`.
        num_envs: environments; None is as many as the trainer takes.
        precision: `fp32`, `tf32` or `bf16`.
        on_gpu: whether it learns on a GPU.
        lag: vector steps the acting policy is behind; on a GPU 1, unless the run is in lockstep.
    """

    recipe: Recipe
    num_envs: int | None = None
    precision: str = "fp32"
    on_gpu: bool = True
    lag: int = 1

    @property
    def tasks(self) -> int:
        """Tasks of the recipe."""
        return len(task_names(self.recipe.values["tasks"])) if self.known else 1

    @property
    def environments(self) -> int:
        """Environments that run."""
        return self.num_envs or (ON_POLICY_ENVS if "rollout_size" in self.recipe.values else self.tasks)

    @property
    def known(self) -> bool:
        """Whether observations and actions have sizes known without the environment: those of Meta-World."""
        return "environment" not in self.recipe.values

    @property
    def layout(self) -> Layout:
        """The replay's."""
        return replay_layout(self.recipe, self.num_envs)


def learner_parts(sizes: Sizes, *, micro_batches: int = 1) -> tuple[Part, ...]:
    """What the learner keeps and works with where it learns, without its replay.

    Args:
        sizes: of the run.
        micro_batches: parts in which a batch is computed.
    """
    parts = [
        Part("networks", network_bytes(sizes), note="actor, two critics, temperatures"),
        Part("target critics", parameter_count(sizes.recipe).targets * _FLOAT),
        Part("optimiser", optimizer_bytes(sizes), note="two moments a parameter"),
        Part("gradients", parameter_count(sizes.recipe).trained * _FLOAT),
    ]
    if sizes.on_gpu:
        parts += [Part("acting", acting_bytes(sizes), note="copies of the actor, inputs and outputs")]
    workspace = workspace_bytes(sizes, micro_batches)
    parts += [Part("update", workspace, exact=False, note="activations of one update")]
    return tuple(parts)


def replay_parts(sizes: Sizes) -> tuple[Part, ...]:
    """The replay, and the tables by which a GPU finds its rows."""
    parts = [Part("replay", sizes.layout.nbytes, note=f"{sizes.layout.capacity:,} transitions")]
    if sizes.on_gpu:
        parts += [Part("replay index", index_bytes(sizes.layout))]
    return tuple(parts)


def staged_parts(sizes: Sizes) -> tuple[Part, ...]:
    """What stays on a GPU of a replay that lies in the host's memory: one batch."""
    layout = sizes.layout
    return (Part("batch", layout.batch_size * (layout.window_width * _FLOAT + _LONG)),)


def host_parts(
    sizes: Sizes, processors: int, workers: int | None, *, episodes: int | None = None
) -> tuple[Part, ...]:
    """What a run's processes take of the host's memory, without what the learner learns with.

    Args:
        sizes: of the run.
        processors: that the run may use.
        workers: environment processes; None as the trainer chooses, 0 steps them in the learner's own.
        episodes: a task of an evaluation; None is the recipe's.
    """
    count = sizes.environments
    workers = worker_processes(count, processors) if workers is None else workers
    where = "in the learner" if workers == 0 else f"in {workers} process{'' if workers == 1 else 'es'}"
    parts = (
        Part("learner", LEARNER_CUDA_BYTES if sizes.on_gpu else LEARNER_BYTES, exact=False),
        _played("environments", sizes.tasks, count, min(workers, count), where),
    )
    each = sizes.recipe.values["evaluation_episodes"] if episodes is None else episodes
    playing = sizes.tasks * max(1, min(each, EVALUATION_ENVIRONMENTS // sizes.tasks))
    beside = min(processors, playing) if workers else 0
    evaluation = _played("evaluation", sizes.tasks, playing, beside, "of its own")
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


def _played(name: str, tasks: int, count: int, workers: int, where: str) -> Part:
    """Environments of so many tasks in so many processes, the tasks dealt evenly."""
    processes = workers or 1
    models = round(processes * min(-(-count // processes), tasks) * _MODELS_A_TASK)
    size = workers * WORKER_BYTES + count * ENVIRONMENT_BYTES + models * MODEL_BYTES
    return Part(name, size, exact=False, note=f"{count} environments {where}")


def network_bytes(sizes: Sizes) -> int:
    """Parameters of actor, critics and temperatures, and the constants the networks carry."""
    return parameter_count(sizes.recipe).trained * _FLOAT + _constants(sizes)


def optimizer_bytes(sizes: Sizes) -> int:
    """Adam's state: two numbers a parameter, and a count a tensor."""
    values = sizes.recipe.values
    layers = len(values["actor_hidden"]) + len(_critic_layers(sizes))
    tensors = 2 * (layers + 2) + 1
    return (2 * parameter_count(sizes.recipe).trained + tensors) * _FLOAT


def index_bytes(layout: Layout) -> int:
    """What a draw on a device keeps: tasks of each batch, lanes, slots, random numbers."""
    lanes = layout.num_tasks * len(layout.lane_slots)
    whole = layout.rotations * layout.batch_size + 1 + 3 * lanes + lanes * max(layout.lane_slots)
    return (whole + layout.batch_size) * _LONG


def acting_bytes(sizes: Sizes) -> int:
    """What acts on a GPU: the weights in use and the next ones where it lags, inputs and actions."""
    tables = sizes.environments * (OBSERVATION_SIZE + 2 * ACTION_SIZE + 1) * _FLOAT
    if not sizes.lag:
        return tables
    actor = parameter_count(sizes.recipe).actor + 2 * OBSERVATION_SIZE
    multi = _heads(sizes)
    return tables + 2 * actor * _FLOAT + sizes.tasks**2 * _FLOAT + multi * _LONG


def workspace_bytes(sizes: Sizes, micro_batches: int = 1) -> int:
    """About what an update takes at its peak: activations, their gradients, and new ones of the critics.

    The policy's activations are kept for the whole batch while the critics go through their parts of it. A
    measurement, tests/trainer/test_memory.py, agrees within a tenth.
    """
    values, count, heads = sizes.recipe.values, parameter_count(sizes.recipe), _heads(sizes)
    batch: int = values["batch_size"]
    rows = -(-batch // micro_batches)
    inputs = OBSERVATION_SIZE + (sizes.tasks if values["one_hot"] else 0)
    width = 2 if sizes.precision == "bf16" else _FLOAT
    hidden, outputs = _critic_layers(sizes), int(max(1, values["value_bins"]))
    acting: int = sum(values["actor_hidden"]) + heads * 2 * ACTION_SIZE
    actor = 2 * batch * (inputs * _FLOAT + acting * width)
    kept = (2 if values["layer_norm"] else 1) * (sum(hidden) + heads * outputs)
    critics = 2 * rows * (kept + 2 * max(hidden) + inputs + ACTION_SIZE) * width
    cast: int = (count.actor + count.critics) * width if sizes.precision == "bf16" else 0
    # with parts of a batch: their sum, that of the part before, and that of this one
    gradients = min(micro_batches, 3) * count.critics * _FLOAT
    return actor + critics + cast + gradients


def _critic_layers(sizes: Sizes) -> tuple[int, ...]:
    """Widths of a critic's hidden layers; a residual block has two."""
    hidden: tuple[int, ...] = sizes.recipe.values["critic_hidden"]
    if sizes.recipe.values["critic_network"] == "residual":
        return (hidden[0], *(width for width in hidden[1:] for _ in range(2)))
    return hidden


def _heads(sizes: Sizes) -> int:
    return sizes.tasks if sizes.recipe.values["heads"] == "multi-head" else 1


def _constants(sizes: Sizes) -> int:
    """Statistics and one-hot ids of the encoder, ids of the heads, and the learner's own one-hot ids."""
    return (2 * OBSERVATION_SIZE + 2 * sizes.tasks**2) * _FLOAT + 3 * _heads(sizes) * _LONG
