import numpy as np
import pytest

from trainer.envs import fast_helpers, fast_metaworld, self_check
from trainer.envs.fast_metaworld import fast_class
from trainer.envs.official import official_class
from trainer.envs.self_check import difference, environment_class


def made_now(task: str):
    return fast_class.__wrapped__(task)


def test_a_sound_class_passes_and_is_used():
    assert difference("push-v3", made_now) is None
    assert environment_class("push-v3") is fast_class("push-v3")


def test_a_last_bit_in_a_helper_is_caught(monkeypatch):
    sound = fast_helpers.norm

    def unsound(x, *args, **kwargs):
        return np.nextafter(sound(x, *args, **kwargs), 2)

    monkeypatch.setattr(fast_helpers, "norm", unsound)
    assert "at step 0" in difference("reach-v3", made_now)


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


def test_a_class_that_fails_is_a_difference(monkeypatch):
    def fails(task):
        raise AttributeError("no such name")

    assert difference("reach-v3", fails) == "AttributeError: no such name"


def test_a_task_that_differs_is_played_by_the_official_class(monkeypatch, capfd):
    monkeypatch.setattr(self_check, "difference", lambda task, make: "reward at step 3 with goal 0")
    assert environment_class.__wrapped__("reach-v3") is official_class("reach-v3")
    said = capfd.readouterr().err
    assert "reach-v3" in said
    assert "reward at step 3" in said


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [(0.0, -0.0, False), (np.nan, np.nan, True), ({"x": 1}, {"x": 1.0}, True), ({}, {"x": 1}, False)],
)
def test_same_means_the_same_bits(a, b, verdict):
    assert self_check.same(a, b) is verdict
