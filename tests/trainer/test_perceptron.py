"""The gradients that are written out, against PyTorch's own."""

from __future__ import annotations

import copy

import pytest
import torch

from trainer.machine.device import autocast
from trainer.nn.perceptron import Perceptron
from trainer.nn.stacking import place, stack

INPUTS, OUTPUTS, ROWS, NETWORKS = 5, 3, 7, 4
CPU = torch.device("cpu")


def make(activation: str) -> Perceptron:
    torch.manual_seed(0)
    network = Perceptron(INPUTS, (8, 6), OUTPUTS, activation=activation, output_gain=1.0)
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return network


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_gradients_are_autograds_to_the_bit(activation: str, precision: str) -> None:
    network = make(activation)
    rows, slope = torch.randn(ROWS, INPUTS), torch.randn(ROWS, OUTPUTS)
    with autocast(CPU, precision):
        given = network.trace(rows)
        result = network(rows)
    assert torch.equal(result, given[-1].float())
    for own, theirs in zip(
        network.slopes(given, slope),
        torch.autograd.grad(result, list(network.parameters()), slope),
        strict=True,
    ):
        assert own.dtype == torch.float32
        assert torch.equal(own, theirs)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_several_networks_at_once_are_each_of_them(precision: str) -> None:
    alone = [make("tanh") for _ in range(NETWORKS)]
    for network in alone:
        for parameter in network.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
    flats = [torch.cat([each.detach().flatten() for each in network.parameters()]) for network in alone]
    for network, flat in zip(alone, flats, strict=True):
        place(list(network.parameters()), flat.clone())
    together = copy.deepcopy(alone[0])
    place(list(together.parameters()), stack(flats))
    rows, slope = torch.randn(NETWORKS, ROWS, INPUTS), torch.randn(NETWORKS, ROWS, OUTPUTS)
    with torch.no_grad(), autocast(CPU, precision):
        given = together.trace(rows)
        expected = [network.trace(own.clone()) for network, own in zip(alone, rows, strict=True)]
    gradients = together.slopes(given, slope)
    for number, network in enumerate(alone):
        own = network.slopes(expected[number], slope[number].clone())
        found = [part[number] for part in (given[-1], *gradients)]
        for one, other in zip(found, (expected[number][-1], *own), strict=True):
            if precision == "fp32":
                assert torch.equal(one, other)
            else:
                torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)


def test_stacked_tensors_stay_what_they_were_and_are_one() -> None:
    parts = [torch.full((3,), float(number)) for number in range(2)]
    whole = stack(parts)
    whole.add_(1.0)
    assert [part.tolist() for part in parts] == [[1.0] * 3, [2.0] * 3]
    parts[1].zero_()
    assert whole.tolist() == [[1.0] * 3, [0.0] * 3]
    assert all(part.data_ptr() % 64 == 0 for part in parts)
