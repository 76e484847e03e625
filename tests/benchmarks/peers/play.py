"""Plays final policies: the same episodes for everyone, all at once, the likeliest actions."""

from __future__ import annotations

from collections.abc import Callable

import gymnasium
import numpy as np

Act = Callable[[np.ndarray], np.ndarray]
"""Observations (n, dim), float32 -> actions (n,) or (n, dim) in the environment's own units."""
FIRST_SEED = 1_000_000


def mean_return(environment: str, act: Act, episodes: int) -> float:
    """Returns the mean return of that many episodes, each from a start of its own."""
    envs = [gymnasium.make(environment) for _ in range(episodes)]
    space = envs[0].action_space
    seen = np.stack([env.reset(seed=FIRST_SEED + number)[0] for number, env in enumerate(envs)])
    going, total = list(range(episodes)), 0.0
    while going:
        actions = np.asarray(act(seen[going].astype(np.float32)))
        if isinstance(space, gymnasium.spaces.Box):
            actions = np.clip(actions.reshape(len(going), *space.shape), space.low, space.high)
        else:
            actions = actions.reshape(len(going)).astype(np.int64)
        for number, action in zip(list(going), actions, strict=True):
            seen[number], reward, terminated, truncated, _ = envs[number].step(action)
            total += float(reward)
            if terminated or truncated:
                going.remove(number)
    for env in envs:
        env.close()
    return total / episodes
