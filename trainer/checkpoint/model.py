"""What a trained policy needs to be used again: its description and weights, and how to find them."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from trainer import checkpoint
from trainer.envs.spaces import ActionSpace
from trainer.errors import CheckpointError
from trainer.files import atomic_write_bytes
from trainer.nn.actor import Actor
from trainer.recipe import RecipeError, registry
from trainer.recipe.algorithm import Algorithm
from trainer.recipe.environments import FIXED_GOALS

FINAL_MODEL = "final_model.pt"
_NETWORKS = ("policy", "critics", "targets", "log_alpha", "reward_moments")
"""What a model may have; which of them depends on the algorithm."""
_DIGESTED = (*_NETWORKS, "target_actor")


@dataclass(frozen=True)
class Model:
    """A policy from disk.

    Attributes:
        policy: in evaluation mode.
        tasks: full task names, in the order of the task ids.
        recipe: it was trained with, as `Recipe.as_json` gives it.
        step: environment steps it was trained for.
        path: the file or directory it came from.
        goal_seed: seed of the goal lists it was trained on, where it has goals.
    """

    policy: Actor
    tasks: tuple[str, ...]
    recipe: Mapping[str, Any]
    step: int
    path: Path
    goal_seed: int = FIXED_GOALS

    @property
    def entry(self) -> Algorithm:
        """The algorithm that trained it."""
        return registry.entry_of(self.recipe)


def about(
    recipe: Mapping[str, Any],
    tasks: tuple[str, ...],
    observation_dim: int,
    action_dim: int,
    step: int,
    action_space: ActionSpace,
    goal_seed: int = FIXED_GOALS,
) -> dict[str, Any]:
    """Returns the description stored beside the weights; plain values only."""
    return {
        "recipe": recipe,
        "tasks": list(tasks),
        "observation_dim": observation_dim,
        "action_dim": action_dim,
        "step": step,
        "action_space": asdict(action_space),
        "goal_seed": goal_seed,
    }


def save_final(run_dir: Path, description: dict[str, Any], learner: Mapping[str, Any]) -> Path:
    """Writes `checkpoints/final_model.pt`: the networks at the end of training, without optimisers.

    Raises:
        OSError: no space or no permission.
    """
    home = checkpoint.directory(run_dir)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    networks = {name: learner[name] for name in _NETWORKS if name in learner}
    buffer = io.BytesIO()
    torch.save({"about": description, "learner": networks}, buffer)
    atomic_write_bytes(home / FINAL_MODEL, buffer.getvalue())
    return home / FINAL_MODEL


def digest(learner: Mapping[str, Any]) -> str:
    """Returns the sha256 of all parameters: two runs that learnt the same to the bit have the same."""
    hashed = hashlib.sha256()
    for network in _DIGESTED:
        held = learner.get(network, {})
        for name, tensor in sorted(held.items()) if isinstance(held, Mapping) else [("", held)]:
            hashed.update(f"{network}.{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            hashed.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return hashed.hexdigest()


def load_model(path: Path, device: torch.device | str = "cpu") -> Model:
    """Loads a policy from a `final_model.pt`, a checkpoint, or a run (its final model or newest checkpoint).

    Raises:
        CheckpointError: there is none, or it cannot be used.
    """
    source = _locate(path)
    if source.is_dir():
        checkpoint.verify(source)
        stored = checkpoint.load_file(source / "model.pt", device)
    else:
        stored = checkpoint.load_file(source, device)
    try:
        description, weights = stored["about"], stored["learner"]["policy"]
        tasks = tuple(description["tasks"])
        policy = _policy(description)
        policy.load_state_dict(weights)
        goals = description["goal_seed"]
    except (KeyError, TypeError, RuntimeError, RecipeError) as error:
        raise CheckpointError(f"{source} is not a model of this trainer: {error}") from error
    return Model(policy.to(device).eval(), tasks, description["recipe"], description["step"], source, goals)


def _policy(description: Mapping[str, Any]) -> Actor:
    """Builds the policy that a description is of, with weights of no use."""
    actions = ActionSpace(**description["action_space"])
    recipe, observation_dim = description["recipe"], description["observation_dim"]
    entry, values = registry.entry_of(recipe), recipe["values"]
    policy: Actor = entry.policy(values, observation_dim, actions, len(description["tasks"]))
    return policy


def _locate(path: Path) -> Path:
    if path.is_file() or (path / "manifest.json").exists():
        return path
    run_dir = path.parent if path.name == "checkpoints" else path
    final = checkpoint.directory(run_dir) / FINAL_MODEL
    if final.is_file():
        return final
    reasons: list[str] = []
    newest = checkpoint.newest(run_dir, reasons.append)
    if newest is None:
        raise CheckpointError(
            f"no usable checkpoint in {path}",
            hint="; ".join(reasons) or "give a run, a checkpoint or a model file",
        )
    return newest
