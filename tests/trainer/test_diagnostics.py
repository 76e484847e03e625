"""Diagnostics equal a plain computation, leave no trace, and are recorded by runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.trainer import off_policy_checks as checks
from tests.trainer import sacs
from tests.trainer import test_dqn as of_dqn
from tests.trainer import test_td3 as of_td3
from tests.trainer.runs import events, rows, settings_for, train
from tests.trainer.sacs import TASKS, same
from trainer.algorithms import dqn, sac, td3
from trainer.algorithms.diagnostics import PlasticityWatch, dormant_share, effective_rank
from trainer.algorithms.td3_update import TD3Config
from trainer.nn.mlp import EnsembleMLP
from trainer.nn.residual import ResidualMLP

pytestmark = pytest.mark.usefixtures("warm_processes")

NAMES = ("red", "green", "blue")
OF_CRITIC = {"diagnostics/dormant/critic", "diagnostics/effective_rank/critic", "norm/critic"}
OF_ACTOR = {"diagnostics/dormant/actor", "norm/actor"}


def double(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().numpy()


def plain_layers(rows: np.ndarray, layers: list[tuple[Any, Any]], *, layer_norm: bool = False) -> list:
    """What each layer gives on; the last one has no ReLU."""
    given = [rows]
    for number, (weight, bias) in enumerate(layers):
        values = given[-1] @ weight + bias
        if number < len(layers) - 1:
            if layer_norm:
                centred = values - values.mean(1, keepdims=True)
                values = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
            values = np.maximum(values, 0.0)
        given.append(values)
    return given[1:]


def plain_dormant(layers: list[np.ndarray]) -> float:
    dormant = []
    for layer in layers:
        activity = np.abs(layer).mean(0)
        dormant += [each <= 0.1 * activity.mean() for each in activity]
    return sum(dormant) / len(dormant)


def plain_rank(features: np.ndarray) -> int:
    values = np.linalg.svd(features, compute_uv=False)
    return next(k for k in range(1, len(values) + 1) if values[:k].sum() >= 0.99 * values.sum())


def plain_norm(network: torch.nn.Module) -> float:
    return sum(float((double(parameter) ** 2).sum()) for parameter in network.parameters()) ** 0.5


def member(network: EnsembleMLP, number: int) -> list[tuple[np.ndarray, np.ndarray]]:
    pairs = zip(network.weights, network.biases, strict=True)
    return [(double(weight[number]), double(bias[number])) for weight, bias in pairs]


def by_head(outputs: np.ndarray, task: np.ndarray, heads: int) -> np.ndarray:
    """Each row's outputs of its own head."""
    return outputs if heads == 1 else outputs.reshape(len(task), heads, -1)[np.arange(len(task)), task]


def make_actor_critic(kind: Any, changes: dict[str, Any]):
    if kind is sac:
        agent, draw = sacs.make(replace(sacs.CONFIG, **changes)), sacs.make_batch
        agent.log_alpha.data.copy_(torch.tensor([0.0, -1.0, 1.0]))
    else:
        agent, draw = of_td3.maker(replace(of_td3.CONFIG, **changes))(), of_td3.draw
    checks.teach(agent, checks.drawn(draw, 4))
    # some neurons that say nothing, of the actor and of the first critic
    agent.policy.actor.biases[0].data[0, 0, :3] = -50.0
    if not changes.get("layer_norm"):
        agent.critics.biases[1].data[0, 0, :5] = -50.0
    return agent


def make_dqn(changes: dict[str, Any]):
    agent = of_dqn.maker(replace(of_dqn.CONFIG, **changes))()
    checks.teach(agent, checks.drawn(of_dqn.draw, 4))
    agent.policy.actor.body.layers[-2].bias.data[:7] = -50.0
    return agent


