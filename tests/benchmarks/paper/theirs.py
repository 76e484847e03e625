"""The authors' side of `lockstep`: run by an interpreter that has JAX; imports nothing of this project.

    python theirs.py CODE START.npz RESULT.npz WIDTH float32|float64

Takes over the weights and batches of START, makes an update of theirs with each batch, and writes what each
logged, the temperatures, and the noise that their keys gave.
"""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np

TASKS, OBSERVATION, ACTION = 10, 39, 4


def main() -> None:
    """See the module."""
    code, start, result, width, precision = sys.argv[1:]
    sys.path.insert(0, code)
    import jax

    adapt_jax()
    jax.config.update("jax_enable_x64", precision == "float64")

    given = dict(np.load(start))
    agent = taken_over(their_agent(int(width)), given)
    found: dict[str, list[Any]] = {}
    for number in range(len(given["task"])):
        samples = samples_of(given, number)
        noise = noise_of(agent, len(samples.actions))
        if number == 0:
            check_noise(agent, samples, noise)
        agent, logs = agent._update_inner(samples)
        found.setdefault("noise", []).append(noise)
        for name, theirs in NAMES.items():
            found.setdefault(name, []).append(float(logs[theirs]))
        found.setdefault("log_alpha", []).append(np.array(agent.alpha.params["params"]["log_alpha"]))
    np.savez(result, **{name: np.array(values) for name, values in found.items()})


def adapt_jax() -> None:
    """Lets their code run on a newer JAX, and on the CPU unless JAX_PLATFORMS says something else."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_platforms", os.environ.get("JAX_PLATFORMS", "cpu"))
    clip = jnp.clip

    def clip_as_named_before(x: Any, *limits: Any, a_min: Any = None, a_max: Any = None, **more: Any) -> Any:
        if a_min is not None or a_max is not None:
            return clip(x, a_min, a_max)
        return clip(x, *limits, **more)

    jnp.clip = clip_as_named_before  # newer JAX calls them min and max


NAMES = {
    "loss/critic": "losses/qf_loss",
    "loss/actor": "losses/actor_loss",
    "loss/alpha": "losses/alpha_loss",
    "q/mean": "losses/qf_values",
}
"""Our names of what an update logs, and theirs."""


def their_agent(width: int) -> Any:
    """An agent as in their experiments/mt10_mtmhsac.py, of that width."""
    import gymnasium
    from mtrl.config.networks import ContinuousActionPolicyConfig, QValueFunctionConfig
    from mtrl.config.nn import MultiHeadConfig
    from mtrl.config.optim import OptimizerConfig
    from mtrl.rl.algorithms.mtsac import MTSAC, MTSACConfig

    network = MultiHeadConfig(num_tasks=TASKS, width=width, optimizer=OptimizerConfig(max_grad_norm=1.0))
    config = MTSACConfig(
        num_tasks=TASKS,
        gamma=0.99,
        actor_config=ContinuousActionPolicyConfig(network_config=network),
        critic_config=QValueFunctionConfig(network_config=network),
        num_critics=2,
    )
    spaces = SimpleNamespace(
        action_space=gymnasium.spaces.Box(-1, 1, (ACTION,), np.float32),
        observation_space=gymnasium.spaces.Box(-1, 1, (OBSERVATION + TASKS,), np.float32),
    )
    return MTSAC.initialize(config, spaces, seed=1)


def taken_over(agent: Any, given: dict[str, Any]) -> Any:
    """The agent with our weights; its optimisers have made no step yet."""
    actor = with_weights(agent.actor.params, given, "actor", lambda rows: rows)
    critic = with_weights(agent.critic.params, given, "critic", action_first)
    return agent.replace(
        actor=agent.actor.replace(params=actor),
        critic=agent.critic.replace(params=critic, target_params=critic),
    )


def action_first(weight: Any) -> Any:
    """Rows (..., inputs, outputs) in the order of their critics' input, which begins with the action."""
    return np.concatenate([weight[..., -ACTION:, :], weight[..., :-ACTION, :]], axis=-2)


def with_weights(params: Any, given: dict[str, Any], name: str, ordered: Any) -> Any:
    """Their parameters with our weights, whose first dimension are the members; an actor has one."""
    import jax

    layers = sum(key.startswith(f"{name}.weight.") for key in given)
    found: dict[tuple[str, str], Any] = {}
    for layer in range(layers):
        weight, bias = given[f"{name}.weight.{layer}"], given[f"{name}.bias.{layer}"][:, 0]
        if layer == 0:
            weight = ordered(weight)
        if layer == layers - 1:  # (members, width, heads * outputs) becomes (members, heads, width, outputs)
            members, wide, _ = weight.shape
            weight = weight.reshape(members, wide, TASKS, -1).transpose(0, 2, 1, 3)
            bias = bias.reshape(members, TASKS, -1)
        place = f"layer_{layer}" if layer < layers - 1 else "head"
        if name == "actor":
            weight, bias = weight[0], bias[0]
        found[place, "kernel"], found[place, "bias"] = weight, bias

    def replaced(path: Any, old: Any) -> Any:
        keys = [step.key for step in path]
        place = next((key for key in keys if key.startswith("layer_")), "head")
        new = found.pop((place, keys[-1]))
        if new.shape != old.shape:
            raise SystemExit(f"{'/'.join(keys)} is {old.shape} there and {new.shape} here")
        return jax.numpy.asarray(new)

    taken = jax.tree_util.tree_map_with_path(replaced, params)
    if found:
        raise SystemExit(f"their {name} has no {', '.join(map('/'.join, found))}")
    return taken


def samples_of(given: dict[str, Any], number: int) -> Any:
    """A batch as their replay gives it: with the task's one-hot id behind each observation."""
    from mtrl.types import ReplayBufferSamples

    one_hot = np.eye(TASKS, dtype=given["reward"].dtype)[given["task"][number]]
    return ReplayBufferSamples(
        observations=np.concatenate([given["observation"][number], one_hot], -1),
        actions=given["action"][number],
        next_observations=np.concatenate([given["following"][number], one_hot], -1),
        dones=np.zeros_like(given["reward"][number]),
        rewards=given["reward"][number],
    )


def noise_of(agent: Any, rows: int) -> Any:
    """What the coming update draws, (2, rows, actions): for the observations, and for the next ones.

    `update_critic` splits the key for the next actions, then for the optimiser; `update_actor` does the same
    for the actions.
    """
    import jax

    key, of_critic = jax.random.split(agent.key)
    key, _ = jax.random.split(key)
    _, of_actor = jax.random.split(key)
    drawn = [jax.random.normal(one, (1, rows, ACTION))[0] for one in (of_actor, of_critic)]
    return np.array(drawn)


def check_noise(agent: Any, samples: Any, noise: Any) -> None:
    """Raises SystemExit if their next actions do not come of that noise."""
    import jax

    _, of_critic = jax.random.split(agent.key)
    policy = agent.actor.apply_fn(agent.actor.params, samples.next_observations)
    actions, _ = policy.sample_and_log_prob(seed=of_critic)
    normal = policy.distribution
    expected = np.tanh(normal.loc + normal.scale_diag * noise[1])
    if not np.allclose(actions, expected, atol=1e-5):
        raise SystemExit("their code draws its noise in another way than this comparison expects")


if __name__ == "__main__":
    main()
