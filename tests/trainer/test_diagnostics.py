"""Diagnostics of networks whose dormant neurons and ranks are known exactly."""

import copy
import math

import pytest
import torch

from trainer import recipe
from trainer.algorithms.diagnostics import PlasticityWatch, dormant_share, effective_rank
from trainer.algorithms.sac import ENTRY
from trainer.algorithms.sac_config import SACConfig
from trainer.algorithms.sac_learner import SAC
from trainer.nn.mlp import EnsembleMLP
from trainer.nn.residual import ResidualMLP
from trainer.replay import Batch

TASKS = ("red", "green", "blue")


def make(hidden) -> SAC:
    torch.manual_seed(0)
    values = {**recipe.load("local-demo").values, "actor_hidden": hidden, "critic_hidden": hidden}
    return SAC(SACConfig.from_values({**values, "layer_norm": False, "one_hot": True}), 5, 2, len(TASKS))


def make_batch(size: int = 12) -> Batch:
    rows = torch.randn(size, 5), torch.rand(size, 2) * 2 - 1, torch.randn(size), torch.randn(size, 5)
    return Batch(*rows, torch.arange(size) % len(TASKS))


def set_constant(network: EnsembleMLP, layer: int, member: int, activations) -> None:
    """Has neurons give the same to every input."""
    network.weights[layer].data[member] = 0
    network.biases[layer].data[member] = torch.tensor(activations)


def test_dormant_neurons_are_counted_over_the_layers_of_the_actor_and_the_first_critic():
    agent = make((4, 4))
    for layer, member, activations in [
        (0, 0, [1.0, 1.0, 1.0, -1.0]),
        (1, 0, [-1.0, -1.0, -1.0, -1.0]),  # a layer that is dead altogether
        (0, 1, [1.0, 1.0, 1.0, 1.0]),
        (1, 1, [5.0, 5.0, 0.0, 5.0]),
    ]:
        set_constant(agent.critics, layer, member, activations)
    set_constant(agent.policy.actor, 0, 0, [2.0, 2.0, 2.0, 2.0])
    set_constant(agent.policy.actor, 1, 0, [3.0, 0.0, 0.0, 0.0])
    found = ENTRY.diagnose(agent, make_batch(), TASKS)
    assert found["diagnostics/dormant/critic"] == pytest.approx(5 / 8), "of the first critic"
    assert found["diagnostics/dormant/actor"] == pytest.approx(3 / 8)


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


def test_the_rank_is_that_of_the_critics_last_hidden_layer():
    agent = make((6,))
    # critic 0 gives on three of the inputs, each shown equally often; critic 1 gives a constant
    agent.critics.weights[0].data[0] = 0
    agent.critics.biases[0].data[0] = 0
    for place in range(3):
        agent.critics.weights[0].data[0, place, place] = 2.0
    set_constant(agent.critics, 0, 1, [1.0] * 6)
    batch = make_batch()._replace(observation=torch.eye(5)[torch.arange(12) % 3])
    found = ENTRY.diagnose(agent, batch, TASKS)
    assert found["diagnostics/effective_rank/critic"] == 3


def test_critics_are_shown_what_the_policy_does_now_and_not_what_was_done():
    agent = make((6,))
    # neuron 0 sees the action's first number alone, which the policy draws near 1
    agent.critics.weights[0].data.zero_()
    agent.critics.weights[0].data[:, -2, 0] = 1.0
    agent.critics.biases[0].data[:, :, 1:] = 1.0
    last = agent.policy.actor
    last.weights[-1].data.zero_()
    last.biases[-1].data.copy_(torch.tensor([9.0, 9.0, -20.0, -20.0]))
    batch = make_batch()._replace(action=-torch.ones(12, 2))  # for which neuron 0 gives nothing
    assert ENTRY.diagnose(agent, batch, TASKS)["diagnostics/dormant/critic"] == 0.0
    last.biases[-1].data[..., :2] = -9.0
    assert ENTRY.diagnose(agent, batch, TASKS)["diagnostics/dormant/critic"] == pytest.approx(1 / 6)


