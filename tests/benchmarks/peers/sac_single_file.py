"""Soft actor-critic in one file: a reference for speed, in the manner of LeanRL and CleanRL, written here.

What makes such files fast is all here and nothing else is: both critics as one batched product, replay and
batch indices on the device, the whole update without a word to the host, so that `torch.compile` and a CUDA
graph can each take all of it. No resumption, no evaluation, no guards.

    python -m tests.benchmarks.peers.sac_single_file [--compile] [--cudagraphs] [--updates 1000]

prints updates a second on random transitions, at the sizes that LeanRL measures (HalfCheetah: 17
observations, 6 actions, layers of 256, batches of 256).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

HALF_CHEETAH = 17, 6
WARM_UP = 3


class Actor(nn.Module):
    """A squashed Gaussian: (n, observation) -> action and its log density, (n, action) and (n, 1)."""

    def __init__(
        self, observation: int, action: int, hidden: Sequence[int], low: Tensor, high: Tensor
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for fan_in, fan_out in zip((observation, *hidden), hidden, strict=False):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(hidden[-1], 2 * action)
        self.register_buffer("scale", (high - low) / 2)
        self.register_buffer("middle", (high + low) / 2)

    def forward(self, seen: Tensor, *, likeliest: bool = False) -> tuple[Tensor, Tensor]:
        mean, log_std = self.head(self.body(seen)).chunk(2, dim=-1)
        log_std = log_std.clamp(-20, 2)
        noise = torch.zeros_like(mean) if likeliest else torch.randn_like(mean)
        raw = mean + log_std.exp() * noise
        # log(1 - tanh(x)^2) without cancellation
        squash = 2 * (math.log(2) - raw - functional.softplus(-2 * raw))
        density = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi) - squash
        return raw.tanh() * self.scale + self.middle, density.sum(-1, keepdim=True)


class Critics(nn.Module):
    """Both critics at once: (n, observation + action) -> values (2, n, 1)."""

    def __init__(self, inputs: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for fan_in, fan_out in zip((inputs, *hidden), (*hidden, 1), strict=True):
            bound = fan_in**-0.5
            self.weights.append(torch.empty(2, fan_in, fan_out).uniform_(-bound, bound))
            self.biases.append(torch.empty(2, 1, fan_out).uniform_(-bound, bound))

    def forward(self, rows: Tensor) -> Tensor:
        values = rows.expand(2, *rows.shape)
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = torch.baddbmm(bias, values, weight)
            if number < len(self.weights) - 1:
                values = values.relu()
        return values


class SingleFileSAC:
    """Learner and replay.

    Args:
        low, high: bounds of actions, (action,).
        observation: its size.
        values: `actor_hidden`, `critic_hidden`, `batch_size`, `replay_capacity`, `gamma`, `tau`, and the
            three learning rates.
        device: of everything.
        compiled: the update goes through `torch.compile`.
        graphed: the update is captured as a CUDA graph; needs CUDA.

    Attributes:
        graphed: as given; may be set before an update.
    """

    def __init__(
        self,
        observation: int,
        low: Tensor,
        high: Tensor,
        values: dict[str, Any],
        device: torch.device,
        *,
        compiled: bool = False,
        graphed: bool = False,
    ) -> None:
        action = len(low)
        capacity = values["replay_capacity"]
        self._batch, self._gamma, self._tau = values["batch_size"], values["gamma"], values["tau"]
        self._device = device
        sizes = {"seen": observation, "action": action, "reward": 1, "then": observation, "over": 1}
        self._replay = {name: torch.zeros(capacity, size, device=device) for name, size in sizes.items()}
        self._place, self._full = 0, False
        self._size = torch.zeros((), device=device)  # read by the graph, so on the device
        self.actor = Actor(observation, action, values["actor_hidden"], low, high).to(device)
        self.critics = Critics(observation + action, values["critic_hidden"]).to(device)
        self.targets = Critics(observation + action, values["critic_hidden"]).to(device)
        self.targets.load_state_dict(self.critics.state_dict())
        self.log_alpha = torch.zeros(1, device=device, requires_grad=True)
        self._target_entropy = -float(action)
        capturable = {"capturable": device.type == "cuda"}
        self._critic_adam = torch.optim.Adam(
            self.critics.parameters(), values["critic_learning_rate"], **capturable
        )
        self._actor_adam = torch.optim.Adam(
            self.actor.parameters(), values["actor_learning_rate"], **capturable
        )
        self._alpha_adam = torch.optim.Adam([self.log_alpha], values["alpha_learning_rate"], **capturable)
        self._learn = torch.compile(self._step) if compiled else self._step
        self._graph: torch.cuda.CUDAGraph | None = None
        self.graphed = graphed

    def remember(self, **rows: Tensor) -> None:
        """Adds transitions: `seen`, `action`, `reward`, `then`, `over`, each (n, size)."""
        count, capacity = len(rows["seen"]), len(self._replay["seen"])
        where = torch.arange(self._place, self._place + count, device=self._device) % capacity
        for name, tensor in rows.items():
            self._replay[name][where] = tensor.to(self._device)
        self._full = self._full or self._place + count >= capacity
        self._place = (self._place + count) % capacity
        self._size.fill_(capacity if self._full else self._place)

    def update(self) -> None:
        """One gradient step of everything."""
        if not self.graphed:
            self._learn()
            return
        if self._graph is None:
            self._capture()
        assert self._graph is not None
        self._graph.replay()

    @torch.no_grad()
    def act(self, seen: Tensor, *, likeliest: bool = False) -> Tensor:
        """Observations (n, observation) -> actions (n, action)."""
        action: Tensor = self.actor(seen, likeliest=likeliest)[0]
        return action

    def _capture(self) -> None:
        """Makes some updates on a side stream, as capturing asks, then records one."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self._learn()
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._learn()

    def _step(self) -> None:
        rows = (torch.rand(self._batch, device=self._device) * self._size).long()
        seen, action, reward, then, over = (tensor[rows] for tensor in self._replay.values())
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            next_action, next_density = self.actor(then)
            worst = self.targets(torch.cat([then, next_action], 1)).amin(0) - alpha * next_density
            goal = reward + (1 - over) * self._gamma * worst
        known = self.critics(torch.cat([seen, action], 1))
        self._descend(self._critic_adam, (known - goal).square().mean((1, 2)).sum())

        drawn, density = self.actor(seen)
        value = self.critics(torch.cat([seen, drawn], 1)).amin(0)
        self._descend(self._actor_adam, (alpha * density - value).mean())
        wanted = density.detach() + self._target_entropy
        self._descend(self._alpha_adam, (-self.log_alpha.exp() * wanted).mean())
        with torch.no_grad():
            slow, fast = list(self.targets.parameters()), list(self.critics.parameters())
            torch._foreach_lerp_(slow, fast, self._tau)

    def _descend(self, adam: torch.optim.Optimizer, loss: Tensor) -> None:
        adam.zero_grad()
        loss.backward()
        adam.step()


