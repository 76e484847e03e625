import pytest
import torch

from trainer.nn import mlp
from trainer.nn.mlp import EnsembleMLP


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
