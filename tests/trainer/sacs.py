"""Learners of SAC and batches that are small enough to look into."""

import torch
from torch.utils._pytree import tree_leaves

from trainer.algorithms.sac_config import SACConfig
from trainer.algorithms.sac_learner import SAC
from trainer.replay import Batch

CONFIG = SACConfig(
    heads="one-hot",
    one_hot=True,
    actor_hidden=(16, 16),
    critic_hidden=(24, 24),
    layer_norm=False,
    init="he_uniform",
    actor_learning_rate=1e-3,
    critic_learning_rate=2e-3,
    alpha_learning_rate=3e-3,
    adam_eps=1e-5,
    gamma=0.9,
    tau=0.05,
    initial_alpha=0.4,
    target_entropy=-2.0,
    max_grad_norm=0.0,
    log_std_min=-20.0,
    log_std_max=2.0,
    reward_scale=1.0,
)
STRONG = {
    "critic_network": "residual",
    "critic_reduction": "mean",
    "layer_norm": True,
    "value_bins": 21,
    "value_bound": 5.0,
    "value_smoothing": 0.75,
    "weight_decay": 0.1,
    "max_grad_norm": 0.5,
}
"""What goes beyond the paper, all at once."""
TASKS, OBSERVATION, ACTION = 3, 5, 2


def make(config: SACConfig, **how) -> SAC:
    torch.manual_seed(0)
    agent = SAC(config, OBSERVATION, ACTION, TASKS, **how)
    # output layers large enough that every term of every loss matters
    for network in (agent.policy.actor, agent.critics, agent.targets):
        for last in (network.weights[-1], network.biases[-1]):
            last.data.uniform_(-0.5, 0.5)
    return agent


def make_batch(size: int = 12, *, ends: bool = False) -> Batch:
    return Batch(
        torch.randn(size, OBSERVATION),
        torch.rand(size, ACTION) * 2 - 1,
        torch.randn(size),
        torch.randn(size, OBSERVATION),
        torch.arange(size) % TASKS,
        (torch.arange(size) % 5 > 0).to(torch.get_default_dtype()) if ends else None,
    )


def same(left, right) -> list[bool]:
    """Compares two nests of tensors, leaf by leaf, to the bit."""
    leaves, others = tree_leaves(left), tree_leaves(right)
    assert len(leaves) == len(others)
    pairs = zip(leaves, others, strict=True)
    return [torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs]
