"""Our update and the paper's own, in lock-step: the same weights, batches and noise, update by update.

    python -m tests.benchmarks.paper.lockstep --code FOLDER --python INTERPRETER [--double]
        [--updates N] [--width N]

FOLDER is a checkout of the authors' code (rainx0r/mtrl at f5c121f). INTERPRETER is a Python 3.12 that can
import what it needs: jax, flax, optax, distrax, orbax-checkpoint, jaxtyping, tyro, metaworld 3.1.1, gymnasium
and wandb. Neither is a dependency of this project, and nothing is fetched. Their classes run unchanged in a
process of their own (`theirs.py`), with the multi-head networks, the batch of 1,280 and the Adam of
`mclean2025-mt10`.

The batches are of real transitions: an episode of each task of MT10 with random actions. The noise is what
the authors' code draws. Gates, over all updates: the critics' and the actor's loss within 1e-3 of theirs,
relative, and each logarithm of a temperature within 1e-5. Updates amplify whatever differs, roundings too.
`--double` tells one from the other: both compute in float64, and the gate is 1e-6 over the first 10 updates.
That much is left to their optimiser, which corrects its biases in float32 all the same, to 6e-8 a step;
PyTorch's fused Adam takes its clipping factor in float32 alone, so that there ours is written out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from metaworld.env_dict import MT10_V3
from torch import Tensor

from trainer import recipe
from trainer.algorithms.optimizers import GuardedAdam
from trainer.algorithms.sac_config import SACConfig
from trainer.algorithms.sac_learner import SAC
from trainer.envs.metaworld import MetaworldFactory
from trainer.nn.mlp import EnsembleMLP
from trainer.replay import Batch

RECIPE = "mclean2025-mt10"
OBSERVATION, ACTION, TASKS, EPISODE, ROWS = 39, 4, 10, 500, 128
GATES = {False: (1e-3, 1e-5, 100), True: (1e-6, 1e-8, 10)}
"""Of the losses, of the temperatures' logarithms, and over so many updates, without and with `--double`."""
Arrays = dict[str, npt.NDArray[Any]]


def play() -> Arrays:
    """An episode of each task with random actions: arrays whose first dimensions are tasks and steps."""
    values = recipe.load(RECIPE).values
    factory = MetaworldFactory(tuple(MT10_V3))
    rng = np.random.default_rng(0)
    found: dict[str, list[Any]] = {"observation": [], "action": [], "reward": [], "following": []}
    for task in range(TASKS):
        env = factory(task)
        seen = env.reset(0)
        for _ in range(int(values["episode_steps"])):
            action = rng.uniform(-1, 1, ACTION).astype(np.float32)
            following, reward, _ = env.step(action)
            for name, value in zip(found, (seen, action, reward, following), strict=True):
                found[name].append(np.array(value, np.float32))
            seen = following
        env.close()
    return {name: np.array(rows).reshape(TASKS, EPISODE, -1) for name, rows in found.items()}


def draw(played: Arrays, updates: int, precision: type[np.floating[Any]]) -> Arrays:
    """Batches of so many transitions a task: (updates, rows, ...)."""
    rng = np.random.default_rng(1)
    steps = rng.integers(EPISODE, size=(updates, TASKS, ROWS))
    task = np.broadcast_to(np.arange(TASKS)[:, None], (updates, TASKS, ROWS))
    drawn: Arrays = {
        name: rows[task, steps].reshape(updates, TASKS * ROWS, -1).astype(precision)
        for name, rows in played.items()
    }
    drawn["task"] = task.reshape(updates, -1)
    return drawn


def make(width: int) -> SAC:
    """Our learner with the recipe's networks, of another width where asked for."""
    hidden = [width] * 3
    values = dict(recipe.load(RECIPE).values) | {"actor_hidden": hidden, "critic_hidden": hidden}
    torch.manual_seed(0)
    return SAC(SACConfig.from_values(values), OBSERVATION, ACTION, TASKS)


