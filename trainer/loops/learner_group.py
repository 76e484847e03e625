"""The learners of several seeds off policy, whose updates are one: on a GPU one graph, launched once.

There an update of small networks costs its number of operations, and that of eight seeds has 220 where that
of one has 170. On the CPU it costs the arithmetic, computed seed by seed either way: eight small ones at once
are 1.2 times as fast, large ones are not, and nothing promises that batches round as a seed alone does. So
there learners take their updates one by one, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainer.algorithms.capture import CapturedUpdate, CudaRecorder, weak
from trainer.algorithms.off_policy import AgentGroup
from trainer.loops.generators import Stream
from trainer.loops.learner import Learner
from trainer.loops.memory import too_small
from trainer.replay import Batch, ReplayGroup

_PATIENCE = 8
"""Calls in a row that may name others than those who are together, before these part and the others meet."""


class LearnerGroup:
    """Learners that make their updates together.

    What a learner holds afterwards, and what its stream has been drawn from, is the same as if it had made
    the update alone. What is not finite in one touches no other. Those that are named together are joined:
    their tensors become parts of larger ones, and their update is captured. While others are named for once,
    or only some of them, these learn one by one. A learner may be put into another group at any time, which
    is then the one it belongs to.

    Args:
        learners: of as many runs, of one recipe, on one device, in any state.
        streams: of the same runs.
    """

    def __init__(self, learners: Sequence[Learner], streams: Sequence[Stream]) -> None:
        self._learners: list[Learner | None] = list(learners)
        self._streams = list(streams)
        self._together: tuple[int, ...] = ()
        self._joint: _JointUpdate | None = None
        self._strangers = 0

    def update(self, who: Sequence[int]) -> None:
        """Makes an update of some learners.

        Args:
            who: their numbers, ascending, of those that the group was made with.

        Raises:
            TrainerError: the device's memory is too small, also with all fallbacks. None of these can go on.
        """
        try:
            if len(who) > 1 and self._meet(tuple(who)):
                assert self._joint is not None
                self._joint.update()
                return
            for number in who:
                with self._streams[number]:
                    self._learner(number).update()
        except torch.OutOfMemoryError as fault:  # beside an update, where no fallback helps
            raise too_small(fault) from fault

    def leave(self, number: int) -> None:
        """Forgets a learner, which is never named again; it stays whole by itself."""
        if number in self._together:
            self._part()
        self._learners[number] = None

    def _meet(self, who: tuple[int, ...]) -> bool:
        """Returns whether these are together, after putting them together if it is time to."""
        if who == self._together:
            self._strangers = 0
            return True
        self._strangers += 1
        if self._together and self._strangers <= _PATIENCE:
            return False
        self._part()
        chosen = [(self._learner(number), self._streams[number]) for number in who]
        self._joint = _JointUpdate(*map(list, zip(*chosen, strict=True)))
        self._together, self._strangers = who, 0
        return True

    def _part(self) -> None:
        if self._joint is not None:
            self._joint.part()
            self._together, self._joint = (), None

    def _learner(self, number: int) -> Learner:
        learner = self._learners[number]
        assert learner is not None
        return learner


class _JointUpdate:
    """Learners that are joined, all with the furthest memory fallback that one of them has taken.

    Args:
        learners: of several seeds.
        streams: of the same seeds.
    """

    def __init__(self, learners: Sequence[Learner], streams: Sequence[Stream]) -> None:
        self._learners = learners
        self._streams = streams
        self._level()
        agents = [learner.agent for learner in learners]
        group = learners[0].entry.group(agents, streams)
        assert group is not None, "learners whose agents do not join"
        self._agents: AgentGroup = group
        for learner in learners:
            learner.moved()
        self._batch: Batch | None = None
        self._on_host = False
        self._prepare()

    def update(self) -> None:
        """Draws a batch of each and learns from it.

        Raises:
            TrainerError: the device's memory is too small, also with all fallbacks.
        """
        while True:
            try:
                if self._on_host:
                    self._batch = self._replays.sample()
                losses = self._update()
                break
            except torch.OutOfMemoryError as full:
                fault = full.with_traceback(None)  # whose frames hold what had been computed so far
            self._fall_back(fault)
        assert self._batch is not None
        batches = zip(*(tensor.unbind() for tensor in self._batch.tensors), strict=True)
        own_losses = zip(*(loss.unbind() for loss in losses.values()), strict=True)
        for learner, batch, own in zip(self._learners, batches, own_losses, strict=True):
            learner.batch = Batch(*batch)
            learner.losses = dict(zip(losses, own, strict=True))
            learner.slower = self._update.note

    def part(self) -> None:
        """Lets the learners go, each with tensors of its own."""
        self._agents.leave()
        for learner in self._learners:
            learner.moved()

    def _level(self) -> None:
        """Has all take the furthest fallback, for what they do together is done in one way."""
        on_host = any(learner.memory_fallback["replay_on_host"] for learner in self._learners)
        parts = max(learner.memory_fallback["micro_batches"] for learner in self._learners)
        for learner, stream in zip(self._learners, self._streams, strict=True):
            with stream:
                learner.use_fallback(on_host=on_host, micro_batches=parts)

    def _fall_back(self, fault: torch.OutOfMemoryError) -> None:
        """Has all take the next fallback, after letting go of what holds their replays and was captured."""
        self._batch = None
        del self._replays, self._update
        for learner, stream in zip(self._learners, self._streams, strict=True):
            with stream:
                learner.fall_back(fault)
        self._prepare()

    def _prepare(self) -> None:
        first = self._learners[0]
        self._on_host = first.memory_fallback["replay_on_host"]
        self._batch = None
        self._agents.micro_batches = first.agent.micro_batches
        self._replays = ReplayGroup([learner.replay for learner in self._learners], self._streams)
        generators = [stream.generator for stream in self._streams if stream.generator is not None]
        recorder = CudaRecorder(first.device, generators) if generators else None
        self._update = CapturedUpdate(weak(self._learn), weak(self._written), first.device, recorder)

    def _learn(self) -> dict[str, Tensor]:
        if not self._on_host:
            self._batch = self._replays.sample()
        assert self._batch is not None
        return self._agents.update(self._batch)

    def _written(self) -> list[Tensor]:
        replays = [tensor for learner in self._learners for tensor in learner.replay.tensors()]
        return [*self._agents.tensors(), *replays]
