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
