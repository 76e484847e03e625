"""Which accesses to memory happen before which, by vector clocks (Mattern 1989)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable

HOST = "host"
Clock = dict[str, int]


class Order:
    """What the host and each stream know of one another, and who has touched which memory when.

    Attributes:
        races: pairs of accesses to the same memory, one of them a write, that nothing puts in order.
    """

    def __init__(self) -> None:
        self.races: list[str] = []
        self._clocks: dict[str, Clock] = defaultdict(lambda: defaultdict(int))
        self._writes: dict[Hashable, Clock] = defaultdict(dict)
        self._reads: dict[Hashable, Clock] = defaultdict(dict)

    def clock(self, actor: str) -> Clock:
        """Returns a copy of what an actor knows."""
        return dict(self._clocks[actor])

    def learn(self, actor: str, clock: Clock) -> None:
        """From now on everything that the clock knows of has happened before what the actor does."""
        own = self._clocks[actor]
        for other, time in clock.items():
            own[other] = max(own[other], time)

    def access(
        self, actor: str, reads: Collection[Hashable], writes: Collection[Hashable], what: str
    ) -> None:
        """Records that an actor reads and writes memory, and every race that this makes."""
        own = self._clocks[actor]
        own[actor] += 1
        for place in {*reads} - {*writes}:
            self._check(actor, place, self._writes[place], f"{what} reads what", "writes")
            self._reads[place][actor] = own[actor]
        for place in writes:
            self._check(actor, place, self._writes[place], f"{what} writes what", "writes")
            self._check(actor, place, self._reads[place], f"{what} writes what", "reads")
            self._writes[place][actor] = own[actor]

    def _check(self, actor: str, place: Hashable, others: Clock, what: str, does: str) -> None:
        for other, time in others.items():
            if other != actor and time > self._clocks[actor][other]:
                kind = place[0] if isinstance(place, tuple) else "memory"
                self.races.append(f"{actor}: {what} {other} {does} ({kind})")