def adam_in_double(
    adam: GuardedAdam, gradients: Sequence[Tensor], scale: Tensor | None, _blocked: Tensor
) -> None:
    """Takes the step of `GuardedAdam._move` (Kingma and Ba 2015, algorithm 1) for any precision."""
    beta1, beta2, eps = (float(adam._constants[name]) for name in ("beta1", "beta2", "eps"))
    for parameter, gradient, state in zip(adam.parameters, gradients, adam.state, strict=True):
        clipped = gradient if scale is None else gradient / scale
        state["exp_avg"].lerp_(clipped, 1.0 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(clipped, clipped, value=1.0 - beta2)
        mean = state["exp_avg"] / (1.0 - beta1 ** state["step"])
        square = state["exp_avg_sq"] / (1.0 - beta2 ** state["step"])
        parameter.sub_(adam.learning_rate * mean / (square.sqrt() + eps))


def weights(agent: SAC) -> Arrays:
    """The initial weights, in the order of layers: `actor.weight.0`, ..."""
    return {
        f"{name}.{kind}.{layer}": value.detach().numpy()
        for name, network in networks(agent).items()
        for kind, values in (("weight", network.weights), ("bias", network.biases))
        for layer, value in enumerate(values)
    }


def networks(agent: SAC) -> dict[str, EnsembleMLP]:
    """The networks that learn."""
    return {"actor": agent.policy.actor, "critic": agent.critics}


def learn(agent: SAC, drawn: Arrays, noise: npt.NDArray[np.floating[Any]]) -> Arrays:
    """Our updates with that noise, (updates, 2, rows, actions): what each one logs, and the temperatures."""
    found: dict[str, list[Any]] = {}
    of_update: list[Tensor] = []
    setattr(agent, "_noise", lambda _action: of_update[0])  # noqa: B010 - their draws, not ours
    for number in range(len(noise)):
        of_update[:] = [torch.from_numpy(noise[number])]
        one = {name: torch.from_numpy(np.ascontiguousarray(rows[number])) for name, rows in drawn.items()}
        batch = Batch(one["observation"], one["action"], one["reward"][:, 0], one["following"], one["task"])
        logged = agent.update(batch)
        for name in ("loss/critic", "loss/actor", "loss/alpha", "q/mean"):
            found.setdefault(name, []).append(float(logged[name]))
        found.setdefault("log_alpha", []).append(agent.log_alpha.clone().numpy())
    return {name: np.array(values) for name, values in found.items()}


def compare(ours: Arrays, theirs: Arrays) -> dict[str, float]:
    """The greatest difference over all updates, relative but for the temperatures'."""
    found = {}
    for name in ("loss/critic", "loss/actor", "loss/alpha", "q/mean"):
        scale = np.maximum(np.abs(theirs[name]), 1e-2)  # a loss may pass through zero
        found[name] = float((np.abs(ours[name] - theirs[name]) / scale).max())
    return found | {"log_alpha": float(np.abs(ours["log_alpha"] - theirs["log_alpha"]).max())}


def main() -> None:
    """Run both and judge."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--code", type=Path, required=True, help="the authors' code, rainx0r/mtrl at f5c121f")
    parser.add_argument("--python", type=Path, required=True, help="a Python 3.12 with what their code needs")
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--double", action="store_true", help="in float64")
    given = parser.parse_args()
    precision = np.float64 if given.double else np.float32
    if given.double:
        torch.set_default_dtype(torch.float64)
        setattr(GuardedAdam, "_move", adam_in_double)  # noqa: B010 - see the module
    agent, drawn = make(given.width), draw(play(), given.updates, precision)
    with tempfile.TemporaryDirectory() as folder:
        start, result = Path(folder, "start.npz"), Path(folder, "theirs.npz")
        np.savez(start, allow_pickle=False, **drawn, **weights(agent))
        script = Path(__file__).with_name("theirs.py")
        argv = [given.python, script, given.code.resolve(), start, result, given.width, precision.__name__]
        if subprocess.run(list(map(str, argv)), check=False).returncode:
            sys.exit("the authors' code did not run: see above")
        theirs = dict(np.load(result))
    ours = learn(agent, drawn, theirs.pop("noise"))
    of_losses, of_alpha, first = GATES[given.double]
    found = compare(*({name: values[:first] for name, values in side.items()} for side in (ours, theirs)))
    held = max(found["loss/critic"], found["loss/actor"]) <= of_losses and found["log_alpha"] <= of_alpha
    for name in ("loss/critic", "loss/actor", "loss/alpha"):
        ends = [f"{side[name][0]:.6f} to {side[name][-1]:.6f}" for side in (ours, theirs)]
        print(f"{name:12} ours {ends[0]}, theirs {ends[1]}; at most {found[name]:.1e} apart")
    print(f"{'log alpha':12} at most {found['log_alpha']:.1e} apart")
    print("equal within the gates" if held else "NOT equal within the gates")
    how = {"updates": min(first, given.updates), "width": given.width, "precision": precision.__name__}
    print(json.dumps({"name": "paper-lockstep", **how, "equal": held, **found}))
    if not held:
        sys.exit(1)


if __name__ == "__main__":
    main()