def drawn_actions(config: Any, outputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """What the policy of TD3 or SAC does."""
    if isinstance(config, TD3Config):
        return (np.tanh(outputs) + config.exploration_noise * noise).clip(-1.0, 1.0)
    mean, log_std = np.split(outputs, 2, 1)
    return np.tanh(mean + np.exp(log_std.clip(config.log_std_min, config.log_std_max)) * noise)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [(td3, {}), (td3, of_td3.VARIED), (sac, {}), (sac, {"heads": "multi-head", "layer_norm": True})],
    ids=["td3", "td3 varied", "sac", "sac varied"],
)
def test_numbers_of_an_actor_and_its_critics_equal_a_plain_computation(kind, changes):
    agent = make_actor_critic(kind, changes)
    (batch,) = checks.drawn(of_td3.draw, 1, rows=30)
    found = kind.ENTRY.diagnose(agent, batch, NAMES)
    config, task = agent.config, batch.task.numpy()
    heads = TASKS if config.heads == "multi-head" else 1
    shown = np.concatenate([double(batch.observation), np.eye(TASKS)[task]], 1)
    actor = plain_layers(shown, member(agent.policy.actor, 0))
    noise = double(torch.randn(batch.action.shape, generator=torch.Generator().manual_seed(0)))
    drawn = drawn_actions(config, by_head(actor[-1], task, heads), noise)
    rows_drawn = np.concatenate([shown, drawn], 1)
    rows_taken = np.concatenate([shown, double(batch.action)], 1)
    norm = {"layer_norm": config.layer_norm}
    *critic, _ = plain_layers(rows_drawn, member(agent.critics, 0), **norm)
    both = [plain_layers(rows_taken, member(agent.critics, number), **norm)[-1] for number in range(2)]
    values = np.mean([by_head(each, task, heads)[:, 0] for each in both], 0)
    expected = {
        "diagnostics/dormant/actor": plain_dormant(actor[:-1]),
        "diagnostics/dormant/critic": plain_dormant(critic),
        "diagnostics/effective_rank/critic": plain_rank(critic[-1]),
        "norm/actor": plain_norm(agent.policy.actor),
        "norm/critic": plain_norm(agent.critics),
        **{f"q/{name}": values[task == number].mean() for number, name in enumerate(NAMES)},
    }
    if kind is sac:
        expected |= {f"alpha/{name}": alpha for name, alpha in zip(NAMES, agent.alpha.tolist(), strict=True)}
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert found["diagnostics/dormant/actor"] >= 3 / 32
    assert all(type(value) is float for value in found.values())


@pytest.mark.parametrize("changes", [{}, of_dqn.VARIED], ids=["plain", "dueling"])
def test_the_numbers_of_dqn_equal_a_plain_computation(changes):
    agent = make_dqn(changes)
    (batch,) = checks.drawn(of_dqn.draw, 1, rows=30)
    found = dqn.ENTRY.diagnose(agent, batch, ["one"])

    network = agent.policy.actor
    weights = [(double(layer.weight).T, double(layer.bias)) for layer in network.body.layers]
    *layers, outputs = plain_layers(double(batch.observation), weights)
    counted, values = layers, outputs
    if network.dueling:
        half = layers[-1].shape[1] // 2
        counted = [*layers[:-1], layers[-1][:, :half], layers[-1][:, half:]]
        values = outputs[:, :1] + outputs[:, 1:] - outputs[:, 1:].mean(1, keepdims=True)

    expected = {
        "diagnostics/dormant/critic": plain_dormant(counted),
        "diagnostics/effective_rank/critic": plain_rank(layers[-1]),
        "norm/critic": plain_norm(network),
        "q/one": values[np.arange(30), batch.action[:, 0].long().numpy()].mean(),
    }
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert found["diagnostics/dormant/critic"] > 0.0
    assert all(type(value) is float for value in found.values())


def test_a_stream_of_a_dueling_network_is_measured_by_itself():
    agent = make_dqn({"dueling": True, "hidden": (6,)})
    network = agent.policy.actor
    layer = network.body.layers[0]
    layer.weight.data.zero_()
    # beside the other stream's neurons those of the first would all be dormant
    layer.bias.data.copy_(torch.tensor([1.0] * 6 + [100.0] * 5 + [0.0]))
    (batch,) = checks.drawn(of_dqn.draw, 1)
    found = dqn.ENTRY.diagnose(agent, batch, ["one"])
    assert found["diagnostics/dormant/critic"] == pytest.approx(1 / 12)


