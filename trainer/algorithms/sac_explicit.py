"""An update of SAC whose gradients are written out, for an actor and two critics of plain layers.

It computes what `SACUpdate.update` does with autograd, in a third of the operations: each line here is a
matrix product or one operation of `trainer.algorithms.kernels`, and on a GPU an update of small networks
costs its number of operations. Two savings are more than bookkeeping: the actor's way back has half of its
rows, for the next actions have no gradient; and of the critics' inputs only the actions get one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trainer.algorithms.kernels.choice import on_device
from trainer.algorithms.kernels.operations import Constants, Inputs, Operations
from trainer.algorithms.optimizers import GuardedAdam, GuardedAverage
from trainer.algorithms.sac_config import SACConfig
from trainer.nn.mlp import EnsembleMLP, spread
from trainer.nn.policy import Policy
from trainer.recipe.share import evaluates_apart
from trainer.replay import Batch


def operations_for(config: SACConfig, action_dim: int, device: torch.device) -> tuple[Operations | None, str]:
    """Chooses what computes the updates of one learner in full precision.

    Returns:
        The operations of `ExplicitUpdate`, or None where autograd computes: on a processor, for networks or
        losses that it does not have, and where there are no kernels. And a remark for the run's record, empty
        where there was no choice.
    """
    has = (
        config.critic_network == "mlp"
        and not config.layer_norm
        and not config.value_bins
        and config.critic_reduction == "min"
        and config.actor_hidden
        and config.critic_hidden
    )
    return on_device(device, constants(config, action_dim)) if has else (None, "")


def constants(config: SACConfig, action_dim: int) -> Constants:
    """Returns what the operations need to know of a configuration."""
    return Constants(
        config.gamma,
        config.reward_scale,
        config.entropy_aimed_at(action_dim),
        config.temperature == "shared",
        (config.log_std_min, config.log_std_max),
        config.log_std_bounding == "tanh",
    )


class ExplicitUpdate:
    """The update of one seed, or of several whose tensors are joined.

    Args:
        operations: on the device of all tensors.
        policy: whose actor learns.
        critics: which learn.
        targets: which follow the critics.
        log_alpha: ([seeds,] num_tasks), which learns.
        skipped: int64 ([seeds,] 2): updates skipped in all, and in a row now.
        reward_factor: ([seeds,] num_tasks), or None.
        optimizers: of `actor`, `critics` and `alpha`.
        polyak: moves the targets.
        norm: returns the norms of gradients, a number ([seeds]).
    """

    def __init__(
        self,
        operations: Operations,
        policy: Policy,
        critics: EnsembleMLP,
        targets: EnsembleMLP,
        log_alpha: Tensor,
        skipped: Tensor,
        reward_factor: Tensor | None,
        optimizers: dict[str, GuardedAdam],
        polyak: GuardedAverage,
        norm: Callable[[Sequence[Tensor]], Tensor],
    ) -> None:
        self._operations = operations
        self._policy = policy
        self._tasks = log_alpha.shape[-1]
        self._log_alpha = log_alpha.view(-1, self._tasks)
        self._skipped = skipped.view(-1, 2)
        self._reward_factor = None if reward_factor is None else reward_factor.view(-1, self._tasks)
        self._actor = _Layers(policy.actor)
        self._apart = evaluates_apart([bias.shape[-1] for bias in self._actor.biases[:-1]])
        self._critics = _Layers(critics)
        self._targets = _Layers(targets)
        self._alpha_gradient = torch.empty_like(log_alpha)
        gradients = {
            "actor": self._actor.make_gradients(),
            "critics": self._critics.make_gradients(),
            "alpha": [self._alpha_gradient],
        }
        self._steps = {
            name: operations.optimizer(optimizer, gradients[name], norm)
            for name, optimizer in optimizers.items()
        }
        self._move_targets = operations.average(polyak)

    @torch.no_grad()
    def update(self, batch: Batch, noise: Tensor) -> dict[str, Tensor]:
        """Learns from one batch.

        Args:
            batch: of each seed, (seeds, batch, ...).
            noise: standard normal, (seeds, 2, batch, action_dim).

        Returns:
            Numbers (seeds,), as `SACUpdate.update` does.
        """
        operations, task, log_alpha = self._operations, batch.task, self._log_alpha
        given = operations.inputs(batch, self._policy.encoder)
        actor = self._through(self._actor, given.actor)
        outputs = torch.bmm(actor[-1], self._actor.weights[-1])
        actor = [values[:, : task.shape[1]] for values in actor]  # the next actions have no way back
        if self._apart:
            actor = [values.clone() for values in actor]  # without them, until the actor learns
        density = operations.act(
            outputs, self._actor.biases[-1], noise, task, given.proposed, given.following
        )
        own_density, next_density = density.unbind(1)
        alpha_gradient = self._alpha_gradient.view(-1, self._tasks)
        alpha_loss, entropy = operations.temperature(log_alpha, own_density, task, alpha_gradient)

        critic_loss, q_mean = self._learn_critics(given, batch, next_density)
        critic_norm, blocked = self._steps["critics"]([critic_loss, alpha_loss])

        proposed = self._through(self._critics, given.proposed)
        values = self._values(self._critics, proposed, task)
        slope, actor_loss = operations.actor_slope(values, own_density, log_alpha, task)
        action_gradient = self._back_to_actions(proposed, slope, task)
        flow = operations.act_back(
            action_gradient,
            outputs,
            self._actor.biases[-1],
            noise,
            task,
            log_alpha,
            self._actor.bias_gradients[-1],
        )
        self._back(self._actor, actor, flow)
        actor_norm, blocked = self._steps["actor"]([actor_loss], blocked)
        self._steps["alpha"].follow(blocked)
        self._move_targets(blocked)
        operations.count_(self._skipped, blocked)
        return {
            "loss/critic": critic_loss,
            "loss/actor": actor_loss,
            "loss/alpha": alpha_loss,
            "q/mean": q_mean,
            "entropy": entropy,
            "grad_norm/critic": critic_norm,
            "grad_norm/actor": actor_norm,
        }

    def _through(self, network: _Layers, rows: Tensor, *, last: bool = False) -> list[Tensor]:
        """Returns rows (seeds, batch, inputs) as each member has them, and what the hidden layers give on.

        Of these only what the last one gives on, if it is wanted alone.
        """
        layers = [spread(rows, len(network.weights[0]))]
        for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
            values = self._operations.bias_relu_(torch.bmm(layers[-1], weight), bias)
            layers = [values] if last else [*layers, values]
        return layers

    def _values(self, critics: _Layers, layers: list[Tensor], task: Tensor) -> Tensor:
        return self._operations.values(layers[-1], critics.weights[-1], critics.biases[-1], task)

    def _learn_critics(self, given: Inputs, batch: Batch, next_density: Tensor) -> tuple[Tensor, Tensor]:
        """Writes the critics' gradients; returns their loss and mean value, (seeds,) both."""
        critics, targets, task = self._critics, self._targets, batch.task
        target_values = self._values(targets, self._through(targets, given.following, last=True), task)
        layers = self._through(critics, given.taken)
        slope, loss, mean = self._operations.td_slope(
            self._values(critics, layers, task),
            target_values,
            next_density,
            self._log_alpha,
            batch,
            self._reward_factor,
        )
        flow = self._operations.last_layer(
            slope,
            layers[-1],
            critics.weights[-1],
            task,
            critics.weight_gradients[-1],
            critics.bias_gradients[-1],
            critics.bias_gradients[-2],
        )
        self._back(critics, layers[:-1], flow)
        return loss, mean

    def _back(self, network: _Layers, layers: list[Tensor], flow: Tensor) -> None:
        """Writes the gradients of weights and of the biases before them.

        Args:
            network: whose.
            layers: what its first layers were given, as many as are gone through.
            flow: the gradient by what the last of these computed, (members, batch, width).
        """
        for number in range(len(layers) - 1, -1, -1):
            torch.bmm(layers[number].mT, flow, out=network.weight_gradients[number])
            if number:
                flow = torch.bmm(flow, network.weights[number].mT)
                self._operations.mask_sum_(flow, layers[number], network.bias_gradients[number - 1])

    def _back_to_actions(self, layers: list[Tensor], slope: Tensor, task: Tensor) -> Tensor:
        """Returns the gradients (members, batch, action_dim) by the actions in the critics' inputs."""
        weights = self._critics.weights
        flow = self._operations.last_layer_frozen(slope, layers[-1], weights[-1], task)
        for number in range(len(layers) - 2, 0, -1):
            flow = self._operations.mask_(torch.bmm(flow, weights[number].mT), layers[number])
        return torch.bmm(flow, weights[0][:, -self._policy.action_dim :].mT)


class _Layers:
    """A network's parameters, layer by layer, and memory for their gradients.

    Args:
        network: whose parameters stay where they are.
    """

    weight_gradients: list[Tensor]
    bias_gradients: list[Tensor]

    def __init__(self, network: EnsembleMLP) -> None:
        self.weights = [weight.detach() for weight in network.weights]
        self.biases = [bias.detach() for bias in network.biases]

    def make_gradients(self) -> list[Tensor]:
        """Makes memory for the gradients, and returns them in the order of the parameters."""
        self.weight_gradients = [torch.empty_like(weight) for weight in self.weights]
        self.bias_gradients = [torch.empty_like(bias) for bias in self.biases]
        return [*self.weight_gradients, *self.bias_gradients]
