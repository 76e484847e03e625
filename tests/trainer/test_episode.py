"""An episode of Meta-World, interrupted anywhere and continued elsewhere, comes out the same to the bit."""

import json
import warnings

import numpy as np
import pytest
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
from metaworld.policies import ENV_POLICY_MAP

from tests.sampling import sampled
from trainer.envs.fast_metaworld import fast_class
from trainer.envs.metaworld import MetaworldEnv, MetaworldFactory
from trainer.envs.official import official_class

pytestmark = pytest.mark.slow

TELLING = ("push-v3", "door-lock-v3", "bin-picking-v3")
"""With contacts, with views of the physics as attributes, and with an attribute that a step binds."""
GOAL, NEXT_GOAL = 7, 21


def environment(task: str, make) -> MetaworldEnv:
    """A new environment of a class that may be made new as well, so that nothing is remembered."""
    env = MetaworldFactory((task,))(0)
    env._env = make(task)()
    return env


def new_class(task: str):
    return fast_class.__wrapped__(task)


def actions(task: str, scripted: bool):
    """Gives the action for an observation; the same sequence each time it is called."""
    policy, rng = ENV_POLICY_MAP[task](), np.random.default_rng(5)

    def act(observation: np.ndarray) -> np.ndarray:
        action = rng.uniform(-1, 1, 4)
        if scripted:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # some policies ask for more than 1 and say so
                action = np.clip(policy.get_action(observation.copy()) + 0.1 * action, -1, 1)
        return action.astype(np.float32)

    return act


def exact(outcome) -> tuple[bytes, str, bool]:
    observation, reward, success = outcome
    return observation.tobytes(), repr(reward), success


def goes_on(task: str, at: list[int], steps: int, scripted: bool, make=new_class, other=new_class) -> None:
    """Interrupts an episode after each of `at` steps and plays `steps` on, and across the next reset."""
    env, act = environment(task, make), actions(task, scripted)
    env.reset(NEXT_GOAL)
    for _ in range(3):
        env.step(np.ones(4, np.float32))  # an earlier episode
    observation = env.reset(GOAL)
    saved, told, came = {}, [], []
    for step in range(max(at) + steps):
        if step in at:
            saved[step] = json.loads(json.dumps(env.state()))
        told.append(act(observation))
        outcome = env.step(told[-1])
        observation = outcome[0]
        came.append(exact(outcome))
    start = env.reset(NEXT_GOAL).tobytes()
    next_episode = [exact(env.step(action)) for action in told[:20]]

    for step, state in saved.items():
        resumed = environment(task, other)
        resumed.restore(GOAL, state)
        assert resumed.state()["physics"] == state["physics"]
        assert [exact(resumed.step(action)) for action in told[step : step + steps]] == came[
            step : step + steps
        ]
        assert resumed.reset(NEXT_GOAL).tobytes() == start
        assert [exact(resumed.step(action)) for action in told[:20]] == next_episode


@pytest.mark.parametrize("task", sampled(ALL_V3_ENVIRONMENTS, 4, always=TELLING))
def test_an_episode_goes_on_to_the_bit_in_either_class(task):
    goes_on(task, [0, 1, 57, 299], 41, scripted=True)
    goes_on(task, [83], 61, False, official_class, official_class)


@pytest.mark.parametrize(("make", "other"), [(official_class, new_class), (new_class, official_class)])
def test_an_episode_of_one_class_goes_on_in_the_other(make, other):
    goes_on("bin-picking-v3", [40], 60, True, make, other)


def test_an_episode_ends_where_it_would_have():
    env = environment("reach-v3", new_class)
    env.reset(0)
    for _ in range(498):
        env.step(np.zeros(4, np.float32))
    resumed = environment("reach-v3", new_class)
    resumed.restore(0, json.loads(json.dumps(env.state())))
    resumed.step(np.zeros(4, np.float32))
    resumed.step(np.zeros(4, np.float32))
    with pytest.raises(ValueError, match="reset"):
        resumed.step(np.zeros(4, np.float32))