def test_a_dead_network_of_dqn_is_warned_of():
    agent = make_dqn({})
    for layer in agent.policy.actor.body.layers[:-1]:
        layer.bias.data.fill_(-50.0)
    (batch,) = checks.drawn(of_dqn.draw, 1)
    told = PlasticityWatch().look(dqn.ENTRY.diagnose(agent, batch, ["one"]))
    assert told is not None
    assert told.startswith("100.0% of the critics' hidden neurons are dormant")


def gradients_of(agent: Any) -> list[Tensor | None]:
    parameters = (own for network in agent._networks.values() for own in network.parameters())
    return [None if own.grad is None else own.grad.clone() for own in parameters]


@pytest.mark.parametrize(
    ("entry", "make", "draw", "changes", "names"),
    [
        (sac.ENTRY, partial(make_actor_critic, sac), of_td3.draw, {}, NAMES),
        (td3.ENTRY, partial(make_actor_critic, td3), of_td3.draw, {}, NAMES),
        (td3.ENTRY, partial(make_actor_critic, td3), of_td3.draw, of_td3.VARIED, NAMES),
        (dqn.ENTRY, make_dqn, of_dqn.draw, {}, ("one",)),
        (dqn.ENTRY, make_dqn, of_dqn.draw, of_dqn.VARIED, ("one",)),
    ],
)
def test_it_leaves_no_trace(entry, make: Callable[..., Any], draw: checks.Draw, changes, names):
    looked_at, other = make(changes), make(changes)
    (batch,) = checks.drawn(draw, 1)
    copies = [tensor.clone() for tensor in batch.tensors]
    places = [tensor.data_ptr() for tensor in looked_at.tensors()]
    gradients = gradients_of(looked_at)
    generator = torch.get_rng_state()
    first = entry.diagnose(looked_at, batch, names)
    assert entry.diagnose(looked_at, batch, names) == first
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(same(gradients_of(looked_at), gradients))
    assert [tensor.data_ptr() for tensor in looked_at.tensors()] == places
    assert all(torch.equal(*pair) for pair in zip(batch.tensors, copies, strict=True))
    assert all(same(looked_at.state_dict(), other.state_dict()))
    more = checks.drawn(draw, 3)
    for agent in (looked_at, other):
        checks.teach(agent, more)
    assert all(same(looked_at.state_dict(), other.state_dict()))


def test_a_neuron_is_dormant_up_to_a_tenth_of_its_layers_mean():
    # among nine that give 1, a tenth of the mean is x = 0.1 (9 + x) / 10, that is 0.0909...
    for activity, share in ((0.0905, 0.1), (0.0915, 0.0)):
        layer = torch.ones(1, 6, 10)
        layer[..., 3] = activity
        assert float(dormant_share([layer])) == pytest.approx(share)
        # what counts is the mean over the batch, of each layer by itself
        assert float(dormant_share([layer * 1000, layer.flip(1)])) == pytest.approx(share)
    layer = torch.ones(1, 6, 10)
    layer[:, 1:, 3] = 0.0
    assert float(dormant_share([layer])) == 0.0


@pytest.mark.parametrize(
    ("values", "rank"),
    [
        ([1.0, 1.0, 1.0, 0.0], 3),
        ([97.0, 1.5, 1.0, 0.5], 3),  # 0.97, 0.985, 0.995
        ([995.0, 5.0, 0.0, 0.0], 1),
        ([1.0, 1.0, 1.0, 1.0], 4),
        ([0.0, 0.0, 0.0, 0.0], 0),
    ],
)
def test_effective_rank_by_known_singular_values(values, rank):
    torch.manual_seed(0)
    left, right = (torch.linalg.qr(torch.randn(size, 4))[0] for size in (9, 6))
    matrix = left @ torch.diag(torch.tensor(values)) @ right.T
    assert effective_rank(torch.stack([matrix, 1e-3 * matrix, matrix])).tolist() == [rank] * 3


