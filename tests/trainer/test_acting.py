from __future__ import annotations

import copy
from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
import pytest
import torch

from tests.trainer.cuda_model import CudaModel
from trainer.algorithms.acting import Acting
from trainer.algorithms.capture import CapturedUpdate
from trainer.nn.epsilon_greedy import EpsilonGreedyPolicy
from trainer.nn.policy import ExploringActor, Policy
from trainer.nn.stacking import part

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


@pytest.fixture(
    params=[
        *("cpu", "model-device", pytest.param("model-host", marks=pytest.mark.slow)),
        *(pytest.param(f"cuda-{where}", marks=pytest.mark.cuda) for where in ("device", "host")),
    ]
)
def place(request: pytest.FixtureRequest) -> Iterator[tuple[torch.device, bool]]:
    """Where a policy learns, also on a model of a GPU that must find no fault, and whether the host acts."""
    name, _, where = request.param.partition("-")
    if name != "model":
        yield torch.device(name), where == "host"
        return
    with CudaModel() as model:
        yield model.device, where == "host"
    assert model.order.races == []
    assert model.faults == []


@pytest.mark.parametrize("lag", [0, 1])
def test_actions_come_from_weights_of_the_stated_age(place: tuple[torch.device, bool], lag: int) -> None:
    device, on_host = place
    policy, within = make_policy().to(device), 0.0 if device.type == "cpu" else 1e-5
    acting = Acting(policy, ENVS, OBSERVATION, lag=lag, on_host=on_host)
    history = [copy.deepcopy(policy)]  # before the updates of step 0, 1, ...
    for step in range(5):
        wanted = expected(history[max(0, step - lag)], step)
        np.testing.assert_allclose(act(acting, step), wanted, rtol=within, atol=within)
        change(policy, 0.1)  # the updates of this step
        acting.learnt()
        history.append(copy.deepcopy(policy))
    assert acting.note == ""
    assert not np.array_equal(expected(history[3], 0), expected(history[4], 0))


def test_with_a_lag_unfinished_updates_never_show() -> None:
    policy = make_policy()
    acting = Acting(policy, ENVS, OBSERVATION, lag=1)
    before = act(acting, 0)
    change(policy, 1.0)
    np.testing.assert_array_equal(act(acting, 0), before)


@pytest.mark.parametrize("lag", [0, 1])
def test_restored_acting_goes_on_as_the_first_would_have(place: tuple[torch.device, bool], lag: int) -> None:
    device, on_host = place
    policies = [make_policy(seed).to(device) for seed in (0, 9)]
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


def test_without_a_lag_there_is_nothing_to_store() -> None:
    acting = Acting(make_policy(), ENVS, OBSERVATION, lag=0)
    assert acting.state_dict() == {"held": [], "newest": []}


def test_weights_are_stored_alike_wherever_it_acts() -> None:
    """So that a checkpoint goes on on another device, and one from before there were other ways to act."""
    policy = make_policy()
    plain = Acting(policy, ENVS, OBSERVATION, lag=1)
    with CudaModel() as model:
        copied = Acting(copy.deepcopy(policy).to(model.device), ENVS, OBSERVATION, lag=1, on_host=True)
        copied.load_state_dict(copy.deepcopy(plain.state_dict()))
        stored = copied.state_dict()
    assert stored.keys() == plain.state_dict().keys()
    for name, tensors in plain.state_dict().items():
        for tensor, other in zip(tensors, stored[name], strict=True):
            assert torch.equal(tensor, other)
            assert other.untyped_storage().nbytes() == other.nbytes, "stored without its neighbours"


def test_the_weights_of_an_actor_on_the_host_come_from_the_gpu_in_one_copy() -> None:
    with CudaModel() as model:
        policy = make_policy().to(model.device)
        acting = Acting(policy, ENVS, OBSERVATION, lag=1, on_host=True)
        with patch.object(model, "touch", wraps=model.touch) as touched:
            acting.learnt()
    names = [call.args[0] for call in touched.call_args_list]
    assert [name for name in names if name != "aten::view"] == ["aten::cat", "aten::copy_"]


def test_a_policy_without_a_lean_form_acts_on_the_host_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Policy, "lean", ExploringActor.lean)
    policy = make_policy()
    with CudaModel() as model:
        acting = Acting(copy.deepcopy(policy).to(model.device), ENVS, OBSERVATION, lag=1, on_host=True)
        found = act(acting, 0)
    np.testing.assert_array_equal(found, expected(policy, 0))


def test_other_lags_do_not_exist() -> None:
    with pytest.raises(ValueError, match="not 2"):
        Acting(make_policy(), ENVS, OBSERVATION, lag=2)


def test_a_policy_whose_tensors_are_moved_goes_on_acting(place: tuple[torch.device, bool]) -> None:
    device, on_host = place
    policy = make_policy().to(device)
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
@pytest.mark.parametrize(
    "place", ["model-device", pytest.param("cuda-device", marks=pytest.mark.cuda)], indirect=True
)
@pytest.mark.parametrize("lag", [0, 1])
def test_acting_beside_captured_updates_shares_nothing_with_them(
    place: tuple[torch.device, bool], lag: int
) -> None:
    """With a lag both replay at once: the model finds the workspace that they once shared."""
    gpu, _ = place
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
