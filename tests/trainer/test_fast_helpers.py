import math
import pickle

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from metaworld.utils import reward_utils
from scipy.spatial.transform import Rotation

from trainer.envs import fast_helpers

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
