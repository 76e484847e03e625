"""Learners of several runs that learn from their rollouts at once: each operation is done for all of them.

On a GPU an update of small networks takes as long for eight as for one, and is captured for all as one graph.
On a CPU the products of matrices are computed one learner after the other, as each would alone, so that its
bits are those of a run of its own; nearly all else is done at once, as long as that is what takes the time.

The tensors of the joined learners become views of the group's, so each learner still acts, is saved and
restored by itself, and could learn by itself again at any time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trainer.algorithms.capture import CapturedUpdate, weak
from trainer.algorithms.on_policy import OnPolicy
from trainer.algorithms.optimizers import AdamOfEach, GuardedAdam, GuardedRMSprop
from trainer.loops.generators import Stream
from trainer.loops.memory import too_small
from trainer.loops.rollout_learner import RolloutLearner
from trainer.nn.moments import RunningMoments
from trainer.nn.stacking import place, stack
from trainer.replay.rollout import Rollouts

_CPU_NUMBERS = 32_768
"""Numbers in a layer of one learner up to which a CPU is faster with all at once: more leave its caches."""


class RolloutGroup:
    """Learners that learn from their rollouts at once, each to the bit as it would alone on a CPU.

    A learner may be put into another group at any time, which is then the one it belongs to.

    Args:
        learners: that `fit`.
        streams: of the same runs.
    """

    def __init__(self, learners: Sequence[RolloutLearner], streams: Sequence[Stream]) -> None:
        self._learners = list(learners)
        self._streams = list(streams)
        self._left: set[int] = set()
        self._joint = _JointLearners(self._learners)

    @staticmethod
    def fit(learners: Sequence[RolloutLearner]) -> bool:
        """Returns whether these can learn at once: they have the same shapes and configuration."""
        shapes = {(learner.cuts, learner.epochs, learner.rollout.observation.shape) for learner in learners}
        return len(shapes) == 1 and joinable([learner.agent for learner in learners])

    def learn(self, who: Sequence[int], left: Sequence[float], count: Callable[[int, int], None]) -> None:
        """Has some learners learn from their full rollouts, and empties these; see `RolloutLearner.learn`.

        Args:
            who: their numbers, ascending, of those that the group was made with.
            left: share of the training that is left, of each of them.
            count: told a learner's number, and after each of its epochs how many updates that was.

        Raises:
            TrainerError: the device's memory is too small. None of these learners can go on.
        """
        try:
            self._learn(who, left, count)
        except torch.OutOfMemoryError as fault:
            raise too_small(fault) from fault

    def leave(self, number: int) -> None:
        """Forgets a learner, which is never named again; it stays whole by itself."""
        self._left.add(number)

    def _learn(self, who: Sequence[int], left: Sequence[float], count: Callable[[int, int], None]) -> None:
        learners = [self._learners[number] for number in who]
        for learner, share in zip(learners, left, strict=True):
            learner.begin(share)
        self._estimate(learners)
        going = list(who)
        for _ in range(learners[0].epochs):
            for batch in zip(*map(self._batches, going), strict=True):
                self._update([self._learners[number] for number in going], batch)
            for number in going:
                count(number, self._learners[number].cuts.count)
            going = [number for number in going if not self._learners[number].has_enough()]
            if not going:
                break
        for learner in learners:
            learner.finish()

    def _batches(self, number: int) -> Sequence[Tensor]:
        with self._streams[number]:
            return self._learners[number].batches()

    def _estimate(self, learners: Sequence[RolloutLearner]) -> None:
        if 1 < len(learners) == len(self._learners) - len(self._left) < self._joint.size:
            self._joint = _JointLearners(learners)  # between two rollouts those who have left are dropped
        rows = 2 * learners[0].cuts.rollout
        if len(learners) == self._joint.size > 1 and self._joint.pays(rows):
            self._joint.estimate()
        else:
            for learner in learners:
                learner.estimate()

    def _update(self, learners: Sequence[RolloutLearner], batches: Sequence[Tensor]) -> None:
        # where few learn, to compute all and leave most as they are would take longer than one by one
        together = len(learners) > 1 and 2 * len(learners) >= self._joint.size
        if together and self._joint.pays(learners[0].cuts.batch_size):
            self._joint.update(learners, batches)
        else:
            for learner, batch in zip(learners, batches, strict=True):
                learner.update(batch)


class _JointLearners:
    """Learners that are joined: their tensors become views of those of one agent, which learns for all.

    Args:
        learners: of which all or some take part in each update.
    """

    def __init__(self, learners: Sequence[RolloutLearner]) -> None:
        self._learners = list(learners)
        self._agent = join([learner.agent for learner in learners])
        self._chosen = stack([learner.chosen for learner in learners])
        for learner in learners:
            learner.moved()
        self._count = learners[0].cuts.count
        self._rows = torch.zeros(0)
        self._parts: list[Tensor] = []
        self._device = self._chosen.device
        self._estimate = CapturedUpdate(weak(self._look), self._agent.tensors, self._device)
        self._update = CapturedUpdate(weak(self._learn), self._agent.tensors, self._device)

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self._learners)

    def pays(self, rows: int) -> bool:
        """Returns whether all at once are faster than one after the other, at so many rows of each."""
        if self._device.type != "cpu":
            return True
        width = max(parameter.shape[1] for parameter in self._agent.policy.actor.parameters())
        return rows * width <= _CPU_NUMBERS

    def estimate(self) -> None:
        """Looks at the rollouts of all."""
        rows = self._estimate()["rows"]
        if self._parts and rows.is_cuda:
            self._rows.copy_(rows)  # where the captured update finds them
        else:
            self._rows = rows.clone() if rows.is_cuda else rows
            self._parts = list(self._rows.unbind())
        for learner, part in zip(self._learners, self._parts, strict=True):
            learner.keep(part)
            learner.slower = self._estimate.note

    def update(self, who: Sequence[RolloutLearner], batches: Sequence[Tensor]) -> None:
        """Learns from the batches of some, given by their rows; the others stay as they are."""
        for learner, batch in zip(who, batches, strict=True):
            learner.chosen.copy_(batch)
        self._fetch_rows(who)
        away = [learner not in who for learner in self._learners]
        for learner, stays in zip(self._learners, away, strict=True):
            if stays:
                learner.settle()
        whole = not any(away)
        losses = self._update() if whole else self._update_without(torch.tensor(away, device=self._device))
        for number, learner in enumerate(self._learners):
            if not away[number]:
                learner.share(losses, number)
                learner.slower = self._update.note

    def _update_without(self, away: Tensor) -> dict[str, Tensor]:
        """Updates all but those who are away (learners,), which count as if they had had enough."""
        agent = self._agent
        stopped, skipped = agent.stopped.clone(), agent.skipped.clone()
        agent.stopped.masked_fill_(away, 1.0)
        losses = self._update()
        agent.stopped.copy_(torch.where(away, stopped, agent.stopped))
        agent.skipped.copy_(torch.where(away.unsqueeze(-1), skipped, agent.skipped))
        return losses

    def _fetch_rows(self, who: Sequence[RolloutLearner]) -> None:
        """Takes over the rows of those who have looked at their rollouts by themselves."""
        if not self._parts:
            self._rows = who[0].rows.new_zeros(self.size, *who[0].rows.shape)
            self._parts = list(self._rows.unbind())
        for learner, part in zip(self._learners, self._parts, strict=True):
            if learner in who and learner.rows is not part:
                part.copy_(learner.rows)
                learner.keep(part)

    def _look(self) -> dict[str, Tensor]:
        return {"rows": self._agent.estimate(Rollouts([learner.rollout for learner in self._learners]))}

    def _learn(self) -> dict[str, Tensor]:
        packed = self._agent.pack(self._rows)
        return self._agent.update(packed.batch(self._chosen if self._count > 1 else None))


def joinable(agents: Sequence[OnPolicy]) -> bool:
    """Returns whether learners can be joined: of one configuration and shape, and none with others' ranks."""
    first = agents[0]
    return all(
        type(agent) is type(first)
        and agent.joins
        and agent._config == first._config
        and agent._flat.shape == first._flat.shape
        and agent.sums.shape == first.sums.shape
        and agent._learners == 1
        for agent in agents
    )


