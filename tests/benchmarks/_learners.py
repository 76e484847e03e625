"""The learners that the benchmarks compare, at the sizes of the lab guides and of the paper."""

from __future__ import annotations

import copy
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.benchmarks.peers.sac_single_file import SingleFileSAC
from trainer import recipe
from trainer.algorithms.capture import CapturedUpdate
from trainer.algorithms.pieces import piece
from trainer.algorithms.sac_config import SACConfig
from trainer.algorithms.sac_learner import SAC
from trainer.machine.device import autocast
from trainer.replay import Batch

OBSERVATION, ACTION, TASKS = 39, 4, 10
FEATURES = OBSERVATION + TASKS
POOL = 100_000
"""Transitions to draw batches from, on the device."""


def make_data(device: torch.device | str) -> Batch:
    """Random transitions of all tasks; numbers do not change what a product costs."""
    generator = torch.Generator().manual_seed(0)
    draw = partial(torch.randn, generator=generator)
    data = Batch(
        draw(POOL, OBSERVATION),
        draw(POOL, ACTION).tanh(),
        draw(POOL),
        draw(POOL, OBSERVATION),
        torch.arange(POOL) % TASKS,
    )
    return Batch(*(tensor.to(device) for tensor in data.tensors))


def path_of(agent: SAC) -> str:
    """Returns what computes a learner's updates; a speed is of one way."""
    gradients = "autograd" if getattr(agent, "operations", None) is None else "kernels"
    cut = bool(piece([*agent.critics.parameters()]))
    return f"{gradients}, optimisers {'in pieces' if cut else 'whole'}"


class Ours:
    """The trainer's learner on batches that it draws on its device.

    Args:
        name: of the recipe.
        data: to draw batches from.
        batch_size: of a batch.
        precision: of products.
        captured: the update is a CUDA graph.
        kernels: whether kernels compute it where the device has some; else autograd does.
    """

    def __init__(
        self,
        name: str,
        data: Batch,
        batch_size: int,
        precision: str = "fp32",
        *,
        captured: bool = False,
        kernels: bool = True,
    ) -> None:
        device = data.reward.device
        config = SACConfig.from_values(recipe.load(name).values)
        torch.manual_seed(0)
        self.agent = SAC(config, OBSERVATION, ACTION, TASKS, device, partial(autocast, device, precision))
        if not kernels:
            self.agent.operations = None
        self._data = data
        self._batch_size = batch_size
        self._update = CapturedUpdate(self._draw_and_learn, self.agent.tensors, device)
        self.update = self._update if captured else self._draw_and_learn
        torch.manual_seed(1)

    @property
    def note(self) -> str:
        """Why nothing was captured, if so."""
        return self._update.note

    @property
    def path(self) -> str:
        """See `path_of`."""
        return path_of(self.agent)

    def _draw_and_learn(self) -> dict[str, Tensor]:
        rows = (torch.rand(self._batch_size, device=self._data.reward.device) * POOL).long()
        return self.agent.update(Batch(*(tensor[rows] for tensor in self._data.tensors)))


class PlainActor(nn.Module):
    """A squashed Gaussian in PyTorch's own layers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.mean, self.log_std = nn.Linear(256, ACTION), nn.Linear(256, ACTION)

    def forward(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.body(seen)
        normal = torch.distributions.Normal(self.mean(hidden), self.log_std(hidden).clamp(-20, 2).exp())
        raw = normal.rsample()
        action = torch.tanh(raw)
        density = normal.log_prob(raw) - torch.log(1 - action.square() + 1e-6)
        return action, density.sum(1, keepdim=True)


def plain_critic() -> nn.Sequential:
    """A critic in PyTorch's own layers."""
    sizes = [FEATURES + ACTION, 1024, 1024, 1024]
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(1024, 1))


class Plain:
    """Soft actor-critic as in single-file implementations: one network after the other, PyTorch's Adam."""

    def __init__(self, data: Batch, batch_size: int, *, compiled: bool = False) -> None:
        device = data.reward.device
        self._data = data
        self._one_hot = torch.eye(TASKS, device=device)
        self._batch_size = batch_size
        self.actor = PlainActor().to(device)
        self.critics = [plain_critic().to(device) for _ in range(2)]
        self.targets = copy.deepcopy(self.critics)
        if compiled:
            for network in (self.actor, *self.critics, *self.targets):
                network.compile()
        self.log_alpha = torch.zeros(1, device=device, requires_grad=True)
        critic_parameters = [parameter for critic in self.critics for parameter in critic.parameters()]
        self.critic_adam = torch.optim.Adam(critic_parameters, 3e-4)
        self.actor_adam = torch.optim.Adam(self.actor.parameters(), 3e-4)
        self.alpha_adam = torch.optim.Adam([self.log_alpha], 3e-4)

    def update(self) -> None:
        """One gradient step of everything."""
        rows = torch.randint(POOL, (self._batch_size,), device=self.log_alpha.device)
        one_hot = self._one_hot[self._data.task[rows]]
        seen = torch.cat([self._data.observation[rows], one_hot], 1)
        then = torch.cat([self._data.next_observation[rows], one_hot], 1)
        action, reward = self._data.action[rows], self._data.reward[rows, None]
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            next_action, next_density = self.actor(then)
            rows_then = torch.cat([then, next_action], 1)
            worst = torch.min(*(target(rows_then) for target in self.targets))
            goal = reward + 0.99 * (worst - alpha * next_density)
        rows_now = torch.cat([seen, action], 1)
        self._descend(
            self.critic_adam, sum(functional.mse_loss(critic(rows_now), goal) for critic in self.critics)
        )
        drawn, density = self.actor(seen)
        value = torch.min(*(critic(torch.cat([seen, drawn], 1)) for critic in self.critics))
        self._descend(self.actor_adam, (alpha * density - value).mean())
        self._descend(self.alpha_adam, (-self.log_alpha.exp() * (density.detach() - ACTION)).mean())
        with torch.no_grad():
            for target, critic in zip(self.targets, self.critics, strict=True):
                for slow, fast in zip(target.parameters(), critic.parameters(), strict=True):
                    slow.copy_(0.005 * fast + 0.995 * slow)

    def _descend(self, adam: torch.optim.Optimizer, loss: Tensor) -> None:
        adam.zero_grad()
        loss.backward()
        adam.step()


def single_file(data: Batch, batch_size: int, *, compiled: bool, graphed: bool) -> SingleFileSAC:
    """The single file in LeanRL's manner, at the lab guides' sizes; one temperature for all tasks."""
    values = recipe.load("guide-mt10").values | {"batch_size": batch_size, "replay_capacity": POOL}
    device = data.reward.device
    high = torch.ones(ACTION)
    agent = SingleFileSAC(FEATURES, -high, high, dict(values), device, compiled=compiled, graphed=graphed)
    one_hot = torch.eye(TASKS, device=device)[data.task]
    agent.remember(
        seen=torch.cat([data.observation, one_hot], 1),
        action=data.action,
        reward=data.reward[:, None],
        then=torch.cat([data.next_observation, one_hot], 1),
        over=torch.zeros(POOL, 1, device=device),
    )
    return agent
