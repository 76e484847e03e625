"""A plain implementation of SAC, to compare with."""

import copy
from functools import partial

import torch
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from tests.trainer.sacs import TASKS
from trainer.algorithms.sac_config import SACConfig
from trainer.algorithms.sac_learner import SAC
from trainer.replay import Batch


class TextbookSAC:
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

    def features(self, observation, task):
        return torch.cat([observation, torch.eye(TASKS)[task]], 1)

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
        self.descend(self.critic_adam, self.critic_loss(batch, target), self.critics.parameters())
        with torch.no_grad():
            for slow, fast in zip(self.targets.parameters(), self.critics.parameters(), strict=True):
                slow.copy_((1 - config.tau) * slow + config.tau * fast)
        action, log_density = self.act(batch.observation, task, noise)
        value = self.reduce(self.q(self.critics, batch.observation, action, task))
        self.descend(self.actor_adam, (alpha * log_density - value).mean(), self.actor.parameters())
        if config.temperature == "shared":
            loss = self.log_alpha.exp() * (-log_density.detach() - config.target_entropy).mean()
        else:
            loss = (-self.log_alpha[task] * (log_density.detach() + config.target_entropy)).mean()
        self.descend(self.alpha_adam, loss, None)

    def descend(self, adam, loss, clipped) -> None:
        adam.zero_grad()
        loss.backward()
        if clipped is not None and self.config.max_grad_norm > 0:
            torch.nn.utils.clip_grad_norm_(list(clipped), self.config.max_grad_norm)
        adam.step()
