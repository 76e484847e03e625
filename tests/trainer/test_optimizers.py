import operator
from itertools import chain
from unittest.mock import patch

import pytest
import torch

from tests.trainer.cuda_model import CudaModel
from trainer.algorithms import pieces
from trainer.algorithms.optimizers import AdamOfEach, AverageOfEach, GuardedAdam, GuardedAverage, not_finite
from trainer.algorithms.pieces import cut, global_norm, global_norm_of_each, piece

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
        pairs = zip([*one.parameters, *one.tensors()], [*other.parameters, *other.tensors()], strict=True)
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


SHAPES = [(2, 53, 64), (2, 1, 64), (2, 64, 1), (3,), (1,)]
"""Weights and biases; some are shorter than a piece, and the last pieces of some are odd."""
LEARNERS = 3


def drawn(seed, device, learners=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(learners * first, *rest, generator=generator).to(device) for first, *rest in SHAPES]


def steps_of_adam(device, *how):
    parameters = drawn(0, device)
    adam = GuardedAdam(parameters, 0.01, 1e-5, *how)
    for step in range(1, 6):
        blocked = torch.tensor(float(step == 3), device=device)
        adam.step(drawn(step, device), torch.tensor(2.0, device=device), blocked)
    return [*parameters, *adam.tensors()]


def steps_of_several_adams(device, *how):
    parameters = [drawn(seed, device) for seed in range(LEARNERS)]
    adam = AdamOfEach([GuardedAdam(each, 0.01, 1e-5, *how) for each in parameters])
    for step in range(1, 6):
        blocked = torch.tensor([float(step == 3 + number) for number in range(LEARNERS)], device=device)
        norm = torch.tensor([0.1, 2.0, 3.0], device=device)
        adam.step(drawn(step, device, LEARNERS), norm, blocked)
    return [*chain(*parameters), *adam.tensors()]


def steps_of_averages(device):
    targets, sources = ([drawn(seed, device) for seed in seeds] for seeds in ((0, 1), (2, 3)))
    average = AverageOfEach([GuardedAverage(*pair, 0.005) for pair in zip(targets, sources, strict=True)])
    for step in range(4):
        average.step(torch.tensor([float(step == 1), 0.0], device=device))
    return [*chain(*targets)]


ADAMS = [(0.0, 0.0), (0.5, 0.0), (0.5, 0.1)]
"""Bound on the norm, weight decay."""


@pytest.fixture
def cuda():
    with CudaModel() as model, patch.object(pieces, "_LEAST", 16):
        yield model
    assert model.order.races == []


@pytest.mark.parametrize(
    ("learnt", "how"),
    [
        *((steps, how) for steps in (steps_of_adam, steps_of_several_adams) for how in ADAMS),
        (steps_of_averages, ()),
    ],
)
def test_steps_in_the_pieces_of_a_gpu_are_those_of_whole_tensors_to_the_bit(cuda, learnt, how):
    whole, in_pieces = ([each.cpu() for each in learnt(device, *how)] for device in ("cpu", cuda.device))
    assert all(torch.equal(one, other) for one, other in zip(whole, in_pieces, strict=True))


def test_norms_in_pieces_are_those_of_each_learner_alone(cuda):
    for device in ("cpu", cuda.device):
        gradients = drawn(1, device, LEARNERS)
        of_each = [[own.chunk(LEARNERS)[number] for own in gradients] for number in range(LEARNERS)]
        alone = torch.stack([global_norm(each) for each in of_each])
        true = torch.stack([torch.cat([own.flatten() for own in each]).double().norm() for each in of_each])
        torch.testing.assert_close(global_norm_of_each(gradients, LEARNERS), alone)
        torch.testing.assert_close(alone, true.float())


def test_one_launch_takes_the_pieces_of_whatever_a_gpu_does_not_see_as_full(cuda):
    for sizes in ((4_194_304, 108_544, 4096, 2), (65_536, 15_104, 512), (5,), (2049,), [1] * 200):
        tensors = [torch.empty(size, device=cuda.device) for size in sizes]
        cuts = cut(tensors, piece(tensors))
        assert len(tensors) <= len(cuts) <= 252
        assert max(own.numel() for own in cuts) <= 18_000
        assert sum(own.numel() for own in cuts) == sum(sizes)
    critics = [torch.empty(size, device=cuda.device) for size in (4_194_304, 108_544, 4096)]
    assert len(cut(critics, piece(critics))) > 240


def test_what_a_processor_or_an_older_build_computes_or_fills_a_gpu_stays_whole(cuda, monkeypatch):
    def whole(*sizes, device=cuda.device):
        tensors = [torch.empty(size, device=device) for size in sizes]
        cuts = cut(tensors, piece(tensors))
        return len(cuts) == len(tensors) and all(map(operator.is_, cuts, tensors))

    assert whole(100_000, device="cpu")
    assert whole(*[100] * 252)
    assert whole(2**24)
    assert not whole(100_000)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert whole(100_000)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch, "__version__", "2.12.1+cu130")
    assert whole(100_000)


def test_a_tensor_in_several_stretches_of_memory_is_not_cut():
    with pytest.raises(AssertionError, match="contiguous"):
        cut([torch.empty(64, 64).T], 1024)
