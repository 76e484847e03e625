import numpy as np
import pytest

from tests.sampling import sampled
from trainer.envs import official
from trainer.envs.fast_metaworld import fast_class
from trainer.envs.metaworld import MetaworldFactory
from trainer.envs.official import STANDARD, goal_vectors, official_task, way_depends_on_goal


def same_from_memory(task: str, goals) -> None:
    """Resets to the goals with one way for all, and with a way of its own for each."""
    shared, own = fast_class.__wrapped__(task)(), fast_class.__wrapped__(task)()
    shared.way_depends_on_goal = False
    vectors = goal_vectors(task, **STANDARD)
    action = np.full(4, 0.3, np.float32)
    for goal in goals:
        for env in (shared, own):
            env.set_task(official_task(task, vectors[goal]))
        assert shared.reset()[0].tobytes() == own.reset()[0].tobytes()
        for _ in range(2):
            found, expected = shared.step(action), own.step(action)
            assert found[0].tobytes() == expected[0].tobytes()
            assert repr(found[1]) == repr(expected[1])
        assert shared.data.qpos.tobytes() == own.data.qpos.tobytes()
        assert shared.data.qvel.tobytes() == own.data.qvel.tobytes()
        assert shared.data.qacc_warmstart.tobytes() == own.data.qacc_warmstart.tobytes()
    assert len(type(shared).starts) == 1


@pytest.mark.slow
@pytest.mark.parametrize("task", sampled(sorted(official._SAME_WAY), 3))
def test_one_way_is_right_for_every_goal(task):
    same_from_memory(task, range(50))


@pytest.mark.slow
def test_a_task_whose_goal_the_hand_meets_is_not_among_them():
    with pytest.raises(AssertionError):
        same_from_memory("handle-press-v3", range(8))
    assert way_depends_on_goal("handle-press-v3", goal_vectors("handle-press-v3", **STANDARD))


def test_only_goals_of_the_standard_list_share_a_way():
    task = "door-open-v3"
    assert not way_depends_on_goal(task, goal_vectors(task, **STANDARD))
    assert not way_depends_on_goal(task, goal_vectors(task, 10, STANDARD["seed"]))
    assert way_depends_on_goal(task, goal_vectors(task, 60, STANDARD["seed"]))
    assert way_depends_on_goal(task, goal_vectors(task, 50, 7))


def test_environments_of_both_kinds_do_not_mix():
    task = "drawer-close-v3"
    kinds = [MetaworldFactory((task,), goal_seed=seed)(0) for seed in (42, 7)]
    first = [env.reset(3) for env in kinds]
    assert [env.reset(3).tobytes() for env in kinds] == [observation.tobytes() for observation in first]
    assert [env._env.way_depends_on_goal for env in kinds] == [False, True]
