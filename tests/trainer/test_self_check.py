from dataclasses import replace

import numpy as np
import pytest
from metaworld.env_dict import ALL_V3_ENVIRONMENTS

from tests.sampling import sampled
from tests.trainer.runs import rows, run, settings_of_counters
from trainer.envs import fast_helpers, fast_metaworld, official, self_check
from trainer.envs.fast_metaworld import fast_class
from trainer.envs.metaworld import MetaworldFactory
from trainer.envs.official import STANDARD, goal_vectors, official_task, scratch_environment
from trainer.envs.self_check import difference, environment_class

TASKS = ("reach-v3", "door-close-v3")


def made_now(task: str):
    return fast_class.__wrapped__(task)


@pytest.mark.slow
def test_a_sound_class_passes():
    assert difference("push-v3", made_now) is None


@pytest.mark.slow
@pytest.mark.parametrize("task", sampled(ALL_V3_ENVIRONMENTS, 8))
def test_no_task_falls_back_on_this_machine(task):
    assert environment_class(task) == (fast_class(task), "")


def test_a_last_bit_in_a_helper_is_caught(monkeypatch):
    sound = fast_helpers.norm

    def unsound(x, *args, **kwargs):
        return np.nextafter(sound(x, *args, **kwargs), 2)

    monkeypatch.setattr(fast_helpers, "norm", unsound)
    monkeypatch.setattr(fast_metaworld, "replacements", fast_helpers.replacements.__wrapped__)
    assert "at step 0" in difference("reach-v3", made_now)


@pytest.mark.slow
def test_a_wrong_contact_is_caught(monkeypatch):
    monkeypatch.setattr(fast_metaworld._Fast, "touching_object", lambda self, geom: True)
    assert difference("coffee-push-v3", made_now).startswith("info at step")


def test_a_wrong_memory_of_the_start_is_caught(monkeypatch):
    class Forgetful(dict):
        def get(self, key):
            known = super().get(key)
            return known if known is None else known * (1 + 1e-15)

    def made_forgetful(task):
        made = made_now(task)
        made.starts = Forgetful()
        return made

    assert difference("reach-v3", made_forgetful).startswith("reset with goal")


@pytest.mark.slow
def test_a_copy_that_plays_with_anothers_positions_is_caught(monkeypatch):
    monkeypatch.setattr(official.SharedModel, "use", lambda self, positions: self.model)
    assert difference("door-close-v3", made_now) == "observation at step 0 with goal 0"


@pytest.mark.slow
def test_a_goal_that_changes_more_of_a_model_than_positions_is_caught(monkeypatch):
    task = "door-close-v3"
    goal_vectors(task, **STANDARD)
    sound = ALL_V3_ENVIRONMENTS[task].reset_model

    def heavy(self):
        self.model.dof_damping[:] *= 1 + self._last_rand_vec[0]
        return sound(self)

    # no other test gets what this one has spoilt
    monkeypatch.setattr(official, "_parsed", {})
    monkeypatch.setattr(self_check, "scratch_environment", scratch_environment.__wrapped__)
    monkeypatch.setattr(ALL_V3_ENVIRONMENTS[task], "reset_model", heavy)
    monkeypatch.setattr(self_check, "fast_class", made_now)
    made, remark = environment_class.__wrapped__(task)
    assert " at step " in remark
    # nor does the official class, used instead, get what the fast one or a copy has made heavy
    ours, other, alone = made(), made(), ALL_V3_ENVIRONMENTS[task]()
    for env, goal in ((ours, 0), (other, 1), (alone, 0)):
        env.set_task(official_task(task, goal_vectors(task, **STANDARD)[goal]))
        env.reset()
    for _ in range(5):
        action = np.ones(4, np.float32)
        other.step(action)
        assert self_check.same(ours.step(action)[0], alone.step(action)[0])


def test_a_class_that_fails_is_a_difference(monkeypatch):
    def fails(task):
        raise AttributeError("no such name")

    assert difference("reach-v3", fails) == "AttributeError: no such name"


def test_a_task_that_differs_is_played_by_the_official_class(monkeypatch):
    monkeypatch.setattr(self_check, "difference", lambda task, make: "reward at step 3 with goal 0")
    monkeypatch.setattr("trainer.envs.metaworld.environment_class", environment_class.__wrapped__)
    env = MetaworldFactory(("reach-v3",))(0)
    assert isinstance(env._env, ALL_V3_ENVIRONMENTS["reach-v3"])
    assert not isinstance(env._env, fast_metaworld._Fast)
    assert "reach-v3" in env.note
    assert "reward at step 3" in env.note


@pytest.mark.slow
def test_training_run_says_that_a_task_differs(monkeypatch, tmp_path):
    monkeypatch.setattr(self_check, "difference", lambda task, make: "reward at step 3 with goal 0")
    monkeypatch.setattr("trainer.envs.metaworld.environment_class", environment_class.__wrapped__)
    settings = replace(settings_of_counters(tmp_path, "--total-steps", "60", "--num-envs", "2"), tasks=TASKS)
    run(settings, MetaworldFactory(TASKS))
    events = [row["message"] for row in rows(tmp_path, "event")]
    assert [event for event in events if "door-close-v3 is played by the official environment" in event]


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [(0.0, -0.0, False), (np.nan, np.nan, True), ({"x": 1}, {"x": 1.0}, True), ({}, {"x": 1}, False)],
)
def test_same_means_the_same_bits(a, b, verdict):
    assert self_check.same(a, b) is verdict
