"""A plain implementation of DQN with its options, to compare with."""

import copy

import torch
from torch import nn
from torch.nn import functional

from trainer.algorithms.dqn_update import DQN, DQNConfig
from trainer.nn.epsilon_greedy import QNetwork
from trainer.replay import Batch


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


class TextbookDQN:
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
        self.adam.zero_grad()
        loss.backward()
        if config.max_grad_norm > 0:
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), config.max_grad_norm)
        self.adam.step()
        if (number + 1) % config.target_interval == 0:
            for slow, fast in zip(self.target.parameters(), self.network.parameters(), strict=True):
                slow.data = (1 - config.tau) * slow.data + config.tau * fast.data
