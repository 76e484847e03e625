"""PPO and A2C in one file, in the manner of CleanRL and written here: a plain loop over vector environments.

As there: separate networks with orthogonal weights, advantages by a loop backwards, an end by time is an end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal


def layer(fan_in: int, fan_out: int, gain: float = 2**0.5) -> nn.Linear:
    """Orthogonal weights, no bias at first."""
    made = nn.Linear(fan_in, fan_out)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.zeros_(made.bias)
    return made


class Agent(nn.Module):
    """Policy and values, apart."""

    def __init__(self, observation: int, space: gymnasium.Space, hidden: list[int]) -> None:
        super().__init__()
        self.discrete = isinstance(space, gymnasium.spaces.Discrete)
        outputs = int(space.n) if self.discrete else space.shape[0]
        self.policy = self._network(observation, hidden, outputs, 0.01)
        self.value = self._network(observation, hidden, 1, 1.0)
        self.log_std = nn.Parameter(torch.zeros(outputs))

    @staticmethod
    def _network(observation: int, hidden: list[int], outputs: int, gain: float) -> nn.Sequential:
        layers: list[nn.Module] = []
        for fan_in, fan_out in zip([observation, *hidden], hidden, strict=False):
            layers += [layer(fan_in, fan_out), nn.Tanh()]
        return nn.Sequential(*layers, layer(hidden[-1], outputs, gain))

    def forward(self, seen: Tensor) -> tuple[Distribution, Tensor]:
        means = self.policy(seen)
        if self.discrete:
            return Categorical(logits=means), self.value(seen).squeeze(-1)
        return Independent(Normal(means, self.log_std.exp().expand_as(means)), 1), self.value(seen).squeeze(
            -1
        )


def learn(
    envs: gymnasium.vector.VectorEnv,
    values: dict[str, Any],
    length: int,
    steps: int,
    seed: int,
    device: torch.device,
    updated: Callable[[], None],
) -> Agent:
    """Trains.

    Args:
        envs: to step.
        values: of the recipe; `epochs` makes it PPO.
        length: vector steps of a rollout.
        steps: of all environments together.
        seed: of the environments.
        device: of the networks.
        updated: called after each gradient step.
    """
    count, space = envs.num_envs, envs.single_action_space
    agent = Agent(envs.single_observation_space.shape[0], space, values["hidden"]).to(device)
    parameters = agent.parameters()
    if "epochs" in values:
        optimizer: torch.optim.Optimizer = torch.optim.Adam(
            parameters, values["learning_rate"], eps=values["adam_eps"]
        )
    else:
        optimizer = torch.optim.RMSprop(
            parameters, values["learning_rate"], alpha=values["rmsprop_alpha"], eps=values["optimizer_eps"]
        )
    shape = () if agent.discrete else space.shape
    seen = torch.zeros(length, count, envs.single_observation_space.shape[0], device=device)
    actions = torch.zeros(length, count, *shape, device=device)
    densities, rewards, dones, guesses = torch.zeros(4, length, count, device=device)

    now = torch.as_tensor(envs.reset(seed=seed)[0], device=device)
    over = torch.zeros(count, device=device)
    for _ in range(steps // (length * count)):
        for step in range(length):
            seen[step], dones[step] = now, over
            with torch.no_grad():
                chance, guess = agent(now)
                action = chance.sample()
                actions[step], densities[step], guesses[step] = action, chance.log_prob(action), guess
            sent = action.cpu().numpy()
            if not agent.discrete:
                sent = np.clip(sent, space.low, space.high)
            observation, reward, terminated, truncated, _ = envs.step(sent)
            now = torch.as_tensor(observation, device=device)
            rewards[step] = torch.as_tensor(reward, device=device)
            over = torch.as_tensor(terminated | truncated, device=device).float()
        with torch.no_grad():
            following, ahead = agent(now)[1], over
            advantages, last = torch.zeros_like(rewards), torch.zeros(count, device=device)
            for step in reversed(range(length)):
                going = 1 - ahead
                surprise = rewards[step] + values["gamma"] * following * going - guesses[step]
                last = surprise + values["gamma"] * values["gae_lambda"] * going * last
                advantages[step], following, ahead = last, guesses[step], dones[step]
        rollout = (
            *(seen.flatten(0, 1), actions.flatten(0, 1), densities.flatten(), advantages.flatten()),
            (advantages + guesses).flatten(),
        )
        for batch in batches(rollout, values):
            optimizer.zero_grad()
            loss(agent, batch, values).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), values["max_grad_norm"])
            optimizer.step()
            updated()
    return agent


def batches(rollout: tuple[Tensor, ...], values: dict[str, Any]):
    """Yields minibatches of each epoch, or the whole rollout once."""
    if "epochs" not in values:
        yield rollout
        return
    for _ in range(values["epochs"]):
        for rows in torch.randperm(len(rollout[0])).split(values["batch_size"]):
            yield tuple(tensor[rows.to(tensor.device)] for tensor in rollout)


def loss(agent: Agent, batch: tuple[Tensor, ...], values: dict[str, Any]) -> Tensor:
    """Of policy, values and entropy together."""
    seen, action, density, advantage, goal = batch
    chance, guess = agent(seen)
    now = chance.log_prob(action)
    if "epochs" in values:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio, clip = (now - density).exp(), values["clip_range"]
        policy = -torch.min(advantage * ratio, advantage * ratio.clamp(1 - clip, 1 + clip)).mean()
    else:
        policy = -(advantage * now).mean()
    value = (guess - goal).square().mean()
    entropy = chance.entropy().mean()
    return policy + values["value_coefficient"] * value - values["entropy_coefficient"] * entropy