def rate(agent: SingleFileSAC, updates: int) -> float:
    """Updates a second, a tenth as many before not counted."""

    def settle() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()

    for _ in range(updates // 10 + 1):
        agent.update()
    begun = settle()
    for _ in range(updates):
        agent.update()
    return updates / (settle() - begun)


def main() -> None:
    """Measures and prints."""
    from trainer import recipe

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--compile", action="store_true", help="the update through torch.compile")
    parser.add_argument("--cudagraphs", action="store_true", help="the update as a CUDA graph")
    parser.add_argument("--updates", type=int, default=1000)
    asked = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if asked.cudagraphs and device.type != "cuda":
        parser.error("--cudagraphs needs an NVIDIA GPU")
    observation, action = HALF_CHEETAH
    high = torch.ones(action)
    agent = SingleFileSAC(
        *(observation, -high, high, dict(recipe.load("sac").values), device),
        compiled=asked.compile,
        graphed=asked.cudagraphs,
    )
    count = 10_000
    rows = {"seen": observation, "action": action, "reward": 1, "then": observation}
    draws = {name: torch.randn(count, size) for name, size in rows.items()}
    agent.remember(**draws, over=torch.zeros(count, 1))
    found = {"compiled": asked.compile, "graphed": asked.cudagraphs, "device": device.type}
    print(json.dumps(found | {"updates_per_second": rate(agent, asked.updates)}))


if __name__ == "__main__":
    main()
