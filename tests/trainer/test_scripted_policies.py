"""The official scripted policies solve through our vector what they solve through the official package."""

import warnings

import numpy as np
import pytest
from metaworld.env_dict import ALL_V3_ENVIRONMENTS, MT10_V3
from metaworld.policies import ENV_POLICY_MAP

from trainer.envs.metaworld import MAX_EPISODE_STEPS, MetaworldFactory
from trainer.envs.official import goal_vectors, official_task
from trainer.envs.schedule import Command, Orders
from trainer.envs.vector import VectorEnv

NEVER = -1


def told(policy, observation: np.ndarray) -> np.ndarray:
    """The policy's action for an observation; some policies write into what they are given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some ask for more than 1 and say so
        return np.clip(policy.get_action(np.array(observation, np.float64)), -1, 1).astype(np.float32)


def solved_at_officially(task: str, goals: list[int], dtype: type) -> list[int]:
    """The step of the first success for each goal, through the official package."""
    env, policy, vectors = ALL_V3_ENVIRONMENTS[task](), ENV_POLICY_MAP[task](), goal_vectors(task, 50, 42)
    found = []
    for goal in goals:
        env.set_task(official_task(task, vectors[goal]))
        observation = env.reset()[0]
        found.append(NEVER)
        for step in range(MAX_EPISODE_STEPS):
            observation, _, _, _, info = env.step(told(policy, observation.astype(dtype)))
            if info["success"]:
                found[-1] = step
                break
    return found


def solved_at(tasks: list[str], goals: list[int]) -> np.ndarray:
    """The same through our vector, for all tasks at once, shape (tasks, goals)."""
    task = np.repeat(np.arange(len(tasks), dtype=np.int32), len(goals))
    goal = np.tile(np.array(goals, np.int32), len(tasks))
    policies = [ENV_POLICY_MAP[tasks[each]]() for each in task]
    found = np.full(task.size, NEVER)
    with VectorEnv(MetaworldFactory(tuple(tasks)), task.size, workers=2) as vector:
        vector.reset(Orders(np.full(task.size, Command.RESET, np.int8), task, goal))
        for step in range(MAX_EPISODE_STEPS):
            playing = found == NEVER
            if not playing.any():
                break
            shown, action = vector.observation, np.zeros((task.size, 4), np.float32)
            for env in np.flatnonzero(playing):
                action[env] = told(policies[env], shown[env])
            vector.start(
                Orders(np.where(playing, Command.STEP, Command.IDLE).astype(np.int8), task, goal), action
            )
            success = vector.wait().success
            found[playing & success] = step
    return found.reshape(len(tasks), len(goals))


def score_the_same(tasks: list[str], goals: list[int]) -> None:
    ours = solved_at(tasks, goals)
    # what our vector shows is in float32: given the same numbers, the same step of the same episode succeeds
    same_numbers = [solved_at_officially(task, goals, np.float32) for task in tasks]
    assert dict(zip(tasks, ours.tolist(), strict=True)) == dict(zip(tasks, same_numbers, strict=True))
    # and given the numbers in full, as many episodes of each task
    in_full = [solved_at_officially(task, goals, np.float64) for task in tasks]
    counts = (ours != NEVER).sum(axis=1), (np.array(in_full) != NEVER).sum(axis=1)
    assert dict(zip(tasks, counts[0].tolist(), strict=True)) == dict(
        zip(tasks, counts[1].tolist(), strict=True)
    )
    assert counts[0].mean() >= 0.9 * len(goals)


def test_scripted_policies_score_on_mt10_as_officially():
    score_the_same(list(MT10_V3), [0])


@pytest.mark.slow
def test_scripted_policies_score_on_mt50_as_officially():
    score_the_same(list(ALL_V3_ENVIRONMENTS), [8, 40])
