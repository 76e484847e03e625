import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from trainer.nn import mlp
from trainer.nn.affine import usable
from trainer.nn.mlp import EnsembleMLP
from trainer.nn.policy import ObservationEncoder
from trainer.nn.residual import ResidualMLP


@pytest.mark.parametrize("layer_norm", [False, True])
def test_each_member_is_a_plain_perceptron(layer_norm):
    torch.manual_seed(0)
    network = EnsembleMLP(3, 5, [7, 6], 2, layer_norm=layer_norm, output_bound=1.0)
    rows = torch.randn(4, 5)
    found = network(rows, torch.zeros(4, dtype=torch.int64))
    assert found.shape == (3, 4, 2)
    for member in range(3):
        values = rows
        for layer in range(3):
            weight, bias = network.weights[layer][member], network.biases[layer][member]
            values = functional.linear(values, weight.T, bias[0])
            if layer < 2:
                values = functional.layer_norm(values, values.shape[-1:]) if layer_norm else values
                values = values.relu()
        torch.testing.assert_close(found[member], values)
    assert not torch.allclose(found[0], found[1])


@pytest.mark.skipif(not usable(torch.zeros(1, 1)), reason="this PyTorch has no oneDNN")
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("sizes", [(5, [7, 6], 2), (64, [32, 48], 1)])
def test_both_ways_to_compute_agree_in_values_and_gradients(sizes, layer_norm, monkeypatch):
    inputs, hidden, outputs = sizes
    torch.manual_seed(0)
    network = EnsembleMLP(3, inputs, hidden, outputs, heads=4, layer_norm=layer_norm, output_bound=1.0)
    rows, head = torch.randn(9, inputs, requires_grad=True), torch.arange(9) % 4
    upstream = torch.randn(3, 9, outputs)
    results = []
    for way in (True, False):
        monkeypatch.setattr("trainer.nn.mlp.PREFER_ONEDNN", way)
        values = network(rows, head)
        gradients = torch.autograd.grad(values, [rows, *network.parameters()], upstream)
        results.append([values, *gradients])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_frozen_parameters_get_no_gradient_and_the_rows_the_same():
    torch.manual_seed(0)
    network = EnsembleMLP(2, 5, [6], 1, output_bound=1.0)
    rows, head = torch.randn(4, 5, requires_grad=True), torch.zeros(4, dtype=torch.int64)
    network(rows, head, frozen=True).sum().backward()
    assert all(parameter.grad is None for parameter in network.parameters())
    (expected,) = torch.autograd.grad(network(rows, head).sum(), [rows])
    assert torch.equal(rows.grad, expected)


def test_each_row_gets_the_outputs_of_its_own_head():
    torch.manual_seed(0)
    network = EnsembleMLP(2, 5, [6], 3, heads=4)
    rows = torch.randn(8, 5)
    head = torch.tensor([0, 1, 2, 3, 3, 2, 1, 0])
    found = network(rows, head)
    hidden = torch.baddbmm(network.biases[0], rows.expand(2, -1, -1), network.weights[0]).relu()
    every = torch.baddbmm(network.biases[1], hidden, network.weights[1])
    for row, own in enumerate(head.tolist()):
        torch.testing.assert_close(found[:, row], every[:, row, 3 * own : 3 * own + 3])


def test_a_head_learns_from_its_own_rows_only():
    network = EnsembleMLP(1, 5, [6], 2, heads=3)
    network(torch.randn(4, 5), torch.tensor([1, 1, 1, 1])).sum().backward()
    gradient = network.weights[1].grad.view(6, 3, 2)
    assert gradient[:, 1].abs().sum() > 0
    assert gradient[:, [0, 2]].abs().sum() == 0


@pytest.mark.parametrize(("init", "gain"), [("he_uniform", 6.0), ("fan_in_uniform", 1.0)])
def test_initial_values_lie_where_they_should(init, gain):
    network = EnsembleMLP(2, 100, [200], 50, init=init, output_bound=3e-3)
    bound = math.sqrt(gain / 100)
    assert 0.95 * bound < network.weights[0].abs().max() <= bound
    assert network.biases[0].abs().max() == 0
    for last in (network.weights[1], network.biases[1]):
        assert 2.5e-3 < last.abs().max() <= 3e-3


