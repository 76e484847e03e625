"""Deep Q-learning (DQN) in the registry of algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainer.recipe.algorithm import Autocast, OffPolicyAlgorithm, Values
from trainer.recipe.errors import check_order
from trainer.recipe.share import ParameterCount, Part, Share, acts_on_host, dense
from trainer.recipe.spaces import Spaces

if TYPE_CHECKING:
    import torch

    from trainer.algorithms.dqn_update import DQN
    from trainer.envs.spaces import ActionSpace
    from trainer.nn.epsilon_greedy import EpsilonGreedyPolicy
    from trainer.replay import Batch

_FLOAT = 4


class DQNAlgorithm(OffPolicyAlgorithm):
    """DQN of Mnih et al. 2015, of environments with one discrete choice."""

    name, label = "dqn", "DQN"
    box, discrete = None, True

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

    def memory(self, share: Share, micro_batches: int) -> list[Part]:
        """Returns what learns, with the copies that act: all Adam holds is two tensors and a count."""
        network = share.count.trained * _FLOAT
        kept = [
            Part("networks", network_bytes(share), note="values of all choices"),
            Part("target network", share.count.targets * _FLOAT),
            Part("optimiser", 2 * network + _FLOAT, note="two moments a parameter"),
            Part("gradients", network),
        ]
        if share.on_gpu and (acting := acting_bytes(share)):
            kept += [Part("acting", acting, note="copies of the network, inputs and outputs")]
        workspace = workspace_bytes(share, micro_batches)
        return [*kept, Part("update", workspace, exact=False, note="activations of one update")]

    def graphs(self, share: Share) -> int:
        """Counts the update, and acting unless the host acts."""
        return 2 if acting_bytes(share) else 1

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


def network_bytes(share: Share) -> int:
    """Parameters, and the constants that both networks carry.

    These are the statistics and the one-hot id of the encoder, epsilon, which weights of the last layer are
    within a stream, and the numbers of the choices.
    """
    widths, outputs = layers(share.values, share.spaces.outputs)
    constants = 2 * share.spaces.observation + 2 + 2 * outputs * widths[-1] + share.spaces.outputs
    return (share.count.trained + constants) * _FLOAT


def acting_bytes(share: Share) -> int:
    """What acts on a GPU: the weights in use and the next ones where it lags, inputs and actions.

    Nothing where the network is so small that the host acts.
    """
    if acts_on_host(share.count.actor, share.environments):
        return 0
    tables = share.environments * (share.spaces.observation + 4) * _FLOAT
    if not share.lag:
        return tables
    widths, outputs = layers(share.values, share.spaces.outputs)
    network = share.count.actor + 2 * share.spaces.observation + 1
    return tables + (2 * network + 1 + outputs * widths[-1]) * _FLOAT


def workspace_bytes(share: Share, micro_batches: int = 1) -> int:
    """About what an update takes at its peak: activations, and gradients by parameters and around a layer.

    A measurement, tests/trainer/test_dqn.py, agrees within an eighth.
    """
    widths, outputs = layers(share.values, share.spaces.outputs)
    rows, width = -(-share.batch // micro_batches), share.width
    kept = (share.spaces.observation + sum(widths)) * width + 4 * outputs * _FLOAT
    kept += 0 if width == _FLOAT else widths[-1] * _FLOAT
    gradient = share.count.trained * _FLOAT
    joined = gradient if micro_batches > 1 else 0  # before they are added to those of other parts
    return rows * kept + gradient + max(joined, rows * 2 * max(widths) * width)


ENTRY = DQNAlgorithm()
