"""What an exchange with a working copy may do, for every state of a file on both sides."""

from __future__ import annotations

from itertools import product

import pytest

from clusterkit.results.work_plan import new_base, plan_exchange
from clusterkit.snapshots.snapshot import ManifestEntry

STATES = (None, *(ManifestEntry("file", letter * 64, 1) for letter in "abc"))
EVERY = list(product(STATES, repeat=3))


def files(entry: ManifestEntry | None) -> dict[str, ManifestEntry]:
    return {} if entry is None else {"name": entry}


@pytest.mark.parametrize("delete", [False, True])
def test_nothing_that_the_target_has_changed_is_replaced(delete: bool) -> None:
    for base, source, target in EVERY:
        plan = plan_exchange(files(base), files(source), files(target), delete=delete)
        if plan.send or plan.remove:
            assert target == base != source
        if plan.remove:
            assert delete
        if plan.conflicts:
            assert len({base, source, target}) == 3
            assert (plan.send, plan.remove) == ((), ())


def test_force_makes_the_target_like_what_the_source_has_changed() -> None:
    for base, source, target in EVERY:
        plan = plan_exchange(files(base), files(source), files(target), delete=True, force=True)
        assert plan.conflicts == ()
        assert bool(plan.send or plan.remove) == (source not in (base, target))


def test_after_an_exchange_a_second_one_has_nothing_to_do() -> None:
    for base, source, target in EVERY:
        first = plan_exchange(files(base), files(source), files(target), delete=True)
        moved = {*first.send, *first.remove}
        after = new_base(files(base), files(source), files(target), moved)
        now = files(source) if moved else files(target)
        again = plan_exchange(after, files(source), now, delete=True)
        assert (again.send, again.remove) == ((), ())
        assert again.conflicts == first.conflicts


def test_what_was_moved_before_a_lost_connection_is_alike_at_the_next_try() -> None:
    for base, source, _ in EVERY:
        plan = plan_exchange(files(base), files(source), files(source), delete=True)
        assert plan.differing == ()
        assert new_base(files(base), files(source), files(source), ()) == files(source)


def test_a_file_below_a_folder_that_cannot_be_read_is_neither_sent_nor_deleted() -> None:
    old, new = STATES[1], STATES[2]
    assert old is not None
    assert new is not None
    base = {"a/b/c": old, "ab": old}
    plan = plan_exchange(base, {}, base, apart={"a/b"}, delete=True)
    assert plan.remove == ("ab",)
    plan = plan_exchange(base, {"a/b/c": new, "ab": new}, base, apart={"a"})
    assert plan.send == ("ab",)