def test_the_sum_with_a_bypass_is_no_layer_of_neurons():
    network = ResidualMLP(1, 5, (4, 4, 4), 1)
    layers = network.hidden(torch.randn(9, 5))
    assert len(layers) == 5
    counted = network.neurons(layers)
    assert len(counted) == 3
    assert all((layer >= 0).all() for layer in counted)


def test_a_task_that_is_not_in_the_batch_has_no_value():
    (batch,) = checks.drawn(of_td3.draw, 1, rows=2)
    found = sac.ENTRY.diagnose(make_actor_critic(sac, {}), batch, NAMES)
    assert "q/green" in found
    assert "q/blue" not in found
    assert "alpha/blue" in found


def test_a_learner_that_is_no_longer_finite_can_still_be_examined():
    agent = make_actor_critic(sac, {})
    agent.critics.weights[0].data[:] = torch.nan
    (batch,) = checks.drawn(of_td3.draw, 1)
    found = sac.ENTRY.diagnose(agent, batch, NAMES)
    assert math.isnan(found["diagnostics/effective_rank/critic"])
    assert math.isnan(found["norm/critic"])
    assert PlasticityWatch().look(found) is None


def test_each_level_of_dormancy_is_told_once():
    watch, told = PlasticityWatch(), {}
    for number, share in enumerate((0.05, 0.149, 0.16, 0.14, 0.2, 0.5, 0.4, 0.6)):
        if sentence := watch.look({"diagnostics/dormant/critic": share}):
            told[number] = sentence
    assert told.keys() == {2, 5}
    assert told[2].startswith("16.0% of the critics' hidden neurons are dormant")
    assert "15.0% at width 1024" in told[2]
    assert "48.9% at width 4096" in told[5]  # the highest of the two that were passed at once
    assert PlasticityWatch(watch.passed).look({"diagnostics/dormant/critic": 0.9}) is None
    assert PlasticityWatch().look({}) is None, "of an algorithm without a diagnosis"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "environment", "expected"),
    [("td3", "Pendulum-v1", OF_CRITIC | OF_ACTOR), ("dqn", "CartPole-v1", OF_CRITIC)],
)
def test_a_run_records_them_at_an_evaluation(tmp_path, recipe, environment, expected):
    argv = ("--total-steps", "60", "--eval-every", "60", "--num-envs", "2")
    changes = {"environment": environment, "evaluation_episodes": "2"}
    settings = settings_for(tmp_path, recipe, *argv, **changes)
    learner = train(settings).learner
    row = rows(tmp_path, "eval")[-1]
    kinds = ("diagnostics/", "norm/", "q/", "alpha/")
    recorded = {name: value for name, value in row.items() if name.startswith(kinds)}
    assert recorded.keys() == expected | {f"q/{environment}"}
    assert 0.0 <= recorded["diagnostics/dormant/critic"] <= 1.0
    found = settings.recipe.entry.diagnose(learner.agent, learner.batch, settings.tasks)
    assert recorded == pytest.approx(found), "of the weights that were evaluated"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "changes", "said"),
    [
        ("td3", {"environment": "Pendulum-v1"}, []),
        ("td3-mt10", {"tasks": "reach,push", "episode_steps": "20"}, ["dormant"]),
    ],
)
def test_only_several_tasks_are_measured_by_those_of_mt10(monkeypatch, tmp_path, recipe, changes, said):
    monkeypatch.setattr(PlasticityWatch, "look", lambda *_: "dormant")
    argv = ("--total-steps", "60", "--eval-every", "60", "--num-envs", "2")
    changes = {"evaluation_episodes": "2", **changes}
    train(settings_for(tmp_path, recipe, *argv, **changes))
    assert [message for message in events(tmp_path) if message == "dormant"] == said
