import importlib
import pickle
import warnings

import metaworld.sawyer_xyz_env
import numpy as np
import pytest
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
from metaworld.policies import ENV_POLICY_MAP

from tests.sampling import sampled
from trainer.envs import official
from trainer.envs.fast_metaworld import fast_class
from trainer.envs.metaworld import MetaworldFactory
from trainer.envs.official import STANDARD, goal_vectors, official_class, official_task, way_depends_on_goal

OWN_CODE = ("push-v3", "stick-push-v3", "bin-picking-v3")
"""The shared reward for grasping, a task's own for two objects, and attributes that a step binds."""


def bits(value) -> bytes:
    return np.asarray(value, np.float64).tobytes()


def assert_same_step(ours, official, action) -> tuple:
    found, expected = ours.step(action), official.step(action)
    assert found[0].dtype == expected[0].dtype
    assert bits(found[0]) == bits(expected[0]), "observation"
    assert bits(found[1]) == bits(expected[1]), "reward"
    assert found[2:4] == expected[2:4], "termination, truncation"
    assert list(found[4]) == list(expected[4])
    for key, value in expected[4].items():
        assert bits(found[4][key]) == bits(value), key
        assert type(found[4][key]) is type(value), key
    return expected


def play_both(task: str, episodes: list[tuple[int, int, float]]) -> bool:
    """Plays episodes of (goal, steps, noise) in both environments: by chance, or as it is done with noise.

    Returns:
        The last truncation.
    """
    ours, official = fast_class(task)(), ALL_V3_ENVIRONMENTS[task]()
    goals = goal_vectors(task, 50, 42)
    rng = np.random.default_rng(1)
    policy = ENV_POLICY_MAP[task]()
    for goal, steps, noise in episodes:
        for env in (ours, official):
            env.set_task(official_task(task, goals[goal]))
        observation = official.reset()[0]
        assert bits(ours.reset()[0]) == bits(observation), "reset"
        for _ in range(steps):
            action = rng.uniform(-noise, noise, 4)
            if noise < 1:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # some policies ask for more than 1 and say so
                    wanted = policy.get_action(observation.copy())  # one of them writes into what it is given
                action = np.clip(wanted + action, -1, 1)
            observation, _, _, truncated, _ = assert_same_step(ours, official, action.astype(np.float32))
    return truncated


@pytest.mark.slow
@pytest.mark.parametrize("task", sampled(ALL_V3_ENVIRONMENTS, 4, always=OWN_CODE))
def test_a_task_is_the_official_one_to_the_bit_to_its_truncation(task):
    # the reset to the first goal comes from memory the second time
    assert play_both(task, [(0, 60, 1.0), (31, 60, 0.1), (49, 20, 1.0), (0, 500, 0.1)])


@pytest.mark.slow
def test_actions_out_of_bounds_are_what_the_official_class_makes_of_them():
    """As a Gaussian policy that is not squashed gives them: moves and gripper are cut, rewards are not."""
    play_both("drawer-open-v3", [(0, 40, 3.0), (31, 10, 3.0)])


@pytest.mark.slow
@pytest.mark.parametrize("task", sampled(ALL_V3_ENVIRONMENTS, 2, always=OWN_CODE[:1]))
def test_after_an_action_that_is_no_number_a_task_is_the_official_one_again(task):
    """MuJoCo resets a simulation that blew up, and what was known of it before is wrong then."""
    ours, official = fast_class(task)(), official_class(task)()
    goals, rng = goal_vectors(task, 50, 42), np.random.default_rng(2)
    for goal in (0, 31):
        for env in (ours, official):
            env.set_task(official_task(task, goals[goal]))
        assert bits(ours.reset()[0]) == bits(official.reset()[0])
        for step in range(40):
            action = rng.uniform(-1, 1, 4).astype(np.float32)
            if step in (10, 25):
                action[step % 4] = np.nan
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # MuJoCo says that it has reset
                assert_same_step(ours, official, action)


@pytest.mark.parametrize("kind", [np.float64, list])
def test_actions_of_other_types_are_taken_as_the_official_class_takes_them(kind):
    task = "drawer-open-v3"
    ours, official = fast_class(task)(), official_class(task)()
    for env in (ours, official):
        env.set_task(official_task(task, goal_vectors(task, 50, 42)[3]))
        env.reset(seed=1, options={})
    rng = np.random.default_rng(3)
    for _ in range(20):
        action = rng.uniform(-1.5, 1.5, 4)
        assert_same_step(ours, official, action.tolist() if kind is list else action)


def test_copies_of_a_task_share_what_is_remembered_and_nothing_else():
    task = "drawer-open-v3"
    goals = goal_vectors(task, 50, 42)
    first, second, official = fast_class(task)(), fast_class(task)(), official_class(task)()
    for env, goal in ((first, 3), (second, 7), (official, 7)):
        env.set_task(official_task(task, goals[goal]))
        env.reset()
    action = np.full(4, 0.5, np.float32)
    for _ in range(30):
        first.step(-action)
        assert_same_step(second, official, action)


def test_the_goal_is_hidden_where_the_task_hides_it():
    task = "reach-v3"
    hidden = official_task(task, goal_vectors(task, 50, 42)[0])
    data = pickle.loads(hidden.data) | {"partially_observable": True}
    hidden = hidden._replace(data=pickle.dumps(data))
    ours, official = fast_class(task)(), official_class(task)()
    for env in (ours, official):
        env.set_task(hidden)
        env.reset()
    observation = assert_same_step(ours, official, np.ones(4, np.float32))[0]
    assert not observation[36:].any()


@pytest.mark.slow
@pytest.mark.parametrize("task", ["push-v3", "door-open-v3"])
def test_nothing_of_the_installed_package_is_changed(task):
    official = ALL_V3_ENVIRONMENTS[task]
    module = importlib.import_module(official.__module__)
    watched = [vars(module), vars(official), vars(metaworld.sawyer_xyz_env), vars(np.linalg)]
    before = [dict(each) for each in watched]
    env = fast_class.__wrapped__(task)()
    env.set_task(official_task(task, goal_vectors(task, 50, 42)[0]))
    env.reset()
    env.step(np.ones(4, np.float32))
    assert [dict(each) for each in watched] == before


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
