"""What learns from rollouts: the agent, the rollout and their updates as two calls that a GPU captures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from trainer.algorithms.capture import CapturedUpdate, weak
from trainer.algorithms.on_policy import OnPolicy
from trainer.envs.interface import EnvFactory
from trainer.loops.memory import too_small
from trainer.machine.device import autocast
from trainer.ranks.parallel import Ranks
from trainer.recipe import batches
from trainer.recipe.on_policy import OnPolicyAlgorithm
from trainer.replay.rollout import Rollout
from trainer.settings import TrainSettings


class RolloutLearner:
    """The agent with its rollout.

    Args:
        settings: what to do.
        factory: tells the sizes.
        device: where to learn.
        ranks: with whom it learns; all begin with the networks of rank 0.

    Attributes:
        agent: the networks.
        rollout: to be filled, with this rank's part; `learn` empties it.
        cuts: the sizes of rollout and batches, of all ranks together.
        epochs: how often each row is learnt from.
        rows: what `OnPolicy.estimate` returned last; empty before.
        chosen: which of them are the next batch, (batch,).
        slower: what `note` says where it learns with others.
    """

    def __init__(
        self, settings: TrainSettings, factory: EnvFactory, device: torch.device, ranks: Ranks
    ) -> None:
        recipe, envs = settings.recipe, settings.own_envs
        self.cuts = batches(recipe.name, recipe.values, settings.num_envs)
        self._own_rollout, self._own_batch = (
            settings.own(self.cuts.rollout),
            settings.own(self.cuts.batch_size),
        )
        self._device = device
        self.epochs = recipe.values.get("epochs", 1)
        self._may_stop = recipe.values.get("target_kl", 0.0) > 0
        self._first = False
        try:
            self.agent = _agent(settings, factory, device, ranks)
            self.rollout = Rollout(
                self.cuts.steps, envs, self.agent.policy.inputs, factory.action_dim, device
            )
        except torch.OutOfMemoryError as fault:
            raise too_small(fault) from fault
        ranks.spread(self.agent.shared())
        self._any_rank = ranks.any
        self._losses: dict[str, Tensor] = {}
        self._number: int | None = None
        self.slower = ""
        self.rows = torch.zeros(0)
        self.chosen = torch.zeros(self._own_batch, dtype=torch.int64, device=device)
        self.moved()

    @property
    def note(self) -> str:
        """Why updates are slower than they could be; empty where there is nothing to say."""
        return self.slower or self._estimate.note or self._update.note

    @property
    def losses(self) -> dict[str, Tensor]:
        """What `OnPolicy.update` returned last."""
        if self._number is None:
            return self._losses
        return {name: loss[self._number] for name, loss in self._losses.items()}

    @losses.setter
    def losses(self, losses: dict[str, Tensor]) -> None:
        self._losses, self._number = losses, None

    def share(self, losses: dict[str, Tensor], number: int) -> None:
        """Says what an update of several returned, of which this one is the learner numbered so."""
        self._losses, self._number = losses, number

    def settle(self) -> None:
        """Keeps what the last update of several returned for this one: a captured one will write over it."""
        if self._number is not None:
            self.losses = {name: loss.clone() for name, loss in self.losses.items()}

    def keep(self, rows: Tensor) -> None:
        """Takes over rows that others write to from now on; what has been captured reads the old ones."""
        if rows is not self.rows:
            self.rows = rows
            self._update = self._captured(self._descend, self._device)

    def moved(self) -> None:
        """Says that the agent's tensors lie elsewhere: what has been captured is captured anew."""
        # on a CPU a step is just called
        where = self._device if self.agent.captures_estimate else torch.device("cpu")
        self._estimate = self._captured(self._look, where)
        self._update = self._captured(self._descend, self._device)

    def release(self) -> None:
        """Drops what was captured; see `CapturedUpdate.release`."""
        self._estimate.release()
        self._update.release()

    def shared(self) -> list[Tensor]:
        """Returns what is the same on every rank, to the bit."""
        return self.agent.shared()

    def learn(self, left: float, count: Callable[[int], None]) -> None:
        """Learns from a full rollout, and empties it.

        Args:
            left: share of the training that is left, for the schedules.
            count: told after each epoch how many updates it was.

        Raises:
            TrainerError: the device's memory is too small.
        """
        try:
            self.begin(left)
            self.estimate()
            for _ in range(self.epochs):
                for batch in self.batches():
                    self.update(batch)
                count(self.cuts.count)
                if self.has_enough():
                    break
            self.finish()
        except torch.OutOfMemoryError as fault:
            raise too_small(fault) from fault

    def begin(self, left: float) -> None:
        """Prepares to learn from a full rollout; see `learn`, whose parts this and the next ones are."""
        self.agent.schedule(left)
        self.rollout.hand_over()
        moments = self.agent.policy.moments
        # the first policy hardly depends on what it sees, so its actions fit statistics it did not have;
        # later ones keep those they acted with until the rollout has been learnt from
        self._first = moments is not None and not moments.count
        if self._first:
            self.agent.observe(self.rollout)

    def estimate(self) -> None:
        """Looks at the whole rollout: its advantages and targets."""
        self._hold(self._estimate()["rows"])

    def batches(self) -> Sequence[Tensor]:
        """Shuffles the rollout; returns the rows of each batch of an epoch, (batch,) each."""
        if self.cuts.count == 1:
            return (self.chosen,)
        return torch.split(torch.randperm(self._own_rollout, device=self._device), self._own_batch)

    def update(self, batch: Tensor) -> None:
        """Learns from a batch, given by its rows (batch,)."""
        self.chosen.copy_(batch)
        self.losses = self._update()

    def has_enough(self) -> bool:
        """Returns whether the policy has moved as far as it may by this rollout; waits for the device."""
        return self._may_stop and bool(self.agent.stopped)

    def finish(self) -> None:
        """Ends the learning from a rollout."""
        if not self._first:
            self.agent.observe(self.rollout)

    def explained_variance(self) -> float:
        """Returns how much of the last rollout's returns the values foresaw: 1 for all of it."""
        if not len(self.rows):
            return 0.0
        seen = self.agent.pack(self.rows).batch()
        return float(1.0 - (seen.target - seen.value).var() / seen.target.var())

    def _captured(self, step: Callable[[], dict[str, Tensor]], where: torch.device) -> CapturedUpdate:
        return CapturedUpdate(weak(step), self.agent.tensors, where, any_rank=self._any_rank)

    def _look(self) -> dict[str, Tensor]:
        return {"rows": self.agent.estimate(self.rollout)}

    def _hold(self, rows: Tensor) -> None:
        """Keeps the rows where a captured update finds them."""
        if self._device.type == "cpu" or not len(self.rows):
            self.rows = rows.clone() if rows.is_cuda else rows
        else:
            self.rows.copy_(rows)

    def _descend(self) -> dict[str, Tensor]:
        packed = self.agent.pack(self.rows)
        return self.agent.update(packed.batch(self.chosen if self.cuts.count > 1 else None))


def _agent(settings: TrainSettings, factory: EnvFactory, device: torch.device, ranks: Ranks) -> OnPolicy:
    recipe = settings.recipe
    entry = recipe.entry
    assert isinstance(entry, OnPolicyAlgorithm)
    agent: OnPolicy = entry.agent(
        recipe.values,
        factory.observation_dim,
        factory.action_space,
        len(settings.tasks),
        device,
        settings.own_envs,
        partial(autocast, device, settings.precision),
        learners=ranks.size,
        average=ranks.average,
    )
    return agent
