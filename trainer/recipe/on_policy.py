"""What algorithms share that learn from rollouts, and the memory of their learners for one rank."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from trainer.recipe.algorithm import Algorithm, Autocast, Average, Divided, Values
from trainer.recipe.batches import batches, divisors
from trainer.recipe.processes import helper_processes
from trainer.recipe.share import DOUBLE, FLOAT, LONG, ParameterCount, Part, Share, dense
from trainer.recipe.spaces import Spaces

_SCALARS = 4
"""Numbers of a row after features and action: log-density, value, advantage, target."""
_REWARD_MOMENTS, _SKIPPED = 3 * DOUBLE, 2 * LONG
_FLAGS = 3 * FLOAT
"""The learning rate, the weight of the entropy, and whether to stop."""


class OnPolicyAlgorithm(Algorithm):
    """An algorithm that learns from rollouts of its present policy."""

    loop = "on-policy"
    box, discrete = "clipped", True
    envs = 8

    def usual_workers(self, num_envs: int, processors: int) -> int:
        """Counts on the learner, which steps a share itself, for it does not learn meanwhile."""
        return helper_processes(num_envs, processors)

    def whole_steps(self, recipe: str, values: Values, num_envs: int, steps: int) -> int:
        """Rounds up to whole rollouts."""
        rollout = batches(recipe, values, num_envs).rollout
        return -(-steps // rollout) * rollout

    def batch_size(self, recipe: str, values: Values, num_envs: int) -> int:
        """Returns what divides a rollout."""
        return batches(recipe, values, num_envs).batch_size

    def divided(self, recipe: str, values: Values, num_envs: int, ranks: int) -> Divided:
        """Returns the batch, of which each rank's part must divide its rollout."""
        cuts = batches(recipe, values, num_envs)
        fitting = [ranks * divisor for divisor in divisors(cuts.rollout // ranks)]
        return {"batch_size": (cuts.batch_size, fitting)}

    def count(self, values: Values, spaces: Spaces) -> ParameterCount:
        """Counts a policy that gives means or the logits of all choices, its deviations, and the values."""
        hidden = values["hidden"]
        deviations = 0 if spaces.choices else spaces.action
        actor = dense(spaces.observation, hidden, spaces.outputs) + deviations
        return ParameterCount(actor, critics=dense(spaces.observation, hidden, 1))

    def memory(self, share: Share, micro_batches: int) -> list[Part]:
        """Returns what learns, and a rollout."""
        steps = f"{share.cuts.steps} steps of each environment"
        looked_at = f"values of {transitions(share):,} transitions at once"
        learnt = f"activations of {share.batch:,} transitions"
        kept = [
            Part("networks", network_bytes(share), note="policy, values, statistics"),
            Part("optimiser", optimizer_bytes(share)),
            Part("gradients", gradient_bytes(share)),
            Part("rollout", rollout_bytes(share), note=steps),
            Part("rows", rows_bytes(share), note="the rollout, as it is learnt from"),
        ]
        working = [
            Part("estimates", estimate_bytes(share), False, looked_at),
            Part("update", update_bytes(share), False, learnt),
        ]
        # a GPU's graphs keep what they work with; elsewhere one gives it back before the other takes it
        kept += working if share.on_gpu else [max(working, key=lambda part: part.bytes)]
        return [part for part in kept if part.bytes]

    def graphs(self, share: Share) -> int:
        """Counts the estimates and the update."""
        return 2

    def host_memory(self, share: Share) -> list[Part]:
        """Returns the rollout, pinned."""
        return [Part("rollout", rollout_bytes(share), note="as it is gathered")]

    def agent(
        self,
        values: Values,
        observation_dim: int,
        action_space: Any,
        num_tasks: int,
        device: Any,
        envs: int,
        autocast: Autocast,
        *,
        learners: int = 1,
        average: Average = list,
    ) -> Any:
        """Builds the learner.

        Args:
            values: of the recipe.
            observation_dim: numbers in an observation.
            action_space: a `trainer.envs.spaces.ActionSpace`.
            num_tasks: tasks.
            device: a `torch.device`, where everything lies.
            envs: environments of a rollout.
            autocast: makes the context in which the networks are evaluated.
            learners: how many have an equal part of each rollout and batch.
            average: returns the means of tensors over all of them.
        """
        policy = self.policy(values, observation_dim, action_space, num_tasks).to(device)
        return self.learner()(self.config(values), policy, envs, autocast, learners=learners, average=average)


def network_bytes(share: Share) -> int:
    """Parameters, and the constants and statistics that the networks and their learner carry."""
    spaces = share.spaces
    constants = sum(spaces.choices) * LONG + _REWARD_MOMENTS + _SKIPPED + _FLAGS
    if share.values["normalize_observations"]:
        constants += (1 + 2 * spaces.observation) * DOUBLE
    return (share.count.trained + share.environments) * FLOAT + constants


def optimizer_bytes(share: Share) -> int:
    """Adam's two numbers a parameter and its count, or RMSprop's one."""
    if _rmsprop(share):
        return share.count.trained * FLOAT
    return (2 * share.count.trained + 1) * FLOAT


def gradient_bytes(share: Share) -> int:
    """What stays of an update's gradient: Adam keeps the last one."""
    return 0 if _rmsprop(share) else share.count.trained * FLOAT


def rollout_bytes(share: Share) -> int:
    """What was shown before and after each action, actions, rewards and both kinds of ends.

    Of PPO on Meta-World's tasks, too. A GPU's host has as much again, pinned.
    """
    return transitions(share) * (2 * share.inputs + share.spaces.action + 3) * FLOAT


def rows_bytes(share: Share) -> int:
    """The transitions as they are learnt from; a GPU has them twice, as its graph gives them and as kept."""
    return transitions(share) * row(share) * FLOAT * (2 if share.on_gpu else 1)


def estimate_bytes(share: Share) -> int:
    """About what looking at a whole rollout takes at its peak: the values of all states at once."""
    spaces, count, width = share.spaces, transitions(share), share.width
    seen = 2 * count * spaces.observation * FLOAT
    standardised = seen if share.values["normalize_observations"] else 0
    inputs = 2 * count * spaces.observation * width if width != FLOAT else 0
    layers = [0, *_hidden(share)]  # the input is counted already
    # a layer's input and what it gives, over which the activation is written
    between = max(before + after for before, after in pairwise(layers)) * width
    # the last layer is given float32
    networks = 2 * count * (between if width == FLOAT else max(between, layers[-1] * (width + FLOAT)))
    weights = max(share.count.actor, share.count.critics) * width if width != FLOAT else 0
    joined = count * (row(share) + _SCALARS + 2 + 2 * spaces.outputs) * FLOAT
    return seen + max(2 * standardised, standardised + max(inputs + networks + weights, joined))


def update_bytes(share: Share) -> int:
    """About what a gradient step takes at its peak; the activations of both networks are kept all along."""
    spaces, rows, width = share.spaces, share.batch, share.width
    trained, actor = share.count.trained * FLOAT, share.count.actor * FLOAT
    hidden = _hidden(share)
    drawn = rows * row(share) * FLOAT if share.cuts.count > 1 else 0
    cast = 0 if width == FLOAT else share.count.trained * width + rows * spaces.observation * width
    losses = rows * (6 + 2 * spaces.outputs) * FLOAT
    kept = rows * (2 * sum(hidden) * width + (spaces.outputs + 1) * FLOAT)
    policy = _backward((spaces.observation, *hidden, spaces.outputs), rows, width)
    critic = actor + _backward((spaces.observation, *hidden, 1), rows, width)
    # all gradients apart and as one; RMSprop works with copies
    stepping = 2 * trained + (6 * trained if _rmsprop(share) else 0)
    return drawn + losses + kept + max(cast, policy, critic, stepping)


def transitions(share: Share) -> int:
    """Transitions of a rank's rollout."""
    return share.cuts.rollout // share.ranks


def row(share: Share) -> int:
    """Numbers of a transition as it is learnt from."""
    return share.inputs + share.spaces.action + _SCALARS


def _backward(layers: Sequence[int], rows: int, width: int) -> int:
    """The most bytes of slopes and gradients at once on the way back through a network."""
    gradients, peaks = 0, [0]
    for number in range(len(layers) - 2, -1, -1):
        before, after = layers[number : number + 2]
        weights = before * after
        gradients += (weights + after) * FLOAT
        # in lower precision a gradient lies there as it was computed, too, and so do rows and weights
        cast = weights * width + (0 if number else rows * before * width) if width != FLOAT else 0
        slopes = (max(after + before, 2 * before) if number else after) * width
        if width != FLOAT and number == len(layers) - 2:  # the last layer, which is computed in float32
            cast, slopes = rows * before * FLOAT, (after + before) * FLOAT + before * width
        peaks.append(rows * slopes + gradients + cast)
    return max(peaks)


def _hidden(share: Share) -> tuple[int, ...]:
    widths: tuple[int, ...] = share.values["hidden"]
    return widths


def _rmsprop(share: Share) -> bool:
    return share.values.get("optimizer") == "rmsprop"
