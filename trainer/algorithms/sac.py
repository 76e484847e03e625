"""Soft actor-critic, of one task or several, in the registry of algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from trainer.recipe.algorithm import OffPolicyAlgorithm, Values
from trainer.recipe.environments import task_count
from trainer.recipe.errors import RecipeError
from trainer.recipe.share import FLOAT, LONG, ParameterCount, Share, dense, evaluates_apart, head_count
from trainer.recipe.spaces import Spaces

if TYPE_CHECKING:
    from trainer.algorithms.sac_learner import SAC, SACGroup
    from trainer.envs.spaces import ActionSpace
    from trainer.nn.policy import Policy
    from trainer.replay import Batch


class SACAlgorithm(OffPolicyAlgorithm):
    """SAC of Haarnoja et al. 2018, with what McLean et al. 2025 and Nauman et al. 2025 add for many tasks."""

    name, label = "sac", "SAC"
    box, discrete = "scaled", False
    networks, targets = "actor, two critics, temperatures", ("target critics", "")

    def check(self, recipe: str, values: Values) -> None:
        """Checks also the options of the critics."""
        super().check(recipe, values)
        if values.get("critic_network") == "residual":
            if len(set(values["critic_hidden"])) > 1:
                same = "the same width all through critic_hidden"
                raise RecipeError(f"recipe {recipe}: critic_network = residual needs {same}")
            if not values["layer_norm"]:
                raise RecipeError(f"recipe {recipe}: critic_network = residual needs layer_norm = true")
        if values.get("normalize_rewards") == "returns" and values["reward_scale"] != 1.0:
            raise RecipeError(f"recipe {recipe}: normalize_rewards = returns needs reward_scale = 1")
        if values.get("value_bins") == 1:
            raise RecipeError(f"recipe {recipe}: value_bins = 1 tells nothing; 0 is off, 101 is usual")

    def count(self, values: Values, spaces: Spaces) -> ParameterCount:
        """Counts an actor, two critics with their targets, and a temperature a task.

        The actor maps its inputs to a mean and a log standard deviation for each number of an action, each
        critic these and the action to one value or to `value_bins`; multi-head networks have one last layer a
        task.
        """
        tasks, inputs = task_count(values), self.inputs(values, spaces)
        heads = head_count(values, tasks)
        actor = dense(inputs, values["actor_hidden"], 2 * spaces.action, heads)
        layers = critic_layers(values)
        critics = 2 * dense(inputs + spaces.action, layers, values.get("value_bins") or 1, heads)
        return ParameterCount(actor, critics, targets=critics, alphas=tasks)

    def network_bytes(self, share: Share) -> int:
        """Counts actor, critics and temperatures; statistics and ids of the encoder, heads and learner."""
        constants = (2 * share.spaces.observation + 2 * share.tasks**2) * FLOAT + 3 * share.heads * LONG
        return share.count.trained * FLOAT + constants

    def optimizer_tensors(self, share: Share) -> int:
        """Counts weights and biases of each layer, and the temperatures."""
        layers = len(share.values["actor_hidden"]) + len(critic_layers(share.values))
        return 2 * (layers + 2) + 1

    def noise_and_action(self, spaces: Spaces) -> int:
        """Counts an action and its noise."""
        return 2 * spaces.action

    def acting_constants(self, share: Share) -> int:
        """Counts the ids of the heads."""
        return share.heads * LONG

    def workspace_bytes(self, share: Share, micro_batches: int = 1) -> int:
        """Estimates an update's activations, their gradients, and new ones of the critics.

        The policy's activations are kept for the whole batch while the critics go through their parts of it,
        a wide policy's only where it is learnt from.
        A measurement, tests/trainer/test_memory.py, agrees within a tenth.
        """
        values, count, heads = share.values, share.count, share.heads
        batch = share.batch
        rows = -(-batch // micro_batches)
        inputs, width = share.inputs, share.width
        hidden, outputs = critic_layers(share.values), max(1, int(values.get("value_bins", 0)))
        acting = _last_bytes(values["actor_hidden"][-1], heads * 2 * share.spaces.action, width)
        learnt = batch if evaluates_apart(values["actor_hidden"]) else 2 * batch
        actor: int = 2 * batch * inputs * FLOAT + learnt * (sum(values["actor_hidden"]) * width + acting)
        kept = (
            (2 if values["layer_norm"] else 1) * sum(hidden) + 2 * max(hidden) + inputs + share.spaces.action
        )
        critics: int = 2 * rows * (kept * width + _last_bytes(hidden[-1], heads * outputs, width))
        cast: int = (count.actor + count.critics) * width if share.precision == "bf16" else 0
        # with parts of a batch: their sum, and that of this one
        gradients = min(micro_batches, 2) * count.critics * FLOAT
        return actor + critics + cast + gradients

    def policy(
        self, values: Values, observation_dim: int, action_space: ActionSpace, num_tasks: int
    ) -> Policy:
        """Builds the policy, see `Algorithm.policy`."""
        from trainer.algorithms.sac_config import make_policy

        return make_policy(self.config(values), observation_dim, action_space.dim, num_tasks)

    def learner(self) -> type[SAC]:
        """Returns the class of the learner."""
        from trainer.algorithms.sac_learner import SAC

        return SAC

    def group(
        self, agents: Sequence[SAC], streams: Sequence[AbstractContextManager[None]]
    ) -> SACGroup | None:
        """Joins the learners of several seeds, see `SACGroup`."""
        from trainer.algorithms.sac_learner import SACGroup

        return SACGroup(agents, streams)

    def diagnose(self, agent: SAC, batch: Batch, tasks: Sequence[str]) -> dict[str, float]:
        """Examines the networks, see `trainer.algorithms.diagnostics.diagnose`; adds `alpha/<task>`."""
        from trainer.algorithms.diagnostics import diagnose

        numbers = diagnose(agent.policy, agent.critics, agent.value.mean, batch, tasks)
        return numbers | {f"alpha/{task}": a for task, a in zip(tasks, agent.alpha.tolist(), strict=True)}


def _last_bytes(before: int, outputs: int, width: int) -> int:
    """What the last layer keeps of a row, in float32: what it gives, and what it is given if that is cast."""
    return outputs * FLOAT + (0 if width == FLOAT else before * FLOAT)


def critic_layers(values: Values) -> tuple[int, ...]:
    """Widths of a critic's hidden layers; a residual block has two."""
    hidden: tuple[int, ...] = values["critic_hidden"]
    if values.get("critic_network") == "residual":
        return (hidden[0], *(width for width in hidden[1:] for _ in range(2)))
    return hidden


ENTRY = SACAlgorithm()
