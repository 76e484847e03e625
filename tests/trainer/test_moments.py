from __future__ import annotations

import torch

from trainer.nn.moments import RunningMoments


def test_batches_merge_to_the_moments_of_all() -> None:
    torch.manual_seed(0)
    rows = torch.randn(1000, 3) * torch.tensor([1.0, 5.0, 0.1]) + torch.tensor([0.0, 100.0, -3.0])
    moments = RunningMoments(3)
    for part in rows.split([1, 399, 600]):
        moments.merge(part)
    torch.testing.assert_close(moments.mean, rows.double().mean(0))
    torch.testing.assert_close(moments.variance, rows.double().var(0, correction=0))
    assert moments.count == 1000
    scaled = moments.standardised(rows)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(scaled.std(0), torch.ones(3), atol=1e-3, rtol=0)


def test_before_anything_is_seen_nothing_changes() -> None:
    rows = torch.tensor([[0.5, -20.0]])
    torch.testing.assert_close(RunningMoments(2).standardised(rows), torch.tensor([[0.5, -10.0]]))


def test_what_is_not_finite_spoils_nothing() -> None:
    moments = RunningMoments(2)
    moments.merge(torch.tensor([[1.0, 2.0], [3.0, 2.0]]))
    before = {name: buffer.clone() for name, buffer in moments.named_buffers()}
    moments.merge(torch.tensor([[torch.nan, 0.0], [torch.inf, 0.0]]))
    assert all(torch.equal(buffer, before[name]) for name, buffer in moments.named_buffers())


def test_a_scale_leaves_the_zero_where_it_is() -> None:
    moments = RunningMoments(1)
    moments.merge(torch.tensor([[4.0], [8.0]]))
    torch.testing.assert_close(moments.scaled(torch.tensor([0.0, 2.0])), torch.tensor([0.0, 1.0]))
