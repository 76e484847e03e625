from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from tests.trainer.cuda_model import CudaModel
from trainer.algorithms.acting import Acting
from trainer.algorithms.capture import CapturedUpdate
from trainer.nn.epsilon_greedy import EpsilonGreedyPolicy
from trainer.nn.policy import Policy
from trainer.nn.stacking import part
from trainer.recipe.share import acts_on_host

ENVS, OBSERVATION, ACTION, TASKS = 6, 5, 2, 3
TASK = np.arange(ENVS) % TASKS


def make_policy(seed: int = 0) -> Policy:
    torch.manual_seed(seed)
    sizes = {"hidden": [16, 16], "one_hot": True, "multi_head": True, "init": "he_uniform"}
    policy = Policy(OBSERVATION, ACTION, TASKS, **sizes, log_std_bounds=(-20, 2))
    change(policy, 0.5)
    return policy


def change(policy: Policy, by: float) -> None:
    """Stands for the updates of a vector step; the statistics of observations change too."""
    with torch.no_grad():
        for tensor in policy.state_dict().values():
            tensor.add_(
                by * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(1)).to(tensor.device)
            )
        policy.encoder.std.abs_().add_(0.1)


def observations(step: int) -> np.ndarray:
    return np.random.default_rng(step).standard_normal((ENVS, OBSERVATION), np.float32)


def expected(policy: Policy, step: int) -> np.ndarray:
    """What this very policy does in a step."""
    torch.manual_seed(step)
    noise = torch.randn(ENVS, ACTION).to(policy.encoder.mean.device)
    seen = torch.from_numpy(observations(step)).to(noise.device)
    return policy.sample(seen, torch.from_numpy(TASK).to(noise.device), noise).cpu().numpy()


def act(acting: Acting, step: int) -> np.ndarray:
    torch.manual_seed(step)
    return acting.act(observations(step), TASK)


@pytest.mark.parametrize("lag", [0, 1])
def test_actions_come_from_weights_of_the_stated_age(lag: int) -> None:
    policy = make_policy()
    acting = Acting(policy, ENVS, OBSERVATION, lag=lag)
    history = [copy.deepcopy(policy)]  # before the updates of step 0, 1, ...
    for step in range(5):
        np.testing.assert_array_equal(act(acting, step), expected(history[max(0, step - lag)], step))
        change(policy, 0.1)  # the updates of this step
        acting.learnt()
        history.append(copy.deepcopy(policy))
    assert not np.array_equal(expected(history[3], 0), expected(history[4], 0))


def test_with_a_lag_unfinished_updates_never_show() -> None:
    policy = make_policy()
    acting = Acting(policy, ENVS, OBSERVATION, lag=1)
    before = act(acting, 0)
    change(policy, 1.0)
    np.testing.assert_array_equal(act(acting, 0), before)


@pytest.mark.parametrize("lag", [0, 1])
def test_a_restored_one_goes_on_as_the_first_would_have(lag: int) -> None:
    policy = make_policy()
    acting = Acting(policy, ENVS, OBSERVATION, lag=lag)
    for _ in range(3):
        change(policy, 0.1)
        acting.learnt()
    other_policy = make_policy(seed=9)
    other = Acting(other_policy, ENVS, OBSERVATION, lag=lag)
    other_policy.load_state_dict(policy.state_dict())
    other.load_state_dict(copy.deepcopy(acting.state_dict()))
    for step in range(3):
        np.testing.assert_array_equal(act(other, step), act(acting, step))
        for each, learner in ((acting, policy), (other, other_policy)):
            change(learner, 0.1)
            each.learnt()


def test_without_a_lag_there_is_nothing_to_store() -> None:
    acting = Acting(make_policy(), ENVS, OBSERVATION, lag=0)
    assert acting.state_dict() == {"held": [], "newest": []}


def test_other_lags_do_not_exist() -> None:
    with pytest.raises(ValueError, match="not 2"):
        Acting(make_policy(), ENVS, OBSERVATION, lag=2)


