"""Learners of several runs that learn from their rollouts at once: each operation is done for all of them.

On a GPU an update of small networks takes as long for eight as for one, and is captured for all as one graph.
On a CPU the products of matrices are computed one learner after the other, as each would alone, so that its
bits are those of a run of its own; nearly all else is done at once, as long as that is what takes the time.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainer.algorithms.capture import CapturedUpdate, weak
from trainer.algorithms.joined import join, joinable
from trainer.loops.course import ESTIMATE
from trainer.loops.guards import too_small
from trainer.loops.rollout_learner import RolloutLearner
from trainer.nn.stacking import stack
from trainer.rollout import Rollouts

_CPU_NUMBERS = 32_768
"""Numbers in a layer of one learner up to which a CPU is faster with all at once: more leave its caches."""


class RolloutGroup:
    """See `trainer.loops.groups.Group`. No step draws a number, so that none needs a stream.

    Args:
        learners: that `fit`.
    """

    def __init__(self, learners: Sequence[RolloutLearner]) -> None:
        self._learners = list(learners)
        self._left: set[int] = set()
        self._joint = _JointLearners(self._learners)

    @staticmethod
    def fit(learners: Sequence[RolloutLearner]) -> bool:
        """Returns whether these can learn at once: they differ in what they have lived through alone."""
        shapes = {(learner.cuts, learner.rollout.observation.shape) for learner in learners}
        return len(shapes) == 1 and joinable([learner.agent for learner in learners])

    def do(self, step: str, who: Sequence[int]) -> None:
        """Takes a step of some learners."""
        learners = [self._learners[number] for number in who]
        try:
            if step == ESTIMATE and 1 < len(who) == len(self._learners) - len(self._left) < self._joint.size:
                self._joint = _JointLearners(learners)  # between two rollouts those who have left are dropped
            # where few learn, to compute all and leave most as they are would take longer than one by one
            together = len(who) > 1 and 2 * len(who) >= self._joint.size and self._joint.pays(step)
            if together and step != ESTIMATE:
                self._joint.descend(learners)
            elif together and len(who) == self._joint.size:
                self._joint.estimate()
            else:
                for learner in learners:
                    learner.do(step)
        except torch.OutOfMemoryError as fault:
            raise too_small(fault) from fault

    def leave(self, number: int) -> None:
        """Forgets a learner."""
        self._left.add(number)


class _JointLearners:
    """What takes the steps of some learners at once; the tensors of each become views of its own.

    Args:
        learners: of which all or some take each step.
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

    def pays(self, step: str) -> bool:
        """Returns whether all at once are faster than one after the other."""
        if self._device.type != "cpu":
            return True
        cuts, policy = self._learners[0].cuts, self._agent.policy
        rows = 2 * cuts.rollout if step == ESTIMATE else cuts.batch_size
        return rows * max(parameter.shape[1] for parameter in policy.actor.parameters()) <= _CPU_NUMBERS

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

    def descend(self, who: Sequence[RolloutLearner]) -> None:
        """Learns from the batches chosen of some; the others stay as they are."""
        self._fetch_rows(who)
        away = [learner not in who for learner in self._learners]
        for learner, stays in zip(self._learners, away, strict=True):
            if stays:
                learner.settle()
        whole = not any(away)
        losses = self._update() if whole else self._without(torch.tensor(away, device=self._device))
        for number, learner in enumerate(self._learners):
            if not away[number]:
                learner.share(losses, number)
                learner.slower = self._update.note

    def _without(self, away: Tensor) -> dict[str, Tensor]:
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
