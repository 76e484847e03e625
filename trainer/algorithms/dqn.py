"""Deep Q-learning (DQN) in the registry of algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainer.recipe.algorithm import Autocast, OffPolicyAlgorithm, Values
from trainer.recipe.errors import check_order
from trainer.recipe.share import FLOAT, ParameterCount, Share, dense
from trainer.recipe.spaces import Spaces

if TYPE_CHECKING:
    import torch

    from trainer.algorithms.dqn_update import DQN
    from trainer.envs.spaces import ActionSpace
    from trainer.nn.epsilon_greedy import EpsilonGreedyPolicy
    from trainer.replay import Batch


class DQNAlgorithm(OffPolicyAlgorithm):
    """DQN of Mnih et al. 2015, of environments with one discrete choice."""

    name, label = "dqn", "DQN"
    box, discrete = None, True
    networks, targets, acting = "values of all choices", ("target network", ""), "network"

    def check(self, recipe: str, values: Values) -> None:
        """Checks also that epsilon falls."""
        super().check(recipe, values)
        ends = values["epsilon_end"], values["epsilon_start"]
        check_order(recipe, ("epsilon_end", "epsilon_start", *ends))

    def learns(self, choices: Sequence[int]) -> bool:
        """Returns whether there is one choice: of several, each combination would need a value."""
        return len(choices) == 1

    def count(self, values: Values, spaces: Spaces) -> ParameterCount:
        """Counts the network, as the actor, and its target."""
        widths, outputs = layers(values, spaces.outputs)
        network = dense(spaces.observation, widths, outputs)
        return ParameterCount(network, targets=network)

    def network_bytes(self, share: Share) -> int:
        """Counts the parameters, and the constants that both networks carry.

        These are the statistics and the one-hot id of the encoder, epsilon, which weights of the last layer
        are within a stream, and the numbers of the choices.
        """
        widths, outputs = layers(share.values, share.spaces.outputs)
        constants = 2 * share.spaces.observation + 2 + 2 * outputs * widths[-1] + share.spaces.outputs
        return (share.count.trained + constants) * FLOAT

    def optimizer_tensors(self, share: Share) -> int:
        """Returns 1: all parameters lie in one tensor."""
        return 1

    def noise_and_action(self, spaces: Spaces) -> int:
        """Counts a choice and the two numbers it is drawn by."""
        return 3

    def acting_constants(self, share: Share) -> int:
        """Counts epsilon, and which weights of the last layer are within a stream."""
        widths, outputs = layers(share.values, share.spaces.outputs)
        return (2 + outputs * widths[-1]) * FLOAT

    def workspace_bytes(self, share: Share, micro_batches: int = 1) -> int:
        """Estimates an update's activations, and gradients by parameters and around a layer.

        A measurement, tests/trainer/test_memory.py, agrees within an eighth.
        """
        widths, outputs = layers(share.values, share.spaces.outputs)
        rows, width = -(-share.batch // micro_batches), share.width
        kept = (share.spaces.observation + sum(widths)) * width + 4 * outputs * FLOAT
        kept += 0 if width == FLOAT else widths[-1] * FLOAT
        gradient = share.count.trained * FLOAT
        joined = gradient if micro_batches > 1 else 0  # before they are added to those of other parts
        return rows * kept + gradient + max(joined, rows * 2 * max(widths) * width)

    def policy(
        self, values: Values, observation_dim: int, action_space: ActionSpace, num_tasks: int
    ) -> EpsilonGreedyPolicy:
        """Builds the policy, see `Algorithm.policy`."""
        from trainer.algorithms.dqn_update import make_policy

        (choices,) = action_space.nvec
        return make_policy(self.config(values), observation_dim, choices)

    def learner(self) -> type[DQN]:
        """Returns the class of the learner."""
        from trainer.algorithms.dqn_update import DQN

        return DQN

    def agent(
        self,
        values: Values,
        observation_dim: int,
        action_space: ActionSpace,
        num_tasks: int,
        device: torch.device,
        autocast: Autocast,
        **how: Any,
    ) -> DQN:
        """Builds the learner, see `OffPolicyAlgorithm.agent`."""
        (choices,) = action_space.nvec
        sizes = observation_dim, choices, num_tasks
        return self.learner()(self.config(values), *sizes, device, autocast, **how)

    def diagnose(self, agent: DQN, batch: Batch, tasks: Sequence[str]) -> dict[str, float]:
        """Examines the network, see `trainer.algorithms.diagnostics.diagnose_values`."""
        from trainer.algorithms.diagnostics import diagnose_values

        return diagnose_values(agent.policy, batch, tasks)


def layers(values: Values, choices: int) -> tuple[list[int], int]:
    """Returns the widths of the hidden layers as they are computed, and the outputs, see `QNetwork`."""
    *shared, last = values["hidden"]
    return ([*shared, 2 * last], 1 + choices) if values["dueling"] else ([*shared, last], choices)


ENTRY = DQNAlgorithm()
