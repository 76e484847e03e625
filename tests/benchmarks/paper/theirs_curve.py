"""The authors' side of `curves`: run by an interpreter that has JAX; imports nothing of this project.

    python theirs_curve.py CODE FOLDER SEED TASKS WIDTH STEPS EVERY BATCH CAPACITY WARMUP

Trains with their own loop, and writes the actor of each EVERY environment steps to FOLDER/<steps>.npz. At the
end FOLDER/official.json has the success that `metaworld.evaluation` finds for the last one, by task.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from theirs import adapt_jax

OBSERVATION, HORIZON = 39, 500


def main() -> None:
    """See the module."""
    code, folder, seed, names, *numbers = sys.argv[1:]
    width, steps, every, batch, capacity, warmup = map(int, numbers)
    tasks = names.split(",")
    sys.path.insert(0, code)
    adapt_jax()
    import gymnasium
    from mtrl.config.networks import ContinuousActionPolicyConfig, QValueFunctionConfig
    from mtrl.config.nn import MultiHeadConfig
    from mtrl.config.optim import OptimizerConfig
    from mtrl.config.rl import OffPolicyTrainingConfig
    from mtrl.envs import MetaworldConfig
    from mtrl.rl.algorithms.mtsac import MTSAC, MTSACConfig

    @dataclass(frozen=True)
    class SomeTasks(MetaworldConfig):  # type: ignore[misc]
        """Their environments with other tasks, and in place of an evaluation a copy of the actor."""

        seen: list[int] = field(default_factory=list)

        @cached_property
        def observation_space(self) -> Any:
            return gymnasium.spaces.Box(-np.inf, np.inf, (OBSERVATION + len(tasks),), np.float64)

        def evaluate(self, envs: Any, agent: Any) -> tuple[float, float, dict[str, float]]:
            self.seen.append(len(self.seen) + 1)
            write(Path(folder, f"{self.seen[-1] * every}.npz"), weights_of(agent.actor.params, len(tasks)))
            return 0.0, 0.0, {}

        def spawn(self, seed: int = 1) -> Any:
            return gymnasium.make_vec(
                "Meta-World/custom-mt-envs",
                seed=seed,
                envs_list=[f"{task}-v3" for task in tasks],
                use_one_hot=True,
                terminate_on_success=False,
                vector_strategy="sync",
                reward_function_version=self.reward_func_version,
            )

    environments = SomeTasks(env_id="custom")
    network = MultiHeadConfig(num_tasks=len(tasks), width=width, optimizer=OptimizerConfig(max_grad_norm=1.0))
    algorithm = MTSACConfig(
        num_tasks=len(tasks),
        gamma=0.99,
        actor_config=ContinuousActionPolicyConfig(network_config=network),
        critic_config=QValueFunctionConfig(network_config=network),
        num_critics=2,
    )
    training = OffPolicyTrainingConfig(
        total_steps=steps + len(tasks),  # the last episodes end with the last step
        buffer_size=capacity,
        batch_size=batch,
        warmstart_steps=warmup // len(tasks),
        evaluation_frequency=every // HORIZON,
    )
    np.random.seed(int(seed))
    envs = environments.spawn(int(seed))
    agent = MTSAC.initialize(algorithm, environments, seed=int(seed))
    agent = agent.train(training, envs, environments, "", seed=int(seed), track=False)
    _, _, found = MetaworldConfig.evaluate(environments, envs, agent)
    text = json.dumps({name.removesuffix("-v3"): float(value) for name, value in found.items()})
    Path(folder, "official.json").write_text(text)


def weights_of(params: Any, tasks: int) -> dict[str, Any]:
    """Their actor's parameters in our order and shape: `weight.0`, `bias.0`, ...; the heads are the last."""
    import jax

    layers: dict[str, dict[str, Any]] = {}
    for path, value in jax.tree_util.tree_leaves_with_path(params):
        keys = [step.key for step in path]
        place = next((key for key in keys if key.startswith("layer_")), "layer_z")
        layers.setdefault(place, {})[keys[-1]] = np.asarray(value)
    found = {}
    for number, name in enumerate(sorted(layers)):
        weight, bias = layers[name]["kernel"], layers[name]["bias"]
        if name == "layer_z":  # (heads, width, outputs) becomes (width, heads * outputs)
            weight = weight.transpose(1, 0, 2).reshape(weight.shape[1], -1)
            bias = bias.reshape(tasks, -1).reshape(-1)
        found[f"weight.{number}"], found[f"bias.{number}"] = weight, bias
    return found


def write(path: Path, arrays: dict[str, Any]) -> None:
    """Write arrays as a whole."""
    part = path.with_suffix(".part.npz")
    np.savez(part, **arrays)
    part.replace(path)


if __name__ == "__main__":
    main()
