import gymnasium
import numpy as np
import pytest

from tests.trainer.toys import CounterFactory
from trainer.envs.gymnasium_env import GymnasiumFactory
from trainer.evaluation.evaluator import Evaluator, evaluation_goals, spread_goals

pytestmark = pytest.mark.usefixtures("warm_processes")


def lazy(observation, task):
    return np.zeros((len(task), 2), np.float32)


@pytest.mark.parametrize("workers", [0, 2])
def test_goals_are_distinct_dealt_in_advance_and_solved_at_any_step(workers):
    seen = set()

    def watching(observation, task):
        seen.update((int(row[0]), int(row[1])) for row in observation)
        return lazy(observation, task)

    evaluator = Evaluator(CounterFactory(), 10, workers=workers, max_steps=30)
    result = evaluator.run(watching, spread_goals(10, 10, 50))
    evaluator.close()
    goals = [0, 5, 10, 15, 20, 25, 30, 35, 40, 45]
    assert seen == {(task, goal) for task in range(3) for goal in goals}
    # a goal g is met at step g, at that step only; 0 and those beyond the 30th step never
    assert result.success.tolist() == [[0 < goal <= 30 for goal in goals]] * 3
    # the reward of step n is n, up to the step that solves it
    ends = [goal if 0 < goal <= 30 else 30 for goal in goals]
    assert result.returns.tolist() == [[end * (end + 1) / 2 for end in ends]] * 3
    assert (result.tasks, result.goals.tolist()) == (("red", "green", "blue"), goals)


def test_it_can_be_used_again_and_given_up():
    evaluator = Evaluator(CounterFactory(), 3, max_steps=40)
    goals = spread_goals(3, 3, 50)
    first = evaluator.run(lazy, goals)
    calls = iter(range(100))
    assert evaluator.run(lazy, goals, lambda: next(calls) >= 5) is None
    again = evaluator.run(lazy, goals)
    assert np.array_equal(first.success, again.success)
    assert np.array_equal(first.returns, again.returns)


def test_more_episodes_than_environments():
    evaluator = Evaluator(CounterFactory(), 50, max_steps=60)
    result = evaluator.run(lazy, spread_goals(50, 50, 50))
    assert result.success.sum(1).tolist() == [49] * 3  # all goals but 0


def test_goals_are_spread_over_the_list():
    assert spread_goals(5, 5, 50).tolist() == [0, 10, 20, 30, 40]
    assert spread_goals(3, 50, 50).tolist() == [0, 16, 33]
    assert spread_goals(5, 2, 50).tolist() == [0, 25, 0, 25, 0]
    assert spread_goals(60, 60, 50).tolist() == [*range(50), *range(10)]


def leaning(observation, task):
    """Keeps CartPole up for a while: pushes where the pole leans."""
    return (observation[:, 2:3] > 0).astype(np.float32)


def test_episodes_of_any_length_are_played_to_their_own_end():
    found = []
    for training_seed in (0, 1):  # which does not matter: all evaluations start alike
        factory = GymnasiumFactory("CartPole-v1", actions="clipped", seed=training_seed)
        evaluator = Evaluator(factory, 60)
        found.append(evaluator.run(leaning, evaluation_goals({}, 60)))
        evaluator.close()
    assert found[0].success is None
    assert np.array_equal(found[0].returns, found[1].returns)
    theirs = gymnasium.make("CartPole-v1")
    for episode in (0, 41, 59):  # more than there are environments
        seed = int(np.random.SeedSequence((2**32, episode)).generate_state(1)[0])
        shown, total, over = theirs.reset(seed=seed)[0], 0.0, False
        while not over:
            shown, reward, terminated, truncated, _ = theirs.step(int(shown[2] > 0))
            total, over = total + reward, terminated or truncated
        assert found[0].returns[0, episode] == found[0].lengths[0, episode] == total


def test_success_is_told_where_the_environment_tells_it():
    factory = GymnasiumFactory("tests.trainer.envs_for_tests:Levers-v0", actions="clipped", seed=0)
    evaluator = Evaluator(factory, 2)

    def pulling(observation, task):
        return np.stack([observation[:, :3].argmax(1), observation[:, 3:].argmax(1)], 1).astype(np.float32)

    result = evaluator.run(pulling, evaluation_goals({}, 2))
    assert result.success.tolist() == [[True, True]]
    assert result.lengths.tolist() == [[8, 8]]  # success does not end an episode here
    assert result.returns.tolist() == [[16, 16]]
