"""Plain implementations of the learners, to compare with."""

import copy
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution
from torch.nn import functional

from tests.trainer.sacs import TASKS
from trainer.algorithms.dqn_update import DQN, DQNConfig
from trainer.algorithms.sac_config import SACConfig
from trainer.algorithms.sac_learner import SAC
from trainer.algorithms.td3_update import TD3, TD3Config
from trainer.nn.epsilon_greedy import QNetwork
from trainer.replay import Batch


class Textbook:
    """What the plain implementations share: features, a step of an optimiser, targets that follow."""

    def features(self, observation, task):
        return torch.cat([observation, torch.eye(TASKS)[task]], 1)

    def descend(self, adam, loss, network) -> None:
        adam.zero_grad()
        loss.backward()
        if network is not None and self.config.max_grad_norm > 0:
            nn.utils.clip_grad_norm_(network.parameters(), self.config.max_grad_norm)
        adam.step()

    def follow(self, targets, network) -> None:
        tau = self.config.tau
        for slow, fast in zip(targets.parameters(), network.parameters(), strict=True):
            slow.data = (1 - tau) * slow.data + tau * fast.data


class TextbookSAC(Textbook):
    """One network after the other, plain Adam, distributions from PyTorch."""

    def __init__(self, agent: SAC, config: SACConfig) -> None:
        self.config = config
        self.actor = copy.deepcopy(agent.policy)
        self.critics = copy.deepcopy(agent.critics)
        self.targets = copy.deepcopy(agent.targets)
        self.log_alpha = agent.log_alpha.detach().clone().requires_grad_()
        eps = config.adam_eps
        decayed = partial(torch.optim.AdamW, eps=eps, weight_decay=config.weight_decay)
        self.actor_adam = decayed(self.actor.parameters(), config.actor_learning_rate)
        self.critic_adam = decayed(self.critics.parameters(), config.critic_learning_rate)
        betas = (0.5 if config.temperature == "shared" else 0.9, 0.999)
        if config.temperature == "shared":
            self.log_alpha = agent.log_alpha[0].detach().clone().requires_grad_()
        self.alpha_adam = torch.optim.Adam([self.log_alpha], config.alpha_learning_rate, betas, eps)

    def act(self, observation, task, noise):
        mean, log_std = self.actor.actor(self.features(observation, task), task)[0].chunk(2, -1)
        if self.config.log_std_bounding == "tanh":
            low, high = self.config.log_std_min, self.config.log_std_max
            std = (low + (high - low) * (log_std.tanh() + 1) / 2).exp()
        else:
            std = log_std.clamp(-20, 2).exp()
        squash = TanhTransform(cache_size=1)
        policy = TransformedDistribution(Independent(Normal(mean, std), 1), [squash])
        action = squash(mean + std * noise)
        return action, policy.log_prob(action)

    def outputs(self, critics, observation, action, task):
        rows = torch.cat([self.features(observation, task), action], 1)
        return critics(rows, task)

    def q(self, critics, observation, action, task):
        outputs = self.outputs(critics, observation, action, task)
        if not self.config.value_bins:
            return outputs[:, :, 0]
        return (outputs.softmax(-1) * self.values()).sum(-1)

    def values(self):
        return torch.linspace(-self.config.value_bound, self.config.value_bound, self.config.value_bins)

    def reduce(self, values):
        return values.min(0).values if self.config.critic_reduction == "min" else values.mean(0)

    def critic_loss(self, batch, target):
        if not self.config.value_bins:
            first, second = self.q(self.critics, batch.observation, batch.action, batch.task)
            return 0.5 * (((first - target) ** 2).mean() + ((second - target) ** 2).mean())
        width = 2 * self.config.value_bound / (self.config.value_bins - 1)
        bound = self.config.value_bound
        spread = Normal(target.clamp(-bound, bound)[:, None], self.config.value_smoothing * width)
        edges = torch.cat([self.values() - width / 2, self.values()[-1:] + width / 2])
        mass = spread.cdf(edges).diff(dim=1)
        mass = mass / mass.sum(1, keepdim=True)
        outputs = self.outputs(self.critics, batch.observation, batch.action, batch.task)
        return torch.nn.functional.cross_entropy(outputs.flatten(0, 1), mass.repeat(2, 1))

    def update(self, batch: Batch) -> None:
        config, task = self.config, batch.task
        alpha = self.log_alpha.exp().detach().expand(TASKS)[task]
        noise, next_noise = torch.randn(2, *batch.action.shape)
        with torch.no_grad():
            action, log_density = self.act(batch.next_observation, task, next_noise)
            value = self.reduce(self.q(self.targets, batch.next_observation, action, task))
            value = value - alpha * log_density
            if batch.goes_on is not None:
                value[batch.goes_on == 0] = 0.0
            target = config.reward_scale * batch.reward + config.gamma * value
        self.descend(self.critic_adam, self.critic_loss(batch, target), self.critics)
        self.follow(self.targets, self.critics)
        action, log_density = self.act(batch.observation, task, noise)
        value = self.reduce(self.q(self.critics, batch.observation, action, task))
        self.descend(self.actor_adam, (alpha * log_density - value).mean(), self.actor)
        if config.temperature == "shared":
            loss = self.log_alpha.exp() * (-log_density.detach() - config.target_entropy).mean()
        else:
            loss = (-self.log_alpha[task] * (log_density.detach() + config.target_entropy)).mean()
        self.descend(self.alpha_adam, loss, None)


