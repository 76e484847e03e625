"""A plain implementation of TD3, to compare with."""

import copy

import torch
from torch.nn import functional

from tests.trainer.sacs import TASKS
from trainer.algorithms.td3_update import TD3, TD3Config
from trainer.replay import Batch


class TextbookTD3:
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

    def features(self, observation, task):
        return torch.cat([observation, torch.eye(TASKS)[task]], 1)

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
            for slow, fast in zip(targets.parameters(), network.parameters(), strict=True):
                slow.data = (1 - config.tau) * slow.data + config.tau * fast.data

    def descend(self, adam, loss, network) -> None:
        adam.zero_grad()
        loss.backward()
        if self.config.max_grad_norm > 0:
            torch.nn.utils.clip_grad_norm_(network.parameters(), self.config.max_grad_norm)
        adam.step()
