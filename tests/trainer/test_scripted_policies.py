"""The official scripted policies solve through our vector what they solve through the official package."""

import warnings

import numpy as np
import pytest
from metaworld.env_dict import ALL_V3_ENVIRONMENTS, MT10_V3
from metaworld.policies import ENV_POLICY_MAP

from tests.sampling import sampled
from trainer.envs.metaworld import MAX_EPISODE_STEPS, MetaworldFactory
from trainer.envs.official import goal_vectors, official_task
from trainer.envs.schedule import Orders, WorkerCommand
from trainer.envs.vector import VectorEnv

NEVER = -1


def told(policy, observation: np.ndarray) -> np.ndarray:
    """The policy's action for an observation; some policies write into what they are given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some ask for more than 1 and say so
        return np.clip(policy.get_action(np.array(observation, np.float64)), -1, 1).astype(np.float32)


def solved_at_officially(task: str, goals: list[int]) -> np.ndarray:
    """The step of the first success for each goal, through the official package.

    Returns:
        Shown numbers of float32, as our vector shows them, and in full: shape (2, goals).
    """
    env, policy, vectors = ALL_V3_ENVIRONMENTS[task](), ENV_POLICY_MAP[task](), goal_vectors(task, 50, 42)
    found = np.full((2, len(goals)), NEVER)
    for which, place in np.ndindex(found.shape):
        env.set_task(official_task(task, vectors[goals[place]]))
        observation = env.reset()[0]
        for step in range(MAX_EPISODE_STEPS):
            shown = observation if which else observation.astype(np.float32)
            observation, _, _, _, info = env.step(told(policy, shown))
            if info["success"]:
                found[which, place] = step
                break
    return found


def solved_at(tasks: list[str], goals: list[int], workers: int) -> np.ndarray:
    """The same through our vector, for all tasks at once, shape (tasks, goals)."""
    task = np.repeat(np.arange(len(tasks), dtype=np.int32), len(goals))
    goal = np.tile(np.array(goals, np.int32), len(tasks))
    policies = [ENV_POLICY_MAP[tasks[each]]() for each in task]
    found = np.full(task.size, NEVER)
    with VectorEnv(MetaworldFactory(tuple(tasks)), task.size, workers=workers) as vector:
        vector.reset(Orders(np.full(task.size, WorkerCommand.RESET, np.int8), task, goal))
        for step in range(MAX_EPISODE_STEPS):
            playing = found == NEVER
            if not playing.any():
                break
            shown, action = vector.observation, np.zeros((task.size, 4), np.float32)
            for env in np.flatnonzero(playing):
                action[env] = told(policies[env], shown[env])
            vector.start(
                Orders(np.where(playing, WorkerCommand.STEP, WorkerCommand.IDLE).astype(np.int8), task, goal),
                action,
            )
            success = vector.wait().success
            found[playing & success] = step
    return found.reshape(len(tasks), len(goals))


def score_the_same(tasks: list[str], goals: list[int], workers: int) -> None:
    ours = solved_at(tasks, goals, workers)
    official = np.array([solved_at_officially(task, goals) for task in tasks])
    # given the same numbers, the same step of the same episode succeeds
    assert dict(zip(tasks, ours.tolist(), strict=True)) == dict(
        zip(tasks, official[:, 0].tolist(), strict=True)
    )
    # and given the numbers in full, as many episodes of each task
    found, expected = ((each != NEVER).sum(axis=1).tolist() for each in (ours, official[:, 1]))
    assert dict(zip(tasks, found, strict=True)) == dict(zip(tasks, expected, strict=True))
    assert sum(found) >= 0.9 * ours.size


@pytest.mark.slow
@pytest.mark.parametrize("task", sampled(MT10_V3, 3))
def test_a_scripted_policy_scores_as_officially(task):
    score_the_same([task], [0], workers=0)


@pytest.mark.exhaustive
def test_scripted_policies_score_on_mt50_as_officially():
    score_the_same(list(ALL_V3_ENVIRONMENTS), [8, 40], workers=2)