def test_every_layer_can_start_as_pytorch_s_own():
    torch.manual_seed(0)
    network = EnsembleMLP(2, 100, [400], 50, init="pytorch", output_bound=3e-3)
    for layer, (fan_in, fan_out) in enumerate([(100, 400), (400, 50)]):
        own = torch.nn.Linear(fan_in, fan_out)
        bound = own.weight.abs().max().item()
        assert network.weights[layer].abs().max().item() == pytest.approx(bound, rel=0.01)
        # so few biases that the greatest of them stays a little below the bound
        assert 0.9 * bound < network.biases[layer].abs().max() <= 1.01 * bound


def test_every_weight_can_start_orthogonal():
    network = ResidualMLP(2, 30, [20, 20], 10, init="orthogonal", output_bound=3e-3)
    for weight, bias in zip(network.weights, network.biases, strict=True):
        narrow = weight if weight.shape[1] >= weight.shape[2] else weight.mT
        unit = 2.0 * torch.eye(narrow.shape[2]).expand(2, -1, -1)  # the square of the gain
        torch.testing.assert_close(narrow.mT @ narrow, unit, rtol=0, atol=1e-5)
        assert not torch.equal(weight[0], weight[1])
        assert bias.abs().max() == 0


def test_the_encoder_standardises_and_names_the_task():
    encoder = ObservationEncoder(2, 3, one_hot=True)
    seen = torch.tensor([[0.0, 5.0], [2.0, 5.0]])
    task = torch.tensor([2, 0])
    assert encoder(seen, task).tolist() == [[0, 5, 0, 0, 1], [2, 5, 1, 0, 0]]
    encoder.fit(seen, std_floor=0.5)
    expected = torch.tensor([[-(0.5**0.5), 0, 0, 0, 1], [0.5**0.5, 0, 1, 0, 0]])
    torch.testing.assert_close(encoder(seen, task), expected)
    assert ObservationEncoder(2, 3, one_hot=False)(seen, task).shape == (2, 2)


def network(heads: int = 1) -> EnsembleMLP:
    torch.manual_seed(0)
    return EnsembleMLP(2, 7, [64, 48], 1, heads=heads, output_bound=1.0)


def smaller_value(
    net: EnsembleMLP, rows: torch.Tensor, head: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    rows = rows.clone().requires_grad_()
    values = net(rows, head, frozen=True)
    (gradient,) = torch.autograd.grad(values.amin(-3).sum(), [rows])
    return values, gradient


@pytest.fixture
def small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlp, "PREFER_ONEDNN", False)
    monkeypatch.setattr(mlp, "_WORTH_SKIPPING", 0)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.usefixtures("small_ones_too")
