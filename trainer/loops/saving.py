"""What all ranks have, as one checkpoint: gathered and written by rank 0, read by each for itself.

The replays of the ranks count as one there, whose lanes are those of rank 0, then those of rank 1, and so on.
So a checkpoint of several ranks appears, is verified, shared and pruned like any other.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainer.checkpoint import CheckpointStore, Saved
from trainer.loops.generators import fresh_generators
from trainer.loops.memory import AnyReplay
from trainer.ranks.parallel import Ranks
from trainer.replay import ReplayRows

_OTHERS = "others"
"""What ranks 1 and up have of their own, in a checkpoint's state beside what rank 0 has."""


def fingerprint(tensors: Sequence[Tensor]) -> str:
    """Returns the sha256 of what tensors hold; waits for the device."""
    hashed = hashlib.sha256()
    for tensor in tensors:
        hashed.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return hashed.hexdigest()


def align(ranks: Ranks, tensors: Sequence[Tensor]) -> bool:
    """Gives all ranks what rank 0 has, in place, if it is not the same to the bit.

    It should be, for all take the same steps; a device that adds up otherwise than others would end that.

    Returns:
        Whether it was not.
    """
    if ranks.size == 1:
        return False
    own = fingerprint(tensors)
    differs = ranks.any(own != ranks.share(own))
    if differs:
        ranks.spread(tensors)
    return differs


class AllReplays:
    """The replays of all ranks as one, to be saved by rank 0 or restored by each.

    Args:
        replay: this rank's.
        ranks: all of them.
    """

    def __init__(self, replay: AnyReplay, ranks: Ranks) -> None:
        self._replay = replay
        self._ranks = ranks
        self._mark: Sequence[int] | None = None
        self._states: list[dict[str, Any]] = []
        self._position: list[int] = []
        self._oldest: list[int] = []
        self._rows = ReplayRows([], [], np.empty((0, 0), np.float32))

    def gather(self, mark: Sequence[int] | None) -> None:
        """Brings the rows since a mark of rank 0's store, and all else, to rank 0; every rank calls it."""
        self._mark = self._ranks.share(mark)
        own = None
        if self._mark is not None:
            lanes = len(self._mark) // self._ranks.size
            own = self._mark[self._ranks.rank * lanes : (self._ranks.rank + 1) * lanes]
        rows = self._replay.rows_since(own)
        gathered = self._ranks.gather((self._replay.position(), self._replay.oldest(), rows.begin, rows.end))
        states = self._ranks.gather(self._replay.state_dict())
        data = self._ranks.gather_rows(rows.data)
        if gathered:
            self._states = states
            self._position, self._oldest, begin, end = (
                list(chain(*lanes_of_ranks)) for lanes_of_ranks in zip(*gathered, strict=True)
            )
            self._rows = ReplayRows(begin, end, np.concatenate(data))

    def position(self) -> list[int]:
        """Of each lane, the row that is being filled."""
        return self._position

    def oldest(self) -> list[int]:
        """Of each lane, the oldest row that a restored replay needs."""
        return self._oldest

    def rows_since(self, mark: Sequence[int] | None) -> ReplayRows:
        """The rows gathered.

        Raises:
            OSError: other rows are asked for, because some have vanished from the disk this very moment.
        """
        if mark != self._mark:
            raise OSError("rows of the replay have vanished from the disk")
        return self._rows

    def state_dict(self) -> dict[str, Any]:
        """Everything but the rows."""
        return {"ranks": self._states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back this rank's state; the segments follow."""
        self._replay.load_state_dict(state["ranks"][self._ranks.rank])

    def put(self, rows: ReplayRows) -> None:
        """Takes back this rank's rows of a segment."""
        self._replay.put(_own_rows(rows, self._ranks))


def save(
    store: CheckpointStore,
    ranks: Ranks,
    step: int,
    parts: Mapping[str, Any],
    own: Mapping[str, Any],
    replay: AnyReplay | None,
) -> Saved | None:
    """Writes a checkpoint of all ranks; every rank calls it, and to those but rank 0 it returns None.

    Args:
        store: rank 0's.
        ranks: all of them.
        step: environment steps so far.
        parts: `model` and `state`, the same on every rank.
        own: what this rank adds to the state.
        replay: of this rank; None for a run that has none.

    Raises:
        OSError: as `CheckpointStore.save`, on rank 0; the ranks may go on.
    """
    if ranks.size == 1:
        return store.save(step, {**parts, "state": {**own, **parts["state"]}}, replay)
    all_replays = None if replay is None else AllReplays(replay, ranks)
    if all_replays:
        all_replays.gather(store.mark if ranks.writes else None)
    # not as they are: a tensor of a GPU that rank 0 does not see could not come to it
    owned = [_unpacked(packed) for packed in ranks.gather(_packed(own))]
    if not ranks.writes:
        return None
    state = {**parts["state"], **owned[0], _OTHERS: owned[1:]}
    return store.save(step, {**parts, "state": state}, all_replays)


def restore_replay(
    store: CheckpointStore,
    ranks: Ranks,
    path: Path,
    replay: AnyReplay,
) -> None:
    """Fills this rank's replay from a checkpoint of as many ranks; its whole episodes, if it has other lanes.

    Raises:
        CheckpointError: a file is missing or damaged, or the environment is another one.
    """
    state, pieces = store.read_replay(path)
    own = state["ranks"][ranks.rank] if ranks.size > 1 else state
    if not replay.fits(own):
        replay.adopt(own, (_own_rows(rows, ranks) for rows in pieces))
    elif ranks.size > 1:
        store.restore_replay(path, AllReplays(replay, ranks))
    else:
        store.restore_replay(path, replay)


def of_rank(
    parts: dict[str, Any], ranks: Ranks, seed: int, say: Callable[[str], None]
) -> tuple[dict[str, Any], bool]:
    """Picks what belongs to this rank from the parts of a checkpoint.

    Returns:
        The parts, and whether replay and environments can be taken up: only by as many ranks.
    """
    state = dict(parts["state"])
    others = state.pop(_OTHERS, [])
    made_by = 1 + len(others)
    if made_by == ranks.size:
        own = others[ranks.rank - 1] if ranks.rank else {}
        return {**parts, "state": {**state, **own}}, True
    plural = "" if made_by == 1 else "s"
    say(
        f"the checkpoint was made by {made_by} rank{plural}, this run has {ranks.size}: "
        "networks, optimisers and counters continue, but past transitions and running episodes are lost"
    )
    generators = fresh_generators(seed, state["progress"]["step"], ranks.rank)
    return {**parts, "state": {**state, "environments": None, "generators": generators}}, False


def _packed(thing: Mapping[str, Any]) -> bytes:
    held = io.BytesIO()
    torch.save(thing, held)
    return held.getvalue()


def _unpacked(packed: bytes) -> dict[str, Any]:
    parts: dict[str, Any] = torch.load(io.BytesIO(packed), map_location="cpu", weights_only=True)
    return parts


def _own_rows(rows: ReplayRows, ranks: Ranks) -> ReplayRows:
    """Picks a rank's rows out of those of all, who have as many lanes each."""
    lanes = len(rows.begin) // ranks.size
    own, before = slice(ranks.rank * lanes, (ranks.rank + 1) * lanes), slice(ranks.rank * lanes)
    begin, end = rows.begin[own], rows.end[own]
    first = sum(rows.end[before]) - sum(rows.begin[before])
    return ReplayRows(begin, end, rows.data[first : first + sum(end) - sum(begin)])
