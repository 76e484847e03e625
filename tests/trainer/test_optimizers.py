import pytest
import torch

from trainer.algorithms.optimizers import (
    AdamOfEach,
    GuardedAdam,
    global_norm,
    not_finite,
)

NO, YES = torch.tensor(0.0), torch.tensor(1.0)


def make_parameters():
    torch.manual_seed(0)
    return [torch.randn(4, 3, requires_grad=True), torch.randn(5, requires_grad=True)]


@pytest.mark.slow
@pytest.mark.parametrize("max_norm", [0.0, 0.1, 1e6])
def test_steps_are_those_of_adam_with_clipping(max_norm):
    ours, theirs = make_parameters(), make_parameters()
    guarded = GuardedAdam(ours, 0.01, 1e-5, max_norm)
    adam = torch.optim.Adam(theirs, 0.01, eps=1e-5)
    for _ in range(5):
        gradients = [torch.randn_like(parameter) for parameter in ours]
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient.clone()
        if max_norm:
            torch.nn.utils.clip_grad_norm_(theirs, max_norm)
        adam.step()
        guarded.step(gradients, global_norm(gradients), NO)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_without_clipping_steps_are_those_of_fused_adam_to_the_bit(decay):
    ours, theirs = make_parameters(), make_parameters()
    guarded = GuardedAdam(ours, 0.01, 1e-5, weight_decay=decay)
    kind = torch.optim.AdamW if decay else torch.optim.Adam
    adam = kind(theirs, 0.01, eps=1e-5, weight_decay=decay, fused=True)
    for _ in range(5):
        gradients = [torch.randn_like(parameter) for parameter in ours]
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient.clone()
        adam.step()
        guarded.step(gradients, global_norm(gradients), NO)
    assert all(torch.equal(own, other) for own, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(("max_norm", "decay"), [(0.0, 0.0), (0.5, 0.0), (0.5, 0.1)])
def test_steps_of_several_are_those_of_each_to_the_bit(max_norm, decay):
    alone, together = ([make_parameters() for _ in range(3)] for _ in range(2))
    ones, others = (
        [GuardedAdam(each, 0.01, 1e-5, max_norm, decay) for each in some] for some in (alone, together)
    )
    group = AdamOfEach(others)
    for step in range(4):
        gradients = [[torch.randn_like(parameter) for parameter in each] for each in alone]
        norms = [global_norm(each) for each in gradients]
        blocked = [YES if step == number else NO for number in range(3)]
        stacked = [torch.stack(own) for own in zip(*gradients, strict=True)]
        for one, *how in zip(ones, gradients, norms, blocked, strict=True):
            one.step(*how)
        group.step(stacked, torch.stack(norms), torch.stack(blocked))
    for one, other in zip(ones, others, strict=True):
        pairs = zip([*one._parameters, *one.tensors()], [*other._parameters, *other.tensors()], strict=True)
        assert all(torch.equal(left, right) for left, right in pairs)
    assert [float(other.tensors()[0]) for other in others] == [3.0, 3.0, 3.0]


@pytest.mark.parametrize(
    ("scalars", "expected"),
    [
        ((1.0, -2.0), 0.0),
        ((1.0, float("nan")), 1.0),
        ((float("inf"), 1.0), 1.0),
        ((float("inf"), float("-inf")), 1.0),
    ],
)
def test_what_is_not_finite(scalars, expected):
    assert not_finite(*(torch.tensor(value) for value in scalars)).item() == expected
