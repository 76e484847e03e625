"""What a policy has just lived through, and what each of its actions was worth."""

from trainer.rollout.advantages import advantages, discounted_returns
from trainer.rollout.rollout import Rollout, Rollouts

__all__ = ["Rollout", "Rollouts", "advantages", "discounted_returns"]
