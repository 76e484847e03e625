import pytest
import torch
from torch.nn import functional

from trainer.nn.affine import affine, single_outputs, usable

pytestmark = pytest.mark.skipif(not usable(torch.zeros(1, 1)), reason="this PyTorch has no oneDNN")


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (7, 5, 3), (64, 3, 40), (64, 40, 3)])
def test_values_and_gradients_are_those_of_pytorch(sizes, relu):
    rows, inputs, outputs = sizes
    torch.manual_seed(0)
    tensors = [torch.randn(rows, inputs), torch.randn(inputs, outputs), torch.randn(outputs)]
    ours = [tensor.clone().requires_grad_() for tensor in tensors]
    theirs = [tensor.clone().requires_grad_() for tensor in tensors]
    found = affine(*ours, relu=relu)
    expected = torch.addmm(theirs[2], *theirs[:2])
    expected = expected.relu() if relu else expected
    torch.testing.assert_close(found, expected)
    upstream = torch.randn(rows, outputs)
    for left, right in zip(
        torch.autograd.grad(found, ours, upstream),
        torch.autograd.grad(expected, theirs, upstream),
        strict=True,
    ):
        torch.testing.assert_close(left, right)


def test_only_gradients_asked_for_are_computed(monkeypatch):
    rows, weight = torch.randn(4, 3, requires_grad=True), torch.randn(3, 2)
    monkeypatch.setattr("trainer.nn.affine._weight_gradient", None)
    affine(rows, weight, torch.zeros(2), relu=True).sum().backward()
    assert rows.grad is not None


def test_what_is_not_a_number_stays_so():
    rows = torch.tensor([[float("nan"), 1.0], [1.0, float("inf")]])
    assert not affine(rows, torch.ones(2, 2), torch.zeros(2), relu=True).isfinite().any()


def test_it_does_not_pretend_to_be_differentiable_twice():
    rows = torch.randn(4, 3, requires_grad=True)
    values = affine(rows, torch.randn(3, 2), torch.zeros(2), relu=False)
    (gradient,) = torch.autograd.grad(functional.softplus(values).sum(), rows, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("rows", [torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, 3).bfloat16()])
def test_it_is_for_float32_alone(rows):
    assert not usable(rows)
    with torch.autocast("cpu", torch.bfloat16):
        assert not usable(rows.float())


@pytest.mark.parametrize("rows", [1, 256])
def test_single_outputs_are_a_batched_product_s(rows):
    torch.manual_seed(0)
    tensors = [torch.randn(2, 1, 1), torch.randn(2, rows, 300), torch.randn(2, 300, 1)]
    ours = [tensor.clone().requires_grad_() for tensor in tensors]
    theirs = [tensor.clone().requires_grad_() for tensor in tensors]
    found, expected = single_outputs(*ours), torch.baddbmm(*theirs)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    upstream = torch.randn(2, rows, 1)
    gradients = torch.autograd.grad(found, ours, upstream), torch.autograd.grad(expected, theirs, upstream)
    for left, right in zip(*gradients, strict=True):
        torch.testing.assert_close(left, right)


def test_single_outputs_of_members_do_not_depend_on_how_many_there_are():
    torch.manual_seed(0)
    tensors = [torch.randn(4, 1, 1), torch.randn(4, 64, 300), torch.randn(4, 300, 1)]
    pairs = torch.cat([single_outputs(*(tensor[half : half + 2] for tensor in tensors)) for half in (0, 2)])
    assert torch.equal(single_outputs(*tensors), pairs)