@pytest.fixture(params=["model", pytest.param("cuda", marks=pytest.mark.cuda)])
def gpu(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """A GPU, or the model of one, which must find nothing wrong."""
    if request.param == "cuda":
        yield torch.device("cuda", torch.cuda.current_device())
        return
    with CudaModel() as model:
        yield model.device
    assert model.order.races == []
    assert model.faults == []


@pytest.mark.slow
@pytest.mark.parametrize("on_host", [True, False], ids=["host", "device"])
@pytest.mark.parametrize("lag", [0, 1])
def test_beside_a_gpu_actions_come_from_weights_of_the_stated_age(
    gpu: torch.device, lag: int, on_host: bool
) -> None:
    policy = make_policy().to(gpu)
    acting = Acting(policy, ENVS, OBSERVATION, lag=lag, on_host=on_host)
    history = [copy.deepcopy(policy)]
    for step in range(5):
        np.testing.assert_allclose(act(acting, step), expected(history[max(0, step - lag)], step), atol=1e-5)
        change(policy, 0.1)
        acting.learnt()
        history.append(copy.deepcopy(policy))
    assert acting.note == ""


@pytest.mark.parametrize("on_host", [True, False], ids=["host", "device"])
@pytest.mark.parametrize("lag", [0, 1])
def test_beside_a_gpu_a_restored_one_goes_on_as_the_first_would_have(
    gpu: torch.device, lag: int, on_host: bool
) -> None:
    policies = [make_policy(seed).to(gpu) for seed in (0, 9)]
    acting, other = (Acting(each, ENVS, OBSERVATION, lag=lag, on_host=on_host) for each in policies)
    for _ in range(3):
        change(policies[0], 0.1)
        acting.learnt()
    policies[1].load_state_dict(policies[0].state_dict())
    other.load_state_dict(copy.deepcopy(acting.state_dict()))
    for step in range(3):
        np.testing.assert_array_equal(act(other, step), act(acting, step))
        for each, policy in ((acting, policies[0]), (other, policies[1])):
            change(policy, 0.1)
            each.learnt()


@pytest.mark.slow
@pytest.mark.parametrize("on_host", [True, False], ids=["host", "device"])
def test_a_policy_whose_tensors_are_moved_goes_on_acting(gpu: torch.device, on_host: bool) -> None:
    policy = make_policy().to(gpu)
    acting = Acting(policy, ENVS, OBSERVATION, lag=0, on_host=on_host)
    act(acting, 0)
    part([*policy.parameters(), *policy.buffers()])
    change(policy, 0.1)
    np.testing.assert_allclose(act(acting, 1), expected(policy, 1), atol=1e-5)


@pytest.mark.parametrize("lag", [0, 1])
def test_tensors_that_stay_are_not_looked_for_again(monkeypatch: pytest.MonkeyPatch, lag: int) -> None:
    torch.manual_seed(0)
    policy = EpsilonGreedyPolicy(OBSERVATION, 3, hidden=[16], dueling=False, epsilon=0.5)
    acting = Acting(policy, ENVS, OBSERVATION, lag=lag)
    monkeypatch.setattr(policy, "state_dict", None)
    for step in range(3):
        act(acting, step)
        acting.learnt()


@pytest.mark.slow
@pytest.mark.parametrize("lag", [0, 1])
def test_acting_beside_captured_updates_shares_nothing_with_them(gpu: torch.device, lag: int) -> None:
    """With a lag both replay at once: the model finds the workspace that they once shared."""
    policy = make_policy().to(gpu)
    seen = torch.randn(4, policy.encoder.features, device=gpu)
    weights = [parameter.detach() for parameter in policy.actor.parameters()]

    def learn() -> dict[str, torch.Tensor]:
        found = policy.distribution(seen, torch.zeros(4, dtype=torch.int64, device=gpu))[0].mean().detach()
        torch._foreach_add_(weights, [found * 0.01] * len(weights))
        return {"found": found}

    update = CapturedUpdate(learn, lambda: weights, gpu)
    acting = Acting(policy, ENVS, OBSERVATION, lag=lag, on_host=False)
    for step in range(4):
        act(acting, step)
        update()
        acting.learnt()
    assert (update.note, acting.note) == ("", "")


def test_small_policies_act_on_the_host_and_large_ones_on_the_gpu() -> None:
    guide, paper = 256 * (49 + 256 + 8), 1024 * (49 + 2 * 1024 + 80)
    assert acts_on_host(guide, 10)
    assert acts_on_host(guide, 48)
    assert not acts_on_host(paper, 10)


@pytest.mark.cuda
@pytest.mark.parametrize("on_host", [True, False], ids=["host", "device"])
def test_with_a_lag_the_gpu_acts_while_it_learns(on_host: bool) -> None:
    policy = make_policy().to("cuda")
    acting = Acting(policy, ENVS, OBSERVATION, lag=1, on_host=on_host)
    before = act(acting, 0)

    def learn(factor: float) -> None:
        for tensor in policy.state_dict().values():
            tensor.mul_(factor)
        acting.learnt()

    learn(1.0)  # kernels are loaded when first used, and that may wait for the whole device
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)  # a second of the current stream: the updates of a slow vector step
    learn(3.0)
    busy = torch.cuda.Event()
    busy.record()
    np.testing.assert_allclose(act(acting, 0), before, atol=1e-5)
    assert not busy.query()  # the action came before the updates were done
    torch.cuda.synchronize()


@pytest.mark.cuda
@pytest.mark.parametrize("on_host", [True, False], ids=["host", "device"])
def test_acting_draws_nothing_from_the_generator_of_the_gpu(on_host: bool) -> None:
    acting = Acting(make_policy().to("cuda"), ENVS, OBSERVATION, lag=0, on_host=on_host)
    torch.manual_seed(0)
    state = torch.cuda.get_rng_state()
    acting.act(observations(0), TASK)
    assert torch.equal(torch.cuda.get_rng_state(), state)
