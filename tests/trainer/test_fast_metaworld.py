import copy
import importlib
import math
import pickle
import warnings

import metaworld.sawyer_xyz_env
import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
from metaworld.policies import ENV_POLICY_MAP
from metaworld.utils import reward_utils
from scipy.spatial.transform import Rotation

from tests.sampling import sampled
from trainer.envs import fast_helpers, official
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


def saved_model(model, like=None) -> bytes:
    """All of a model, with the drawing's settings of another one."""
    model = copy.copy(model)
    model.vis.global_.bvactive = (like or model).vis.global_.bvactive
    saved = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, saved)
    return saved.tobytes()


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


@pytest.mark.slow
@pytest.mark.parametrize("task", sampled(ALL_V3_ENVIRONMENTS, 3, always=("drawer-open-v3",)))
def test_copies_of_a_task_step_in_turn_as_if_each_was_alone(task):
    goals, rng = goal_vectors(task, 50, 42), np.random.default_rng(4)
    pairs = [(make(task)(), ALL_V3_ENVIRONMENTS[task]()) for make in (fast_class, fast_class, official_class)]
    for round_ in range(2):
        for number, pair in enumerate(pairs):
            for env in pair:
                env.set_task(official_task(task, goals[10 * number + 3 * round_]))
            assert bits(pair[0].reset()[0]) == bits(pair[1].reset()[0])
        assert len({id(ours.model) for ours, _ in pairs}) == 1
        for _ in range(15):
            for ours, alone in pairs:
                assert_same_step(ours, alone, rng.uniform(-1, 1, 4).astype(np.float32))
    for ours, alone in pairs:
        assert saved_model(ours.model, alone.model) == saved_model(alone.model)


@pytest.mark.slow
@pytest.mark.parametrize("task", sampled(ALL_V3_ENVIRONMENTS, 3, always=("assembly-v3",)))
def test_a_goal_moves_a_body_and_a_site_of_the_model_and_changes_nothing_else(task):
    env = ALL_V3_ENVIRONMENTS[task]()
    parsed = copy.copy(env.model)
    for goal in goal_vectors(task, 50, 42)[::7]:
        env.set_task(official_task(task, goal))
        env.reset()
        env.step(np.ones(4, np.float32))
        for ours, theirs in ((parsed.body_pos, env.model.body_pos), (parsed.site_pos, env.model.site_pos)):
            assert (ours != theirs).any(1).sum() <= 1
            ours[:] = theirs
        assert saved_model(parsed) == saved_model(env.model)


def test_no_bounding_volume_is_marked_for_a_drawing():
    task = "push-v3"
    ours, official = fast_class(task)(), ALL_V3_ENVIRONMENTS[task]()
    for env in (ours, official):
        env.set_task(official_task(task, goal_vectors(task, 50, 42)[0]))
        env.reset()
        env.step(np.ones(4, np.float32))
    assert official.data.bvh_active.any()
    assert not ours.data.bvh_active.any()


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


numbers = st.floats(-2, 2, allow_subnormal=False)


@given(
    x=numbers,
    low=numbers,
    width=st.floats(0, 1),
    margin=st.one_of(st.just(0.0), st.floats(1e-6, 2)),
    sigmoid=st.sampled_from(["long_tail", "gaussian", "hyperbolic"]),
    kind=st.sampled_from([float, np.float64]),
)
def test_tolerance_is_the_official_one_to_the_bit(x, low, width, margin, sigmoid, kind):
    arguments = {"bounds": (low, low + width), "margin": kind(margin), "sigmoid": sigmoid}
    expected = reward_utils.tolerance(kind(x), **arguments)
    found = fast_helpers.tolerance(kind(x), **arguments)
    assert type(found) is type(expected)
    assert found == expected


@given(st.lists(numbers, min_size=1, max_size=6))
def test_norm_is_numpys_to_the_bit(values):
    vector = np.array(values)
    assert fast_helpers.norm(vector) == np.linalg.norm(vector)
    assert type(fast_helpers.norm(vector)) is np.float64


def test_norm_leaves_the_rest_to_numpy():
    matrix = np.arange(12.0).reshape(3, 4)
    assert np.array_equal(fast_helpers.norm(matrix, axis=1), np.linalg.norm(matrix, axis=1))
    assert fast_helpers.norm(matrix[:, 1]) == np.linalg.norm(matrix[:, 1])
    assert fast_helpers.norm([3, 4]) == 5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_norm_of_a_number_or_with_its_order_said_is_numpys_to_the_bit(dtype):
    for value in np.random.default_rng(0).normal(size=(300, 3)).astype(dtype):
        assert fast_helpers.norm(value, ord=2).tobytes() == np.linalg.norm(value, ord=2).tobytes()
        assert fast_helpers.norm(value[0]).tobytes() == np.linalg.norm(value[0]).tobytes()
    assert fast_helpers.norm(value, ord=1) == np.linalg.norm(value, ord=1)


def test_norm_of_what_was_pickled_is_not_left_to_numpy(monkeypatch):
    vector = pickle.loads(pickle.dumps(np.array([1.0, 2.0, 3.0])))
    monkeypatch.setattr(np.linalg, "norm", None)
    assert fast_helpers.norm(vector) == math.sqrt(14)


@given(
    st.floats(-3, 3, width=32),
    st.sampled_from([np.float32, np.float64, float]),
    st.sampled_from([(-1, 1), (0.0, 1.0), (np.float64(-1), np.float64(1)), (-0.0, 0)]),
)
def test_clip_is_numpys_to_the_bit(value, kind, bounds):
    expected, found = np.clip(kind(value), *bounds), fast_helpers.clip(kind(value), *bounds)
    assert type(found) is type(expected)
    assert found.tobytes() == expected.tobytes()
    assert fast_helpers.clip(kind("nan"), *bounds) != 0


@pytest.mark.slow
def test_quaternion_is_scipys_to_the_bit():
    rng = np.random.default_rng(0)
    matrix = np.zeros(9)
    for trial in range(3000):
        wanted = rng.normal(size=4) if trial % 3 else np.eye(4)[trial % 4] + rng.normal(size=4) * 1e-9
        mujoco.mju_quat2Mat(matrix, wanted / np.linalg.norm(wanted))
        expected = Rotation.from_matrix(matrix.reshape(3, 3)).as_quat()
        assert fast_helpers.quaternion(matrix.reshape(3, 3)).tobytes() == expected.tobytes()


@given(*[st.tuples(st.floats(0, 1), st.sampled_from([float, np.float64, np.float32]))] * 2)
def test_hamacher_product_is_the_official_one_to_the_bit(first, second):
    a, b = (kind(value) for value, kind in (first, second))
    expected, found = reward_utils.hamacher_product(a, b), fast_helpers.hamacher_product(a, b)
    assert type(found) is type(expected)
    assert found == expected


def test_hamacher_product_refuses_what_the_official_one_does():
    with pytest.raises(ValueError, match="between 0 and 1"):
        fast_helpers.hamacher_product(1.5, 0.5)