def join(agents: Sequence[OnPolicy]) -> OnPolicy:
    """Returns a learner that learns what all of these do, each from its own rollouts and batches.

    Everything it is given and returns has an axis of learners before all others. The parameters and states of
    the learners move; what has been captured of them is void.

    Args:
        agents: that are `joinable`.
    """
    whole = copy.copy(agents[0])
    flats = [agent._flat for agent in agents]
    whole._flat = stack(flats)
    for agent, flat in zip(agents, flats, strict=True):
        place(_parameters(agent), flat)
    whole.policy = copy.deepcopy(agents[0].policy).requires_grad_(False)
    place(_parameters(whole), whole._flat)
    if whole.policy.moments is not None:
        seen = [agent.policy.moments for agent in agents]
        whole.policy.moments = _joined_moments([moments for moments in seen if moments is not None])
    whole._reward_moments = _joined_moments([agent._reward_moments for agent in agents])
    for name in ("learning_rate", "_entropy_weight", "sums", "skipped", "stopped"):
        setattr(whole, name, stack([getattr(agent, name) for agent in agents]))
    whole._optimizer = _joined_optimizer(whole, [agent._optimizer for agent in agents])
    return whole


def _parameters(agent: OnPolicy) -> list[Tensor]:
    return [*agent.policy.networks(), *agent.policy.head.parameters()]


def _joined_moments(moments_of_all: Sequence[RunningMoments]) -> RunningMoments:
    whole = copy.deepcopy(moments_of_all[0])
    for name, buffer in whole.named_buffers():
        buffer.data = stack([moments.get_buffer(name) for moments in moments_of_all])
    return whole


def _joined_optimizer(
    whole: OnPolicy, optimizers: Sequence[GuardedAdam | GuardedRMSprop]
) -> GuardedAdam | GuardedRMSprop:
    first = optimizers[0]
    if isinstance(first, GuardedAdam):
        return AdamOfEach([optimizer for optimizer in optimizers if isinstance(optimizer, GuardedAdam)])
    joined = copy.copy(first)
    joined._parameters = [whole._flat]
    joined._learning_rate = whole.learning_rate
    joined._squares = [stack([optimizer.tensors()[0] for optimizer in optimizers])]
    return joined
