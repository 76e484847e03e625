"""TD3, twin delayed deep deterministic policy gradients, in the registry of algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from trainer.recipe.algorithm import OffPolicyAlgorithm, Values
from trainer.recipe.environments import task_count
from trainer.recipe.share import FLOAT, LONG, ParameterCount, Share, dense, head_count
from trainer.recipe.spaces import Spaces

if TYPE_CHECKING:
    from trainer.algorithms.td3_update import TD3
    from trainer.envs.spaces import ActionSpace
    from trainer.nn.deterministic_policy import DeterministicPolicy
    from trainer.replay import Batch


class TD3Algorithm(OffPolicyAlgorithm):
    """TD3 of one task or several: a deterministic policy, twin critics, and a target of each."""

    name, label = "td3", "TD3"
    box, discrete = "scaled", False
    networks, targets = "actor, two critics", ("targets", "of all three")

    def count(self, values: Values, spaces: Spaces) -> ParameterCount:
        """Counts an actor and two critics, and a target of each; multi-head ones have a last layer a task."""
        inputs = self.inputs(values, spaces)
        heads = head_count(values, task_count(values))
        actor = dense(inputs, values["actor_hidden"], spaces.action, heads)
        critics = 2 * dense(inputs + spaces.action, values["critic_hidden"], 1, heads)
        return ParameterCount(actor, critics, targets=actor + critics)

    def turns(self, values: Values) -> int:
        """Returns the delay of the policy: its update comes with the last of so many."""
        delay: int = values["policy_delay"]
        return delay

    def network_bytes(self, share: Share) -> int:
        """Counts actor and critics, and the constants that all networks carry.

        These are the statistics and one-hot ids of the encoder, and the ids of the heads: of actor, critics,
        both targets, and the first critic.
        """
        constants = (2 * share.spaces.observation + share.tasks**2) * FLOAT + 5 * share.heads * LONG
        return share.count.trained * FLOAT + constants

    def optimizer_tensors(self, share: Share) -> int:
        """Counts weights and biases of each layer."""
        return 2 * (len(share.values["actor_hidden"]) + len(share.values["critic_hidden"]) + 2)

    def noise_and_action(self, spaces: Spaces) -> int:
        """Counts an action and its noise."""
        return 2 * spaces.action

    def acting_constants(self, share: Share) -> int:
        """Counts the ids of the heads."""
        return share.heads * LONG

    def workspace_bytes(self, share: Share, micro_batches: int = 1) -> int:
        """Estimates the peak of an update, which is the critics' pass backward or the policy's.

        A measurement, tests/trainer/test_memory.py, agrees within an eighth.
        """
        values, width, action = share.values, share.width, share.spaces.action
        actor_hidden, critic_hidden = values["actor_hidden"], values["critic_hidden"]
        heads, rows = share.heads, -(-share.batch // micro_batches)
        halves, inputs = share.precision == "bf16", share.inputs
        shown = share.batch * (2 * inputs + action) * FLOAT + rows * (inputs + action) * width
        shown += 2 * rows * heads * FLOAT * (4 if heads > 1 else 1)
        critic = [rows * layer * width for layer in critic_hidden]
        critic_parameters = [2 * size for size in _layers(inputs + action, critic_hidden, heads)]
        actor = [rows * layer * width for layer in actor_hidden]
        actor_parameters = _layers(inputs, actor_hidden, action * heads)
        norm = 2 if values["layer_norm"] else 1
        of_critics = _backward([2 * layer for layer in critic], critic_parameters, norm)
        of_actor = _backward([*actor, *critic], [*actor_parameters, *[0] * len(critic)], 1)
        if micro_batches > 1:  # their sum, beside those of this part
            of_critics += share.count.critics * FLOAT
            of_actor += share.count.actor * FLOAT
        if halves:
            of_critics += share.count.critics * width
            of_actor += (share.count.actor + share.count.critics // 2) * width
        return shown + max(of_critics, of_actor)

    def policy(
        self, values: Values, observation_dim: int, action_space: ActionSpace, num_tasks: int
    ) -> DeterministicPolicy:
        """Builds the policy, see `Algorithm.policy`."""
        from trainer.algorithms.td3_update import make_policy

        return make_policy(self.config(values), observation_dim, action_space.dim, num_tasks)

    def learner(self) -> type[TD3]:
        """Returns the class of the learner."""
        from trainer.algorithms.td3_update import TD3

        return TD3

    def diagnose(self, agent: TD3, batch: Batch, tasks: Sequence[str]) -> dict[str, float]:
        """Examines the networks, see `trainer.algorithms.diagnostics.diagnose`."""
        from trainer.algorithms.diagnostics import diagnose
        from trainer.nn.value import ScalarValue

        return diagnose(agent.policy, agent.critics, ScalarValue().mean, batch, tasks)


def _layers(inputs: int, hidden: Sequence[int], outputs: int) -> list[int]:
    """Returns the bytes of each layer's weights and biases in float32."""
    return [dense(before, (), after) * FLOAT for before, after in pairwise([inputs, *hidden, outputs])]


def _backward(activations: Sequence[int], parameters: Sequence[int], copies: int) -> int:
    """Returns the most bytes that lie there at once while gradients go from the last layer to the first.

    Args:
        activations: bytes of what each hidden layer gives on.
        parameters: bytes of the gradients of each layer's parameters.
        copies: of the activations that are kept.
    """
    most = 0
    for layer, own in enumerate(activations):
        below, above = copies * sum(activations[:layer]), sum(parameters[layer + 1 :])
        through = (2 + copies) * own  # what was given on, and gradients on both sides of the ReLU
        before = activations[layer - 1] if layer else 0
        most = max(most, below + above + max(through, own + before + parameters[layer]))
    return most


ENTRY = TD3Algorithm()
