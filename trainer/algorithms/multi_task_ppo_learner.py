"""Proximal policy optimisation of several tasks at once, as in the code of McLean et al. 2025 (their MTPPO).

There is no network for values: advantages are taken against a linear fit to each task's own returns
(`linear_baseline`). What is foreseen counts time and ends with the episode, so nothing follows its cut.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainer.algorithms.linear_baseline import fitted_returns
from trainer.algorithms.on_policy_config import MultiTaskPPOConfig
from trainer.algorithms.ppo_learner import PPO
from trainer.nn.task_actor import TaskActor
from trainer.rollout import Rollout, Rollouts, advantages
from trainer.rollout.advantages import Ends


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
