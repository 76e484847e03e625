"""Runs are dealt to tasks and parts, whatever a site allows of a job array."""

from __future__ import annotations

from datetime import UTC, datetime

import hypothesis.strategies as st
import pytest
from hypothesis import given

from clusterkit.backends.jobs import Limits
from clusterkit.backends.slurm.backend import SlurmBackend
from clusterkit.config.models import Cluster
from clusterkit.submit.group import GroupPart, batches, member_id, members_file, parts
from clusterkit.submit.parts import is_fed, split_group
from clusterkit.submit.plan import Plan, PlannedGroup

SAME = ("--time=1",)
OTHER = ("--time=2",)


def array(part: GroupPart, *, always: bool) -> str | None:
    """The option of a part's job array."""
    tasks = part.tasks_of_array(always=always)
    return SlurmBackend().array(*tasks) if tasks else None


def test_a_group_of_one_request_is_one_array() -> None:
    (part,) = parts(batches([SAME] * 5, [0] * 5, 1), array_size=1001, at_once=2)
    assert array(part, always=False) == "--array=0-4%2"
    assert part.turn is None
    assert [part.task_of(index, always=False) for index in part.members] == [0, 1, 2, 3, 4]


def test_one_task_is_a_plain_job_on_slurm() -> None:
    (part,) = parts(batches([SAME] * 4, [0] * 4, 4), array_size=1001, at_once=None)
    assert array(part, always=False) is None
    assert array(part, always=True) == "--array=0-0"
    assert part.task_of(3, always=False) is None
    assert part.members == (0, 1, 2, 3)


def test_what_differs_in_its_request_is_another_part() -> None:
    split = parts(batches([SAME, SAME, OTHER], [0, 0, 0], 2), array_size=1001, at_once=None)
    assert [part.members for part in split] == [(0, 1), (2,)]


def test_a_site_without_arrays_gets_plain_jobs_in_lanes() -> None:
    split = parts(batches([SAME] * 5, [0] * 5, 1), array_size=0, at_once=2)
    assert [array(part, always=False) for part in split] == [None] * 5
    assert [part.turn for part in split] == [None, None, 0, 1, 2]


def test_parts_of_a_limited_sweep_await_their_turn() -> None:
    split = parts(batches([SAME] * 7, [0] * 7, 1), array_size=3, at_once=2)
    assert [part.turn for part in split] == [None, 0, 1]
    assert [array(part, always=False) for part in split] == ["--array=0-2%2", "--array=0-2%2", None]
    assert [part.origin for part in split] == [0, 3, 6]


@pytest.mark.parametrize(
    ("queued", "first", "fed"),
    [(0, 4, False), (4, 4, False), (5, 2, True), (6, 2, True), (7, 1, True), (8, 1, True), (9, 1, True)],
)
def test_a_group_is_cut_to_what_other_jobs_leave_of_the_queue(queued: int, first: int, fed: bool) -> None:
    dealt = tuple(batches([SAME] * 4, [0] * 4, 1))
    plan = Plan(Cluster(name="site", root="/w"), (), PlannedGroup("g", "g", datetime.now(UTC), dealt, None))
    limits = Limits(array_size=1001, jobs=8, queued=queued)
    split = split_group(plan, limits, None)
    assert (len(split[0].tasks), is_fed(plan, split, limits)) == (first, fed)


def test_a_stage_has_the_task_numbers_of_the_one_before() -> None:
    split = parts(batches([SAME] * 3 + [OTHER] * 3, [0] * 3 + [1] * 3, 1), array_size=1001, at_once=None)
    assert [array(part, always=False) for part in split] == ["--array=0-2", "--array=0-2"]
    assert [part.before for part in split] == [None, 0]
    assert split[1].task_of(4, always=False) == 1


def test_the_members_file_has_a_block_of_lines_for_each_task() -> None:
    dealt = batches([SAME, SAME, SAME, OTHER], [0] * 4, 2)
    assert members_file(["/a", "/b", "/c", "/d"], dealt, 2) == b"/a\n/b\n/c\n\n/d\n\n"


def test_ids_of_members_sort_by_index() -> None:
    ids = [member_id("g", index, 101) for index in range(101)]
    assert ids == sorted(ids)
    assert ids[7] == "g-007"


@pytest.mark.slow
@given(
    kinds=st.lists(st.sampled_from([SAME, OTHER]), min_size=1, max_size=40),
    pack=st.integers(1, 5),
    size=st.none() | st.integers(0, 9),
    at_once=st.none() | st.integers(1, 9),
)
def test_every_run_is_in_one_task_that_its_line_names(
    kinds: list[tuple[str, ...]], pack: int, size: int | None, at_once: int | None
) -> None:
    dealt = batches(kinds, [0] * len(kinds), pack)
    split = parts(dealt, array_size=size, at_once=at_once)
    lines = members_file([str(index) for index in range(len(kinds))], dealt, pack).decode().splitlines()
    seen = []
    for part in split:
        assert {kinds[index] for index in part.members} == {part.options}
        assert size is None or len(part.tasks) <= max(1, size)
        assert part.turn is None or part.turn < part.number
        for index in part.members:
            task = part.task_of(index, always=True)
            assert size is None or 0 <= task < max(1, size)
            number = part.origin + task
            assert str(index) in lines[number * pack : (number + 1) * pack]
            seen.append(index)
    assert seen == list(range(len(kinds)))
