"""Real Gymnasium environments behind the vector."""

import json
import os

import gymnasium
import numpy as np
import pytest

from trainer.envs.gymnasium_env import GymnasiumFactory
from trainer.envs.interface import OWN_CHOICE
from trainer.envs.schedule import Autoreset, Orders, WorkerCommand
from trainer.envs.spaces import action_space, drawn, observation_reader
from trainer.envs.vector import VectorEnv
from trainer.envs.worker import one_thread_each
from trainer.errors import UsageError

HERE = "tests.trainer.envs_for_tests"
pytestmark = pytest.mark.usefixtures("warm_processes")

LEVERS, DOORS, HIDDEN = (f"{HERE}:{name}-v0" for name in ("Levers", "Doors", "HiddenDoors"))


def make(environment: str, actions: str = "clipped", seed: int = 0) -> GymnasiumFactory:
    return GymnasiumFactory(environment, actions=actions, seed=seed)


class Played:
    """Everything that comes out of a run of an environment, with a stop in the middle if asked for."""

    def __init__(self, factory: GymnasiumFactory, num_envs: int) -> None:
        self._factory, self._num_envs = factory, num_envs
        self._rng = np.random.default_rng(1)
        self._states = None
        self.rows: list[np.ndarray] = []

    def play(self, steps: int, workers: int) -> np.ndarray:
        count = self._num_envs
        with VectorEnv(self._factory, count, workers=workers) as vector:
            if self._states is None:
                vector.reset(Autoreset(count).first())
            else:
                vector.restore(self._states)
            for _ in range(steps):
                shown = vector.observation
                vector.start(Autoreset(count).advance(), drawn(self._factory.action_space, self._rng, count))
                outcome = vector.wait()
                ends = outcome.reward, outcome.success, outcome.terminated, outcome.truncated
                columns = [shown, outcome.next_observation, *(each[:, None] for each in ends)]
                self.rows.append(np.concatenate(columns, axis=1))
            self._states = json.loads(json.dumps(vector.state()))
        return np.array(self.rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "workers", "ends"),
    [
        ("CartPole-v1", 1, True),
        ("Pendulum-v1", 1, False),
        (LEVERS, 2, True),
        (DOORS, 1, True),
        ("Hopper-v5", 1, True),
        ("Ant-v5", 1, False),
    ],
)
def test_a_run_is_the_same_to_the_bit_with_any_workers_wherever_it_goes_on(environment, workers, ends):
    whole, stopped = Played(make(environment), 3), Played(make(environment), 3)
    rows = whole.play(70, workers=0)
    assert rows[:, :, -2:].any() or not ends
    for steps, here in ((33, workers), (1, 0), (36, 0)):
        stopped.play(steps, here)
    assert np.array_equal(stopped.rows, rows)


def test_an_environment_is_what_gymnasium_makes_of_it():
    factory, rng = make("CartPole-v1", seed=5), np.random.default_rng(2)
    theirs = gymnasium.make("CartPole-v1")
    with VectorEnv(factory, 2) as vector:
        vector.reset(Autoreset(2).first())
        # the second environment's seed is not the first one's of the next run
        seed = int(np.random.SeedSequence((5, 1)).generate_state(1)[0])
        shown, _ = theirs.reset(seed=seed)
        ended = 0
        for _ in range(100):
            assert np.array_equal(vector.observation[1], shown)
            action = drawn(factory.action_space, rng, 2)
            vector.start(Autoreset(2).advance(), action)
            outcome = vector.wait()
            shown, reward, terminated, truncated, _ = theirs.step(int(action[1, 0]))
            assert np.array_equal(outcome.next_observation[1], shown)
            found = outcome.reward[1], outcome.terminated[1], outcome.truncated[1]
            assert found == (reward, terminated, truncated)
            if terminated or truncated:
                ended += 1
                shown, _ = theirs.reset()  # no seed: its own generator goes on
    assert ended >= 2


def test_the_end_of_time_truncates_and_does_not_terminate():
    factory = make("Pendulum-v1")
    assert factory.horizon == 200
    rows = Played(factory, 1).play(201, workers=0)[:, 0]
    assert rows[:, -2].sum() == 0
    assert np.flatnonzero(rows[:, -1]).tolist() == [199]
    shown, led_to = rows[200, :3], rows[199, 3:6]
    assert not np.array_equal(shown, led_to)  # the end was kept, and another episode has begun


