"""Rollouts, and the advantages of their actions."""

from trainer.rollout.advantages import advantages, discounted_returns
from trainer.rollout.rollout import Rollout, Rollouts

__all__ = ["Rollout", "Rollouts", "advantages", "discounted_returns"]
