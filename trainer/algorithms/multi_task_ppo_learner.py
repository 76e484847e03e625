"""Proximal policy optimisation of several tasks at once, as in the code of McLean et al. 2025 (their MTPPO).

There is no network for values: advantages are taken against a linear fit to each task's own returns, the
linear feature baseline of Duan et al. 2016. It takes the return for linear in the observation, its square and
three powers of time, is fitted afresh to the episodes it then judges, and learns nothing between rollouts.
The estimate counts time and ends with the episode, so nothing follows its cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trainer.algorithms.on_policy_config import MultiTaskPPOConfig
from trainer.algorithms.ppo_learner import PPO
from trainer.nn.actor_critic import TaskActor
from trainer.replay.rollout import Ends, Rollout, Rollouts, advantages


class MultiTaskPPO(PPO):
    """The learner; see `OnPolicy`. Its rollouts are whole episodes of one length."""

    captures_estimate = False
    """A solver's kernels may not be captured, and once a rollout there is nothing to gain from it."""
    joins = False
    """Each fits its own baselines, and the fit knows of no axis of learners."""
    configuration = MultiTaskPPOConfig
    _config: MultiTaskPPOConfig
    policy: TaskActor

    @torch.no_grad()
    def estimate(self, rollout: Rollout | Rollouts) -> Tensor:
        """Looks at a whole rollout, and rearms `stopped`; returns the rows of `Packed`."""
        assert isinstance(rollout, Rollout), "each learner fits its own baselines"
        self.stopped.zero_()
        policy, config = self.policy, self._config
        with self._autocast():
            outputs = policy.actor(rollout.observation)
        done = rollout.ends.done
        ends = Ends(done, done)  # returns end with the episode, for what is foreseen counts time
        value = self._foreseen(rollout, ends)
        following = torch.cat([value[1:], torch.zeros_like(value[:1])])
        advantage = advantages(rollout.reward, value, following, ends, config.gamma, config.gae_lambda)
        return self._rows(rollout, rollout.observation, outputs, value, advantage)

    def _foreseen(self, rollout: Rollout, ends: Ends) -> Tensor:
        """Returns the fitted returns of a rollout's steps, (steps, envs)."""
        config, policy = self._config, self.policy
        steps, envs = rollout.reward.shape
        nothing = torch.zeros_like(rollout.reward)
        returns = advantages(rollout.reward, nothing, nothing, ends, config.gamma, 1.0)
        episodes = steps // config.episode_steps, config.episode_steps, envs
        assert episodes[0] * episodes[1] == steps, "a rollout that is not whole episodes"
        shown = rollout.observation.view(*episodes, -1).transpose(1, 2).flatten(0, 1)
        observation, task = shown[..., : policy.observation_dim], shown[:, 0, policy.observation_dim :]
        fitted = fitted_returns(
            observation,
            returns.view(episodes).transpose(1, 2).flatten(0, 1),
            task,
            config.baseline_ridge,
            self._learners,
            self._over_learners,
        )
        return fitted.view(episodes[0], envs, -1).transpose(1, 2).reshape(steps, envs)


_CLIP = 10.0
_TIME_UNIT = 100.0
"""Steps; both from the code of Duan et al. 2016."""


def baseline_features(observation: Tensor) -> Tensor:
    """Returns the features of whole episodes.

    Args:
        observation: (episodes, steps, observation_dim).

    Returns:
        float64 (episodes, steps, 2 * observation_dim + 4).
    """
    seen = observation.double().clamp(-_CLIP, _CLIP)
    steps = torch.arange(seen.shape[1], dtype=seen.dtype, device=seen.device)
    time = (steps / _TIME_UNIT)[:, None].expand(*seen.shape[:2], 1)
    return torch.cat([seen, seen.square(), time, time**2, time**3, torch.ones_like(time)], -1)


def fitted_returns(
    observation: Tensor,
    returns: Tensor,
    task: Tensor,
    ridge: float,
    learners: int = 1,
    average: Callable[[Sequence[Tensor]], list[Tensor]] = list,
) -> Tensor:
    """Fits each task's returns by its own episodes, and says what the fits give for the same steps.

    The normal equations are solved in float64, in which the ridge keeps them definite. Static shapes, and no
    waiting for the device. Numbers that are not finite give others that are not.

    Args:
        observation: of whole episodes of equal length, (episodes, steps, observation_dim).
        returns: (episodes, steps).
        task: one-hot, (episodes, tasks); a task without episodes is no fault.
        ridge: added to the diagonal of each task's equations.
        learners: how many fit the same tasks together, with as many episodes each.
        average: returns the means of tensors over all of them; this one is alone by default.

    Returns:
        float32 (episodes, steps).
    """
    features = baseline_features(observation)
    transposed, weight = features.transpose(1, 2), task.double()
    squares = _by_task(weight, transposed @ features)
    products = _by_task(weight, transposed @ returns.double()[..., None])
    squares, products = (mean * learners for mean in average([squares, products]))
    squares.diagonal(dim1=-2, dim2=-1).add_(ridge)
    factor, _ = torch.linalg.cholesky_ex(squares)
    coefficients = torch.cholesky_solve(products, factor)
    own = _by_task(weight.T, coefficients)
    return (features @ own).squeeze(-1).float()


def _by_task(weight: Tensor, values: Tensor) -> Tensor:
    """Returns sums (columns, ...) of values (rows, ...), weighted by (rows, columns)."""
    sums: Tensor = torch.tensordot(weight, values, dims=([0], [0]))
    return sums
