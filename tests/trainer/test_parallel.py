"""Two ranks learn what one process learns, and stop, fail and go on together. Real processes, over gloo."""

import os

import pytest
import torch

from tests.ports import free_port
from tests.trainer.ranks_for_tests import attempt, forked, learn_rollouts, settings_of
from tests.trainer.runs import rows
from trainer.ranks.parallel import Ranks
from trainer.ranks.place import ALONE

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def ranks(folder) -> list[dict]:
    """What each of two ranks has found."""
    first, second = str(free_port()), str(free_port())
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": first, "SECOND_PORT": second}
    started = [forked(folder, meeting | {"RANK": str(rank)}) for rank in range(2)]
    assert [os.waitpid(pid, 0)[1] for pid in started] == [0, 0]
    return [torch.load(folder / f"rank-{rank}.pt", weights_only=True) for rank in range(2)]


def test_two_ranks_with_half_the_rollout_learn_what_one_process_learns_and_stop_with_it(ranks):
    alone = learn_rollouts(Ranks(), ALONE)
    found = [rank["rollouts"] for rank in ranks]
    assert all(map(torch.equal, found[0]["learnt"], found[1]["learnt"]))
    assert found[0]["stopped"] == found[1]["stopped"] == alone["stopped"]
    assert {0.0, 1.0} <= set(alone["stopped"])
    torch.testing.assert_close(found[0]["learnt"], alone["learnt"], rtol=2e-4, atol=2e-6)
    assert found[0]["notes"] == pytest.approx(alone["notes"], rel=1e-3, abs=1e-5)


def test_networks_that_came_to_differ_are_made_the_same_at_the_next_checkpoint(ranks):
    assert ranks[0]["drifted"][:2] == [True, False]
    assert ranks[0]["drifted"] == ranks[1]["drifted"]


def test_the_ranks_of_a_run_end_with_the_same_networks_and_data_of_their_own(ranks, folder):
    codes, networks, replays, _ = zip(*(rank["whole"] for rank in ranks), strict=True)
    assert codes == (0, 0)
    assert networks[0] == networks[1]
    assert replays[0] != replays[1]
    assert [row["step"] for row in rows(folder / "whole", "checkpoint")] == [152, 300]
    assert rows(folder / "whole", "run")[0]["ranks"] == 2


def test_a_signal_to_one_rank_stops_all_and_the_resumption_changes_nothing(ranks, folder):
    assert [rank["stopped"][0] for rank in ranks] == [85, 85]
    assert rows(folder / "stopped", "checkpoint")[1]["step"] == 4 * 57
    for rank in ranks:
        assert rank["resumed"][:3] == rank["whole"][:3]


def test_all_end_at_the_same_step_when_one_has_evaluated_enough(ranks, folder):
    codes, networks, _, _ = zip(*(rank["learnt"] for rank in ranks), strict=True)
    assert codes == (0, 0)
    assert networks[0] == networks[1]
    assert [row["step"] for row in rows(folder / "learnt", "checkpoint")] == [120]
    # the second one is of the same policy as the first, and does not count
    assert [row["step"] for row in rows(folder / "learnt", "eval")] == [40, 80, 120]


def test_rollouts_are_gathered_by_all_and_go_on_to_the_bit(ranks, folder):
    codes, networks, rollouts, _ = zip(*(rank["ppo"] for rank in ranks), strict=True)
    assert codes == (0, 0)
    assert networks[0] == networks[1]
    assert rollouts[0] != rollouts[1]
    assert [rank["ppo-cut"][0] for rank in ranks] == [85, 85]
    assert rows(folder / "ppo-cut", "checkpoint")[0]["step"] == 4 * 23  # in the middle of a rollout
    for rank in ranks:
        assert rank["ppo-resumed"][:3] == rank["ppo"][:3]


def test_a_worker_lost_on_one_rank_ends_all_with_a_checkpoint(ranks):
    assert [rank["lost"][0] for rank in ranks] == [
        "another rank has lost an environment worker; see that rank's message",
        "a worker died",
    ]
    assert "resumed from step-000000000236 at step 236" in ranks[0]["after"][3]
    assert [rank["after"][0] for rank in ranks] == [0, 0]


def test_another_number_of_ranks_keeps_the_networks_and_says_what_is_lost(ranks, folder):
    code, _, _, said = attempt(settings_of(folder / "lost", ALONE, 2), Ranks())
    assert code == 0
    assert said[0].startswith("the checkpoint was made by 2 ranks, this run has 1: networks, optimisers")
    assert "the replay is lost" in said[-1]


def test_what_one_rank_cannot_capture_none_captures(ranks):
    ours, theirs = (rank["captured"] for rank in ranks)
    assert ours[0] == "updates are not captured, which makes them slower: another rank cannot capture them"
    assert theirs[0] == "updates are not captured, which makes them slower: operation not permitted"
    assert ours[1] == theirs[1] == ["warm_up", "record"]
    assert ours[2] == theirs[2]


def test_a_rank_that_fails_aborts_the_group_for_to_destroy_it_waits_for_the_others(ranks):
    assert [rank["failed"] for rank in ranks] == [["aborted"]] * 2
