"""Faster versions of the helpers that Meta-World's reward code calls most, with bit-identical results.

Each takes the official helper's arguments and returns the same type with the same bits; inputs other than
scalars and short vectors are passed to the official helper. The types matter as much as the values: a Python
float times a float32 is a float32, a float64 times a float32 is not.
"""

from __future__ import annotations

import math
import types
from functools import cache
from typing import Any

import metaworld.utils.reward_utils as official_rewards
import numpy as np
import numpy.typing as npt
from scipy.spatial.transform import Rotation as OfficialRotation  # type: ignore[import-untyped]

_FLOAT64 = np.dtype(np.float64)
_PYTHONS = (int, float)
_DEFAULT_AT_MARGIN = 0.1
_LONG_TAIL_SCALE = float(np.sqrt(1 / _DEFAULT_AT_MARGIN - 1))
_GAUSSIAN_SCALE = float(np.sqrt(-2 * np.log(_DEFAULT_AT_MARGIN)))


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A002
    """`numpy.linalg.norm`; fast for the Euclidean norm of a float64 or a contiguous float64 vector.

    The product is BLAS's, as in numpy: a sum of squares written out differs in the last bit.
    """
    if (
        type(x) is np.ndarray
        and x.ndim == 1
        and x.dtype == _FLOAT64  # not `is`: what comes out of a pickle has a type of its own
        and x.flags.c_contiguous
        and (ord is None or ord == 2)
        and axis is None
        and not keepdims
    ):
        return np.float64(math.sqrt(x.dot(x)))
    if type(x) is np.float64 and ord is None and axis is None and not keepdims:
        number = float(x)
        return np.float64(math.sqrt(number * number))
    return np.linalg.norm(x, ord, axis, keepdims)


def clip(a: Any, a_min: Any, a_max: Any) -> Any:
    """`numpy.clip`; fast for one of numpy's floats that Python's numbers need not change."""
    if (
        isinstance(a, np.floating)
        and type(a_min) in _PYTHONS
        and type(a_max) in _PYTHONS
        and a_min <= a <= a_max
    ):
        return a
    return np.clip(a, a_min, a_max)


def tolerance(
    x: Any,
    bounds: tuple[float, float] = (0.0, 0.0),
    margin: Any = 0.0,
    sigmoid: Any = "gaussian",
    value_at_margin: float = _DEFAULT_AT_MARGIN,
) -> Any:
    """`metaworld.utils.reward_utils.tolerance`; fast for a float and the two sigmoids the tasks use."""
    long_tail = sigmoid == "long_tail"
    if (
        not isinstance(x, float)
        or not (long_tail or sigmoid == "gaussian")
        or value_at_margin != _DEFAULT_AT_MARGIN
    ):
        return official_rewards.tolerance(x, bounds, margin, sigmoid, value_at_margin)
    lower, upper = bounds
    x, margin = float(x), float(margin)  # Python's floats compare and multiply faster than numpy's
    if not (lower <= upper and margin >= 0):
        return official_rewards.tolerance(x, bounds, margin, sigmoid, value_at_margin)
    if lower <= x <= upper:
        return 1.0
    if margin == 0:
        return 0.0
    distance = float(lower - x if x < lower else x - upper) / margin
    if long_tail:
        return 1 / ((distance * _LONG_TAIL_SCALE) ** 2 + 1)  # pow, as there: a product can differ
    return float(np.exp(-0.5 * (distance * _GAUSSIAN_SCALE) ** 2))


def hamacher_product(a: Any, b: Any) -> Any:
    """`metaworld.utils.reward_utils.hamacher_product`, which raises where either is outside [0, 1]."""
    if not (0.0 <= a <= 1.0 and 0.0 <= b <= 1.0):
        return official_rewards.hamacher_product(a, b)
    product = a * b
    denominator = a + b - product
    return product / denominator if denominator > 0 else 0


