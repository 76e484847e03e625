"""Several on-policy learners at once: each is to come to what it comes to alone, to the bit."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.trainer.learners import live
from tests.trainer.runs import settings_for
from tests.trainer.test_capture import CpuRecorder
from tests.trainer.test_on_policy import STANDARDISED
from trainer.algorithms.capture import CapturedUpdate
from trainer.envs.gymnasium_env import GymnasiumFactory
from trainer.loops.generators import Stream
from trainer.loops.rollout_group import RolloutGroup
from trainer.loops.rollout_learner import RolloutLearner
from trainer.nn import perceptron
from trainer.ranks.parallel import Ranks
from trainer.seeds.group import join_learners

CPU = torch.device("cpu")
SEEDS = 3
BOX = "tests.trainer.echoes:Echo-v0"
EVERYTHING = STANDARDISED | {
    "value_clip_range": "0.2",
    "entropy_coefficient": "0.01",
    "learning_rate_schedule": "linear",
}
CASES: dict[str, tuple[str, dict[str, str]]] = {
    "ppo": ("ppo", {}),
    "ppo box": ("ppo", {"environment": BOX, **EVERYTHING}),
    "odd sizes": ("ppo", {"environment": BOX, "hidden": "13,7", "rollout_size": "44", "batch_size": "11"}),
    "a2c": ("a2c", {}),
    "a2c box": ("a2c", {"environment": BOX, "activation": "relu", "normalize_advantages": "true"}),
    "a2c adam": ("a2c", {"optimizer": "adam", "entropy_coefficient": "0.01"}),
}


class Seed:
    """A learner with its stream and what it lives through.

    Args:
        number: the seed.
        share: of the training that is left.
    """

    def __init__(
        self, tmp_path: Path, number: int, recipe: str, values: dict[str, str], device: torch.device = CPU
    ) -> None:
        settings = settings_for(tmp_path, recipe, "--num-envs", "4", **values)
        torch.manual_seed(number)
        factory = GymnasiumFactory(settings.recipe.values["environment"], actions="clipped", seed=0)
        self.learner = RolloutLearner(settings, factory, device, Ranks())
        self.stream = Stream(device)
        self._box = factory.action_space.kind == "box"
        self._rng = np.random.default_rng(number)
        self.share = 1.0 - 0.1 * number

    def live(self, spoilt: float = 0.0) -> None:
        """Fills the rollout; `spoilt` is added to its rewards."""
        live(self.learner.rollout, self._rng, box=self._box, spoilt=spoilt)

    def state(self) -> list[Tensor]:
        """Everything there is to compare."""
        agent = self.learner.agent
        learnt = [agent.policy.state_dict(), agent._reward_moments.state_dict(), self.learner.losses]
        tensors = [each for part in learnt for each in part.values()]
        return [*tensors, *agent._optimizer.tensors(), agent.sums, agent.skipped, agent.stopped]


def alone(seed: Seed) -> None:
    with seed.stream:
        seed.learner.learn(seed.share, lambda _: None)


def at_once(group: RolloutGroup, seeds: Sequence[Seed], who: Sequence[int]) -> list[int]:
    """Lets these seeds learn from their rollouts; returns how many took part in each epoch."""
    epochs: dict[int, int] = {}
    parts: list[int] = []

    def count(number: int, updates: int) -> None:
        epoch = epochs[number] = epochs.get(number, 0) + 1
        parts.extend([0] * (epoch - len(parts)))
        parts[epoch - 1] += 1
        assert updates == seeds[number].learner.cuts.count

    group.learn(who, [seeds[number].share for number in who], count)
    return parts


def make(
    tmp_path: Path, recipe: str, values: dict[str, str], device: torch.device = CPU
) -> tuple[list[Seed], list[Seed], RolloutGroup]:
    """The same seeds twice: to learn alone, and to learn at once."""
    one, other = (
        [Seed(tmp_path, number, recipe, values, device) for number in range(SEEDS)] for _ in range(2)
    )
    group = join_learners([seed.learner for seed in other], [seed.stream for seed in other])
    assert isinstance(group, RolloutGroup)
    return one, other, group


def live_and_learn(one: Sequence[Seed], other: Sequence[Seed], group: RolloutGroup) -> list[int]:
    """A rollout and what is learnt from it, alone and at once; returns what `at_once` does."""
    for seed in (*one, *other):
        seed.live()
    for seed in one:
        alone(seed)
    return at_once(group, other, range(SEEDS))


def check_same(one: Seed, other: Seed) -> None:
    for expected, found in zip(one.state(), other.state(), strict=True):
        assert torch.equal(expected.nan_to_num(7.0), found.nan_to_num(7.0))
    with one.stream:
        drawn = torch.rand(3)
    with other.stream:
        assert torch.equal(drawn, torch.rand(3))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_each_learns_what_it_would_alone(tmp_path: Path, case: str) -> None:
    one, other, group = make(tmp_path, *CASES[case])
    for _ in range(3):
        taken = live_and_learn(one, other, group)
        assert set(taken) == {SEEDS}
        for pair in zip(one, other, strict=True):
            check_same(*pair)
            assert pair[0].learner.explained_variance() == pair[1].learner.explained_variance()


@pytest.mark.slow
def test_who_has_had_enough_of_a_rollout_stays_as_it_is(tmp_path: Path) -> None:
    values = {"target_kl": "0.001", "learning_rate": "3e-3", "epochs": "6", **STANDARDISED}
    one, other, group = make(tmp_path, "ppo", values)
    parts = set()
    for spoilt in (0.0, 30.0, 0.0):
        for seeds in (one, other):
            for number, seed in enumerate(seeds):
                seed.live(spoilt * number)
        for seed in one:
            alone(seed)
        parts |= set(at_once(group, other, range(SEEDS)))
        for pair in zip(one, other, strict=True):
            check_same(*pair)
    assert {SEEDS, 2, 1} <= parts, "all ways of learning with the others"


def test_what_is_not_finite_in_one_touches_no_other(tmp_path: Path) -> None:
    one, other, group = make(tmp_path, "ppo", STANDARDISED)
    for spoilt in (np.nan, 0.0):
        for seeds in (one, other):
            for number, seed in enumerate(seeds):
                seed.live(spoilt if number == 1 else 0.0)
        for seed in one:
            alone(seed)
        at_once(group, other, range(SEEDS))
        for pair in zip(one, other, strict=True):
            check_same(*pair)
    assert [int(seed.learner.agent.skipped[0]) for seed in other] == [0, 8, 0]


def test_learners_are_joined_anew_when_one_is_replaced(tmp_path: Path) -> None:
    one, other, group = make(tmp_path, "ppo", {})
    live_and_learn(one, other, group)
    spare = Seed(tmp_path, 9, "ppo", {})
    several = [other[0], spare, other[2]]
    group = RolloutGroup([seed.learner for seed in several], [seed.stream for seed in several])
    for number in (0, 2):
        one[number].live()
        other[number].live()
        alone(one[number])
    assert set(at_once(group, several, (0, 2))) == {2}, "the spare one has no full rollout"
    for number in (0, 2):
        check_same(one[number], other[number])


@pytest.mark.parametrize("recipe", ["a2c", "ppo"])
def test_what_is_stored_of_one_holds_nothing_of_the_others(tmp_path: Path, recipe: str) -> None:
    one, other, _ = make(tmp_path, recipe, STANDARDISED)
    sizes = []
    for seed in (one[0], other[0]):
        held = io.BytesIO()
        torch.save(seed.learner.agent.state_dict(), held)
        sizes.append(len(held.getvalue()))
    assert sizes[0] == sizes[1]


def capture(captured: Any, names: Sequence[str]) -> None:
    """Has steps captured as on a GPU: from then on each returns the same tensors, and reads the same."""
    for name in names:
        plain = getattr(captured, name)
        setattr(captured, name, CapturedUpdate(plain._step, plain._tensors, CPU, CpuRecorder()))


@pytest.mark.slow
def test_what_is_logged_of_a_captured_update_is_that_of_the_last_one_that_a_learner_took(
    tmp_path: Path,
) -> None:
    one, other, group = make(tmp_path, "ppo", {})
    capture(group._joint, ["_update"])
    for who in (range(SEEDS), (0, 1)):
        for number in who:
            one[number].live()
            other[number].live()
            alone(one[number])
        assert len(who) in at_once(group, other, who)
        for pair in zip(one, other, strict=True):
            check_same(*pair)


def test_what_a_learner_has_captured_by_itself_is_dropped_when_its_rows_move(tmp_path: Path) -> None:
    _, other, group = make(tmp_path, "ppo", {})
    learner = other[0].learner
    other[0].live()
    at_once(group, other, [0])
    before = learner.rows, learner._update
    for seed in other:
        seed.live()
    at_once(group, other, range(SEEDS))
    assert learner.rows is not before[0]
    assert learner._update is not before[1]
    unmoved = learner._update
    learner.keep(learner.rows)
    assert learner._update is unmoved


@pytest.mark.parametrize("case", ["ppo box", "a2c"])
def test_batched_products_differ_by_rounding_alone(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU."""
    monkeypatch.setattr(perceptron, "_one_by_one", lambda rows: False)
    one, other, group = make(tmp_path, *CASES[case])
    live_and_learn(one, other, group)
    for pair in zip(one, other, strict=True):
        for expected, found in zip(pair[0].state(), pair[1].state(), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.cuda
@pytest.mark.parametrize("case", CASES)
def test_on_a_gpu_all_are_captured_as_one(tmp_path: Path, case: str) -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    one, other, group = make(tmp_path, *CASES[case], device)
    for _ in range(2):
        live_and_learn(one, other, group)
    for pair in zip(one, other, strict=True):
        assert not pair[1].learner.note
        for expected, found in zip(pair[0].state(), pair[1].state(), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_learners_of_other_hyperparameters_learn_one_after_the_other_and_say_so(tmp_path: Path) -> None:
    seeds = [Seed(tmp_path, 0, "ppo", {"gamma": gamma}) for gamma in ("0.9", "0.99")]
    assert join_learners([seed.learner for seed in seeds], [seed.stream for seed in seeds]) is None
    assert all("one after the other" in seed.learner.note for seed in seeds)
    agents = [seed.learner.agent for seed in seeds]
    agents[1]._config = replace(agents[0]._config)
    assert RolloutGroup.fit([seed.learner for seed in seeds])


def test_large_batches_are_learnt_one_learner_after_the_other_on_a_cpu(tmp_path: Path) -> None:
    sizes = {"hidden": "128", "rollout_size": "512", "batch_size": "512"}
    one, other, group = make(tmp_path, "ppo", sizes)
    assert not group._joint.pays(512)
    live_and_learn(one, other, group)
    for pair in zip(one, other, strict=True):
        check_same(*pair)