def test_the_other_commands_tell_of_the_end_and_leave_the_next_episode_to_the_caller():
    with VectorEnv(make(DOORS), 1) as vector:
        vector.reset(Autoreset(1, 7).first())
        drawn_at_start = vector.observation[0, 1]
        order = Orders(np.array([WorkerCommand.STEP], np.int8), np.zeros(1, np.int32), np.zeros(1, np.int32))
        ends = []
        for _ in range(3 + int(drawn_at_start) % 2):
            vector.start(order, np.zeros((1, 2), np.float32))
            ends.append(bool(vector.wait().terminated[0]))
        assert ends[-1]
        assert not any(ends[:-1])
        assert vector.observation.tolist() == [[len(ends), drawn_at_start]]
        vector.reset(Autoreset(1, 7).first())
        assert vector.observation.tolist() == [[0, drawn_at_start]]
        vector.reset(Autoreset(1, 8).first())
        assert vector.observation[0, 1] != drawn_at_start


def test_choices_are_counted_from_nought_and_observed_one_by_one():
    factory = make(LEVERS)
    space = factory.action_space
    assert (space.kind, space.nvec, space.start, space.dim) == ("discrete", (3, 4), (2, -1), 2)
    assert (factory.observation_dim, factory.horizon, factory.reports_success) == (7, 8, True)
    with VectorEnv(factory, 1) as vector:
        vector.reset(Autoreset(1).first())
        for _ in range(20):
            shown = vector.observation[0]
            assert shown[:3].sum() == shown[3:].sum() == 1
            action = np.array([[shown[:3].argmax(), shown[3:].argmax()]], np.float32)
            vector.start(Autoreset(1).advance(), action)
            outcome = vector.wait()
            assert outcome.reward[0] == 2
            assert outcome.success[0]


def test_numbers_are_stretched_to_the_bounds_or_cut_at_them():
    scaled, raw = make("Pendulum-v1", "scaled")(0), make("Pendulum-v1", "clipped")(0)
    for row, torques in ((-1.0, (-2, -1)), (0.5, (1, 0.5)), (1.0, (2, 1)), (9.0, (2, 2))):
        found = [float(env._act(np.array([row], np.float32))[0]) for env in (scaled, raw)]
        assert found == list(torques)
    half_open = make(DOORS)(0)._act(np.array([-5.0, 1e9], np.float32))
    assert half_open.tolist() == [-1.0, 1e9]


def test_a_state_that_cannot_be_put_back_is_said_and_not_pretended():
    env = make(HIDDEN)(0)
    env.reset(0)
    assert env.state() == {"lost": "an episode put back goes another way"}


@pytest.mark.parametrize(
    ("environment", "actions", "words"),
    [
        ("CartPoel-v1", "clipped", r"no environment 'CartPoel-v1'; did you mean CartPole-v1"),
        ("CartPole-v7", "clipped", r"no environment 'CartPole-v7'; did you mean CartPole-v"),
        ("ALE/Pong-v5", "clipped", r"no environment 'ALE/Pong-v5'"),
        ("LunarLander-v3", "clipped", r"LunarLander-v3 needs a package: .*box2d"),
        ("no_such_module:Env-v0", "clipped", r"the module no_such_module of .* cannot be imported"),
        (f"{HERE}:Levres-v0", "clipped", r"no environment .*; did you mean Levers-v0"),
        (f"{HERE}:Words-v0", "clipped", r"an observation is a Text"),
        (f"{HERE}:StuckDoors-v0", "clipped", r"fails in its first steps: RuntimeError: the hinge is stuck"),
        (DOORS, "scaled", r"its actions have no bounds \(0 to inf\), but the algorithm needs bounds"),
        ("", "clipped", r"'' cannot be made"),
    ],
)
def test_what_cannot_be_played_is_refused_in_one_line(environment, actions, words):
    if environment == "LunarLander-v3":
        try:
            import Box2D  # noqa: F401
        except ImportError:
            pass
        else:
            pytest.skip("Box2D is installed here")
    with pytest.raises(UsageError, match=words) as caught:
        make(environment, actions)
    assert "\n" not in caught.value.cause