class TextbookTD3(Textbook):
    """One network after the other, PyTorch's Adam, in the order of algorithm 1."""

    def __init__(self, agent: TD3, config: TD3Config) -> None:
        self.config = config
        self.actor = copy.deepcopy(agent.policy.actor)
        self.target_actor = copy.deepcopy(self.actor)
        self.critics = copy.deepcopy(agent.critics)
        self.targets = copy.deepcopy(self.critics)
        self.actor_adam = torch.optim.Adam(
            self.actor.parameters(), config.actor_learning_rate, eps=config.adam_eps
        )
        self.critic_adam = torch.optim.Adam(
            self.critics.parameters(), config.critic_learning_rate, eps=config.adam_eps
        )

    def act(self, actor, observation, task):
        return torch.tanh(actor(self.features(observation, task), task)[0])

    def q(self, critics, observation, action, task):
        return critics(torch.cat([self.features(observation, task), action], 1), task)[:, :, 0]

    def update(self, batch: Batch, number: int) -> None:
        config, task = self.config, batch.task
        with torch.no_grad():
            noise = torch.randn(*batch.action.shape) * config.target_noise
            noise = noise.clamp(-config.target_noise_clip, config.target_noise_clip)
            action = self.act(self.target_actor, batch.next_observation, task) + noise
            first, second = self.q(self.targets, batch.next_observation, action.clamp(-1, 1), task)
            value = torch.minimum(first, second)
            if batch.goes_on is not None:
                value = value * batch.goes_on
            target = config.reward_scale * batch.reward + config.gamma * value
        first, second = self.q(self.critics, batch.observation, batch.action, task)
        loss = functional.mse_loss(first, target) + functional.mse_loss(second, target)
        self.descend(self.critic_adam, loss, self.critics)
        if (number + 1) % config.policy_delay:
            return
        action = self.act(self.actor, batch.observation, task)
        first, _ = self.q(self.critics, batch.observation, action, task)
        self.descend(self.actor_adam, -first.mean(), self.actor)
        for targets, network in ((self.targets, self.critics), (self.target_actor, self.actor)):
            self.follow(targets, network)


def linear(weight: torch.Tensor, bias: torch.Tensor) -> nn.Linear:
    """A layer of float64 numbers with these weights."""
    layer = nn.Linear(weight.shape[1], weight.shape[0]).double()
    layer.weight.data.copy_(weight)
    layer.bias.data.copy_(bias)
    return layer


class PlainDueling(nn.Module):
    """A shared body, a stream for the value and one for the advantages, in layers of their own."""

    def __init__(self, network: QNetwork) -> None:
        super().__init__()
        *shared, before, last = [(layer.weight, layer.bias) for layer in network.body.layers]
        width = before[1].numel() // 2
        self.body = nn.Sequential(*(part for each in shared for part in (linear(*each), nn.ReLU())))
        self.value = nn.Sequential(
            linear(before[0][:width], before[1][:width]),
            nn.ReLU(),
            linear(last[0][:1, :width], last[1][:1]),
        )
        self.advantage = nn.Sequential(
            linear(before[0][width:], before[1][width:]),
            nn.ReLU(),
            linear(last[0][1:, width:], last[1][1:]),
        )

    def forward(self, rows):
        rows = self.body(rows)
        advantage = self.advantage(rows)
        return self.value(rows) + advantage - advantage.mean(1, keepdim=True)


class Plain(nn.Sequential):
    """Layers with ReLU between them."""

    def __init__(self, network: QNetwork) -> None:
        layers = [linear(layer.weight, layer.bias) for layer in network.body.layers]
        super().__init__(*(part for layer in layers for part in (layer, nn.ReLU())))
        self.pop(-1)


class TextbookDQN(Textbook):
    """Networks in PyTorch's own layers and its Adam, in float64."""

    def __init__(self, agent: DQN, config: DQNConfig) -> None:
        self.config = config
        network = agent.policy.actor
        self.network = (PlainDueling if config.dueling else Plain)(network)
        self.target = copy.deepcopy(self.network)
        self.adam = torch.optim.Adam(self.network.parameters(), config.learning_rate, eps=config.adam_eps)

    def update(self, batch: Batch, number: int) -> None:
        config = self.config
        observation, following = batch.observation.double(), batch.next_observation.double()
        with torch.no_grad():
            values = self.target(following)
            if config.double:
                best = self.network(following).argmax(1, keepdim=True)
            else:
                best = values.argmax(1, keepdim=True)
            value = values.gather(1, best)[:, 0]
            target = config.reward_scale * batch.reward + config.gamma * batch.goes_on * value
        value = self.network(observation).gather(1, batch.action.long())[:, 0]
        loss = functional.smooth_l1_loss(value, target)
        self.descend(self.adam, loss, self.network)
        if (number + 1) % config.target_interval == 0:
            self.follow(self.target, self.network)


def second_step(gradient: Tensor, state: Mapping[str, Tensor], max_norm: float) -> Tensor:
    """What the second step takes off the parameters, at a rate of 0.01 with an epsilon of 1e-5.

    Args:
        gradient: of all parameters, before it is clipped.
        state: the moments after the first step.
        max_norm: to which it is clipped.
    """
    clipped = gradient * min(1.0, max_norm / float(gradient.norm()))
    first = 0.9 * state["exp_avg"] + 0.1 * clipped
    second = 0.999 * state["exp_avg_sq"] + 0.001 * clipped**2
    return 1e-2 * (first / (1 - 0.9**2)) / ((second / (1 - 0.999**2)).sqrt() + 1e-5)
