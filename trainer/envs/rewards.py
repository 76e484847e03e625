"""The reward for closing the gripper round an object, which a third of the tasks share."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.envs.fast_helpers import hamacher_product, norm, tolerance


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