ODD = f"{HERE}:Odd-v0"
LARGEST, LARGEST64 = float(np.finfo(np.float32).max), float(np.finfo(np.float64).max)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (f"low=-{LARGEST}&high={LARGEST}", r"no bounds \(-3.40282e\+38 to 3.40282e\+38\)"),
        (f"low=-{LARGEST64}&high={LARGEST64}&dtype=float64", r"no bounds \(-1.79769e\+308 to"),
        ("low=-1e30&high=1e30", r"no bounds \(-1e\+30 to 1e\+30\)"),
        (f"high={LARGEST}", r"no bounds \(-1 to 3.40282e\+38\)"),
        (f"low=-{LARGEST}", r"no bounds \(-3.40282e\+38 to 1\)"),
        ("low=-Infinity", r"no bounds \(-inf to 1\)"),
        ("high=Infinity", r"no bounds \(-1 to inf\)"),
        (
            "old=true",
            "reset returned the observation alone, as in the old Gym API; Gymnasium's reset returns",
        ),
        ("reward=null", "a reward is None, not one number"),
        ("reward=[0]", r"a reward is \[0\], not one number"),
        ("reward=high", "a reward is 'high', not one number"),
        ("reward=NaN", "a reward is nan"),
        ("terminated=null", "terminated is None, neither true nor false"),
        ("truncated=no", "truncated is 'no', neither true nor false"),
        ("info=null", "the info that step returned is None, no dictionary"),
        ('info={"success": "False"}', r"info\['success'\] is 'False', neither true nor false"),
        ('info={"is_success": [1, 0]}', r"info\['is_success'\] is \[1, 0\], neither true nor false"),
        ('info={"success": 0.4}', r"info\['success'\] is 0.4, neither true nor false"),
        ('info={"success": NaN}', r"info\['success'\] is nan, neither true nor false"),
    ],
)
def test_an_environment_that_would_be_learnt_wrong_is_refused_with_what_it_returned(arguments, words):
    with pytest.raises(UsageError, match=words) as caught:
        make(f"{ODD}?{arguments}", "scaled")
    assert "\n" not in caught.value.cause


def test_bounds_that_can_be_computed_are_kept_in_any_precision():
    for arguments, action in (
        ("low=-60000&high=60000&dtype=float16", -30000.0),
        ("low=-1e9&high=1e9", -5e8),
        ("low=0.5&high=0.5", 0.5),
    ):
        env = make(f"{ODD}?{arguments}", "scaled")(0)
        assert env._act(np.array([-0.5], np.float32)).tolist() == [action]


def test_an_action_space_without_a_number_is_refused():
    for low, high in ((1.0, -1.0), (np.nan, 1.0)):
        space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
        space.low[:], space.high[:] = low, high  # Gymnasium itself refuses to make it
        with pytest.raises(UsageError, match=r"mine: an action is from .* where no number is"):
            action_space(space, "mine")


@pytest.mark.parametrize("value", ["true", "1", "1.0", "False", "0"])
def test_success_is_a_truth_value(value):
    assert make(f'{ODD}?info={{"success": {value.lower()}}}').reports_success


def test_an_environment_gets_its_arguments():
    env = make("Pendulum-v1?g=3.5")(0)
    assert env.env.unwrapped.g == 3.5
    assert make("Pendulum-v1?g=3.5").tasks == ("Pendulum-v1?g=3.5",)
    with pytest.raises(UsageError, match=r"cannot be made: TypeError: .* unexpected keyword argument 'h'"):
        make("Pendulum-v1?h=3.5")


def test_metaworlds_own_registration_takes_its_task_by_an_argument():
    env = make("metaworld:Meta-World/MT1?env_name=reach-v3", "scaled")(0)
    assert env.reset(0).shape == (39,)
    assert type(env.env.unwrapped).__name__ == "SawyerReachEnvV3"


def test_workers_compute_in_one_thread_each():
    before = dict(os.environ)
    with one_thread_each():
        assert {os.environ[name] for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")} == {"1"}
    assert dict(os.environ) == before


def test_a_seed_gives_the_episodes_and_no_seed_goes_on():
    env, again, other = (make(DOORS, seed=seed)(0) for seed in (3, 3, 4))
    first = [env.reset(goal).tolist() for goal in (0, OWN_CHOICE, OWN_CHOICE)]
    assert first == [again.reset(goal).tolist() for goal in (0, OWN_CHOICE, OWN_CHOICE)]
    assert first != [other.reset(goal).tolist() for goal in (0, OWN_CHOICE, OWN_CHOICE)]


@pytest.mark.parametrize(("shown", "words"), [(None, "an observation is None"), (np.zeros(1), "1 numbers")])
def test_an_observation_that_numpy_would_make_numbers_of_is_refused(shown, words):
    space = gymnasium.spaces.Box(-1.0, 1.0, (3,))
    _, read = observation_reader(space, "mine")
    with pytest.raises((TypeError, ValueError), match=words):
        read(shown)