def quaternion(matrix: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns the quaternion (x, y, z, w) of an orthogonal matrix (3, 3), as scipy's `Rotation` computes it.

    Markley's method: divide by the largest of four candidates.
    Source: https://doi.org/10.2514/1.31730
    """
    m00, m01, m02, m10, m11, m12, m20, m21, m22 = matrix.ravel().tolist()
    trace = m00 + m11 + m22
    if m00 >= m11 and m00 >= m22 and m00 >= trace:
        x, y, z, w = 1 - trace + 2 * m00, m10 + m01, m20 + m02, m21 - m12
    elif m11 >= m22 and m11 >= trace:
        x, y, z, w = m01 + m10, 1 - trace + 2 * m11, m21 + m12, m02 - m20
    elif m22 >= trace:
        x, y, z, w = m02 + m20, m12 + m21, 1 - trace + 2 * m22, m10 - m01
    else:
        x, y, z, w = m21 - m12, m02 - m20, m10 - m01, 1 + trace
    length = math.sqrt(x * x + y * y + z * z + w * w)
    return np.array([x / length, y / length, z / length, w / length])


class Rotation(OfficialRotation):  # type: ignore[misc]
    """scipy's `Rotation` whose `from_matrix(m).as_quat()` makes no rotation and checks nothing."""

    @classmethod
    def from_matrix(cls, matrix: npt.NDArray[np.float64]) -> Any:
        """Returns an object that knows the matrix's quaternion."""
        return _Quaternion(matrix)


class _Quaternion:
    __slots__ = ("_matrix",)

    def __init__(self, matrix: npt.NDArray[np.float64]) -> None:
        self._matrix = matrix

    def as_quat(self) -> npt.NDArray[np.float64]:
        return quaternion(self._matrix)


@cache
def replacements() -> dict[str, Any]:
    """Returns the replacements for the official helpers, by module-level name."""
    numpy = types.ModuleType("numpy")
    numpy.__dict__.update(vars(np))
    numpy.clip = clip  # type: ignore[attr-defined]
    numpy.linalg = types.SimpleNamespace(**(vars(np.linalg) | {"norm": norm}))  # type: ignore[attr-defined]
    helpers = {"tolerance": tolerance, "hamacher_product": hamacher_product}
    rewards = types.SimpleNamespace(**(vars(official_rewards) | helpers))
    return {"np": numpy, "reward_utils": rewards, "tolerance": tolerance, "Rotation": Rotation}


def caging_reward(
    env: Any,
    action: npt.NDArray[np.float32],
    obj_pos: npt.NDArray[np.float64],
    obj_radius: float,
    pad_success_thresh: float,
    object_reach_radius: float,
    xz_thresh: float,
    desired_gripper_effort: float = 1.0,
    high_density: bool = False,
    medium_density: bool = False,
) -> Any:
    """Computes `SawyerXYZEnv._gripper_caging_reward` with scalars; takes and returns what that does."""
    if high_density and medium_density:
        raise ValueError("Can only be either high_density or medium_density")
    initial, initial_tcp = env.obj_init_pos, env.init_tcp
    object_y, initial_y = obj_pos[1], initial[1]

    sides = []
    for pad in ("leftpad", "rightpad"):
        pad_y = env.get_body_com(pad)[1]
        sides.append(
            tolerance(
                abs(pad_y - object_y),
                bounds=(obj_radius, pad_success_thresh),
                margin=abs(abs(pad_y - initial_y) - pad_success_thresh),
                sigmoid="long_tail",
            )
        )
    beside = hamacher_product(*sides)

    tcp = env.tcp_center
    above = tolerance(
        norm(tcp[::2] - obj_pos[::2]),
        bounds=(0, xz_thresh),
        margin=norm(initial[::2] - initial_tcp[::2]) - xz_thresh,
        sigmoid="long_tail",
    )
    closed: Any = min(max(0, action[-1]), desired_gripper_effort) / desired_gripper_effort
    caging = hamacher_product(beside, float(above))
    gripping = closed if caging > 0.97 else 0.0
    reward = hamacher_product(caging, gripping)
    if high_density:
        reward = (reward + caging) / 2
    if medium_density:
        reach = tolerance(
            norm(obj_pos - tcp),
            bounds=(0, object_reach_radius),
            margin=abs(norm(initial - initial_tcp) - object_reach_radius),
            sigmoid="long_tail",
        )
        reward = (reward + float(reach)) / 2
    return reward