def test_rows_have_the_gradient_that_pytorch_computes(heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    net, rows, head = network(heads), torch.randn(50, 7), torch.arange(50) % heads
    values, gradient = smaller_value(net, rows, head)
    monkeypatch.setattr(mlp, "_WORTH_SKIPPING", 10**9)
    expected, exact = smaller_value(net, rows, head)
    assert torch.equal(values, expected)
    torch.testing.assert_close(gradient, exact)


@pytest.mark.usefixtures("small_ones_too")
def test_a_member_without_gradients_multiplies_nothing() -> None:
    net, rows = network(), torch.randn(9, 7, requires_grad=True)
    values = net(rows, torch.zeros(9, dtype=torch.int64), frozen=True)
    (gradient,) = torch.autograd.grad(values[1].sum(), [rows])
    (alone,) = torch.autograd.grad(net(rows, torch.zeros(9, dtype=torch.int64))[1].sum(), [rows])
    torch.testing.assert_close(gradient, alone)
    (nothing,) = torch.autograd.grad((0.0 * net(rows, torch.zeros(9), frozen=True)).sum(), [rows])
    assert not nothing.any()


@pytest.mark.usefixtures("small_ones_too")
def test_what_is_not_a_number_arrives() -> None:
    net, rows = network(), torch.randn(3, 7)
    rows[1] = float("nan")
    _, gradient = smaller_value(net, rows, torch.zeros(3, dtype=torch.int64))
    assert gradient.isnan().any(-1).tolist() == [False, True, False]


@pytest.mark.usefixtures("small_ones_too")
def test_a_seed_has_the_bits_of_its_run_alone() -> None:
    net = network()
    rows, head = torch.randn(2, 40, 7), torch.zeros(2, 40, dtype=torch.int64)
    grouped = EnsembleMLP(4, 7, [64, 48], 1)
    for own, alone in zip(grouped.parameters(), net.parameters(), strict=True):
        own.data = torch.cat([alone, alone])
    _, together = smaller_value(grouped, rows, head)
    for seed in range(2):
        assert torch.equal(together[seed], smaller_value(net, rows[seed], head[seed])[1])


class Plain(nn.Module):
    """One member, layer by layer."""

    def __init__(self, network: ResidualMLP, member: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for weight, bias in zip(network.weights, network.biases, strict=True):
            layer = nn.Linear(*weight.shape[1:])
            layer.weight.data.copy_(weight[member].T)
            layer.bias.data.copy_(bias[member, 0])
            self.layers.append(layer)
        self.norm = nn.LayerNorm(network.weights[0].shape[2], elementwise_affine=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        first, *blocks, last = self.layers
        values = self.norm(first(rows)).relu()
        for inner, outer in zip(blocks[::2], blocks[1::2], strict=True):
            values = values + self.norm(outer(self.norm(inner(values)).relu()))
        return last(values)


def make(blocks: int = 2, **how) -> ResidualMLP:
    torch.manual_seed(0)
    return ResidualMLP(2, 5, [7] * (1 + blocks), 3, output_bound=1.0, **how)


@pytest.mark.parametrize("blocks", [0, 1, 2])
@pytest.mark.parametrize("onednn", [True, False])
def test_it_is_what_plain_layers_compute(blocks, onednn, monkeypatch):
    rows, head = torch.randn(9, 5, requires_grad=True), torch.zeros(9, dtype=torch.int64)
    assert usable(rows)  # else both ways are one
    monkeypatch.setattr("trainer.nn.mlp.PREFER_ONEDNN", onednn)
    network = make(blocks)
    upstream = torch.randn(2, 9, 3)
    found = network(rows, head)
    gradients = torch.autograd.grad(found, [rows, *network.parameters()], upstream)
    plain = [Plain(network, member) for member in range(2)]
    expected = torch.stack([each(rows) for each in plain])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    (to_rows,) = torch.autograd.grad(expected, [rows], upstream, retain_graph=True)
    torch.testing.assert_close(gradients[0], to_rows, rtol=1e-4, atol=1e-5)
    weights = [layer.weight for each in plain for layer in each.layers]
    theirs = torch.autograd.grad(expected, weights, upstream)
    layers = 2 + 2 * blocks
    for layer, ours in enumerate(gradients[1 : 1 + layers]):
        for member in range(2):
            other = theirs[member * layers + layer].T
            torch.testing.assert_close(ours[member], other, rtol=1e-4, atol=1e-4)


def test_each_row_gets_its_own_head_and_frozen_parameters_no_gradient():
    network = make(heads=4)
    rows, head = torch.randn(8, 5, requires_grad=True), torch.arange(8) % 4
    every = [network(rows, torch.full((8,), each)) for each in range(4)]
    found = network(rows, head, frozen=True)
    for row, own in enumerate(head.tolist()):
        assert torch.equal(found[:, row], every[own][:, row])
    found.sum().backward()
    assert all(parameter.grad is None for parameter in network.parameters())


def test_hidden_layers_are_those_that_lead_to_the_output():
    network = make()
    rows = torch.randn(9, 5)
    layers = network.hidden(rows)
    assert [tuple(layer.shape) for layer in layers] == [(2, 9, 7)] * 5
    for rectified in layers[:2]:
        assert (rectified >= 0).all()
    outputs = torch.baddbmm(network.biases[-1], layers[-1], network.weights[-1])
    torch.testing.assert_close(outputs, network(rows, torch.zeros(9, dtype=torch.int64)))


def test_a_bypass_needs_one_width():
    with pytest.raises(ValueError, match="same width all through"):
        ResidualMLP(2, 5, [7, 8], 3)