def test_the_sum_with_a_bypass_is_no_layer_of_neurons():
    network = ResidualMLP(1, 5, (4, 4, 4), 1)
    layers = network.hidden(torch.randn(9, 5))
    assert len(layers) == 5
    counted = network.neurons(layers)
    assert len(counted) == 3
    assert all((layer >= 0).all() for layer in counted)


def test_norms_values_and_temperatures():
    agent, batch = make((6, 6)), make_batch()
    with torch.no_grad():
        agent.log_alpha.copy_(torch.tensor([0.0, -1.0, 1.0]))
        rows = torch.cat([agent.policy.encoder(batch.observation, batch.task), batch.action], -1)
        values = agent.critics(rows, batch.task)[..., 0]
    found = ENTRY.diagnose(agent, batch, TASKS)
    for network, name in ((agent.policy.actor, "actor"), (agent.critics, "critic")):
        every = torch.cat([parameter.detach().flatten() for parameter in network.parameters()])
        assert found[f"norm/{name}"] == pytest.approx(float(every.norm()), rel=1e-5)
    for number, task in enumerate(TASKS):
        assert found[f"q/{task}"] == pytest.approx(float(values[:, batch.task == number].mean()), abs=1e-6)
        assert found[f"alpha/{task}"] == pytest.approx(math.exp((0, -1, 1)[number]))
    assert found.keys() == {
        "diagnostics/dormant/actor",
        "diagnostics/dormant/critic",
        "diagnostics/effective_rank/critic",
        "norm/actor",
        "norm/critic",
        *(f"{kind}/{task}" for kind in ("q", "alpha") for task in TASKS),
    }
    assert all(type(value) is float for value in found.values())


def test_a_task_that_is_not_in_the_batch_has_no_value():
    found = ENTRY.diagnose(make((6,)), make_batch(2), TASKS)
    assert "q/green" in found
    assert "q/blue" not in found
    assert "alpha/blue" in found


def test_it_leaves_no_trace():
    agent, batch = make((6, 6)), make_batch()
    before, generator = copy.deepcopy(agent.state_dict()), torch.get_rng_state()
    ENTRY.diagnose(agent, batch, TASKS)
    assert torch.equal(torch.get_rng_state(), generator)
    for part in ("policy", "critics", "targets"):
        assert all(
            torch.equal(tensor, before[part][name]) for name, tensor in agent.state_dict()[part].items()
        )
    assert all(parameter.grad is None for parameter in agent.critics.parameters())


def test_a_learner_that_is_no_longer_finite_can_still_be_examined():
    agent = make((6,))
    agent.critics.weights[0].data[:] = torch.nan
    found = ENTRY.diagnose(agent, make_batch(), TASKS)
    assert math.isnan(found["diagnostics/effective_rank/critic"])
    assert math.isnan(found["norm/critic"])
    assert PlasticityWatch().look(found) is None


def test_each_level_of_dormancy_is_told_once():
    watch = PlasticityWatch()
    told = []
    for share in (0.05, 0.149, 0.16, 0.14, 0.2, 0.5, 0.4, 0.6):
        told.append(watch.look({"diagnostics/dormant/critic": share}))
    assert [sentence is not None for sentence in told] == [
        False,
        False,
        True,
        False,
        False,
        True,
        False,
        False,
    ]
    assert told[2].startswith("16.0% of the critics' hidden neurons are dormant")
    assert "15.0% at width 1024" in told[2]
    assert "more tasks" in told[2]
    assert "not a smaller network" in told[2]
    assert "48.9% at width 4096" in told[5]  # the highest of the two that were passed at once
    assert PlasticityWatch(watch.passed).look({"diagnostics/dormant/critic": 0.9}) is None


def test_an_algorithm_without_a_diagnosis_is_watched_without_a_warning() -> None:
    watch = PlasticityWatch()
    assert watch.look({}) is None
    assert watch.passed == 0
