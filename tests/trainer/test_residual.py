"""The residual network against the same written in PyTorch's own layers."""

import pytest
import torch
from torch import nn

from trainer.nn.mlp import usable
from trainer.nn.residual import ResidualMLP


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
