import pickle

import metaworld
import numpy as np
import pytest
from metaworld.env_dict import ALL_V3_ENVIRONMENTS

from tests.sampling import sampled
from trainer.envs.metaworld import MAX_EPISODE_STEPS, MetaworldEnv, MetaworldFactory, goal_vectors


@pytest.mark.slow
@pytest.mark.parametrize("task", sampled(ALL_V3_ENVIRONMENTS, 1))
def test_goals_resets_and_steps_are_those_of_the_official_package(task):
    for seed in (0, 42):
        tasks = metaworld.MT1(task, seed=seed).train_tasks
        goals = [pickle.loads(each.data)["rand_vec"] for each in tasks]
        assert np.array_equal(goal_vectors(task, 50, seed), goals)
    official = ALL_V3_ENVIRONMENTS[task]()
    ours = MetaworldFactory((task,))(0)
    rng = np.random.default_rng(0)
    for goal in (3, 17):
        official.set_task(tasks[goal])
        assert np.array_equal(ours.reset(goal), official.reset()[0])
        for _ in range(60):
            action = rng.uniform(-1, 1, 4).astype(np.float32)
            observation, reward, _, _, info = official.step(action)
            found = ours.step(action)
            assert np.array_equal(found[0], observation)
            assert found[1:] == (reward, bool(info["success"]))


def test_making_goals_leaves_the_global_random_state_alone():
    np.random.seed(5)
    expected = np.random.RandomState(5).uniform(size=3)
    goal_vectors.__wrapped__("door-close-v3", 3, 0)
    assert np.array_equal(np.random.uniform(size=3), expected)


def test_a_reset_does_not_depend_on_what_came_before():
    task = "door-close-v3"
    goals = goal_vectors(task, 50, 42)
    used, fresh = MetaworldEnv(task, goals), MetaworldEnv(task, goals)
    used.reset(9)
    for _ in range(40):
        used.step(np.ones(4, np.float32))
    assert np.array_equal(used.reset(4), fresh.reset(4))
    action = np.full(4, 0.5, np.float32)
    for _ in range(20):
        assert np.array_equal(used.step(action)[0], fresh.step(action)[0])


def test_an_episode_can_have_the_official_length():
    env = MetaworldEnv("reach-v3", goal_vectors("reach-v3", 50, 42))
    env.reset(0)
    for _ in range(MAX_EPISODE_STEPS):
        env.step(np.zeros(4, np.float32))
    with pytest.raises(ValueError, match="reset"):
        env.step(np.zeros(4, np.float32))
