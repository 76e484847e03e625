"""Replay stratified by task, on the training device, and in pieces that a checkpoint can keep."""

from trainer.replay.group import ReplayGroup
from trainer.replay.n_step import NStepReplay
from trainer.replay.replay import Replay
from trainer.replay.rows import Batch, ReplayRows
from trainer.replay.transitions import TransitionReplay

__all__ = ["Batch", "NStepReplay", "Replay", "ReplayGroup", "ReplayRows", "TransitionReplay"]
