"""skrl: its agents, memories and sequential trainer, with models as its examples write them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from skrl.agents.torch.a2c import A2C, A2C_CFG
from skrl.agents.torch.dqn import DQN, DQN_CFG
from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.agents.torch.sac import SAC, SAC_CFG
from skrl.agents.torch.td3 import TD3, TD3_CFG
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, GaussianMixin, Model
from skrl.resources.noises.torch import GaussianNoise
from skrl.trainers.torch import SequentialTrainer
from skrl.utils import set_seed
from torch import nn

from tests.benchmarks.peers.cases import Case
from tests.benchmarks.peers.cell import Run
from tests.benchmarks.peers.environments import Counted, faster, makers, vector
from tests.benchmarks.peers.play import Act


def network(inputs: int, hidden: list[int], outputs: int, activation: type[nn.Module]) -> nn.Sequential:
    """A plain one."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in zip([inputs, *hidden], hidden, strict=False):
        layers += [nn.Linear(fan_in, fan_out), activation()]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], outputs))


class Gaussian(GaussianMixin, Model):
    """Means of the network, deviations apart; for SAC means within the bounds, as its examples have it."""

    def __init__(self, spaces: dict[str, Any], hidden: list[int], *, bounded: bool) -> None:
        Model.__init__(self, **spaces)
        GaussianMixin.__init__(self, clip_actions=bounded, role="policy")
        activation = nn.ReLU if bounded else nn.Tanh
        self.net = network(self.num_observations, hidden, self.num_actions, activation)
        self.log_std_parameter = nn.Parameter(torch.zeros(self.num_actions))
        self._reach = float(self.action_space.high[0]) if bounded else None

    def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[torch.Tensor, dict[str, Any]]:
        mean = self.net(inputs["observations"])
        if self._reach is not None:
            mean = self._reach * mean.tanh()
        return mean, {"log_std": self.log_std_parameter}


class Categorical(CategoricalMixin, Model):
    """Logits of the network."""

    def __init__(self, spaces: dict[str, Any], hidden: list[int]) -> None:
        Model.__init__(self, **spaces)
        CategoricalMixin.__init__(self, role="policy")
        self.net = network(self.num_observations, hidden, self.num_actions, nn.Tanh)

    def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[torch.Tensor, dict[str, Any]]:
        return self.net(inputs["observations"]), {}


class Value(DeterministicMixin, Model):
    """A value, of actions too for SAC and TD3."""

    def __init__(self, spaces: dict[str, Any], hidden: list[int], *, of_actions: bool) -> None:
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self, role="value")
        self._of_actions = of_actions
        inputs = self.num_observations + (self.num_actions if of_actions else 0)
        self.net = network(inputs, hidden, 1, nn.ReLU if of_actions else nn.Tanh)

    def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[torch.Tensor, dict[str, Any]]:
        rows = inputs["observations"]
        if self._of_actions:
            rows = torch.cat([rows, inputs["taken_actions"]], dim=1)
        return self.net(rows), {}


class Deterministic(DeterministicMixin, Model):
    """An action within the bounds."""

    def __init__(self, spaces: dict[str, Any], hidden: list[int]) -> None:
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self, role="policy")
        self.net = network(self.num_observations, hidden, self.num_actions, nn.ReLU)
        self.reach = float(self.action_space.high[0])

    def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[torch.Tensor, dict[str, Any]]:
        return self.reach * self.net(inputs["observations"]).tanh(), {}


class ValuesOfChoices(DeterministicMixin, Model):
    """A value of each choice."""

    def __init__(self, spaces: dict[str, Any], hidden: list[int]) -> None:
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self, role="q_network")
        self.net = network(self.num_observations, hidden, self.num_actions, nn.ReLU)

    def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[torch.Tensor, dict[str, Any]]:
        return self.net(inputs["observations"]), {}


def on_policy(case: Case, env: Any, spaces: dict[str, Any], common: dict[str, Any]) -> Any:
    """Returns PPO or A2C."""
    values = case.values
    discrete = isinstance(env.action_space, gymnasium.spaces.Discrete)
    policy: Model = (
        Categorical(spaces, values["hidden"])
        if discrete
        else Gaussian(spaces, values["hidden"], bounded=False)
    )
    models = {"policy": policy, "value": Value(spaces, values["hidden"], of_actions=False)}
    memory = RandomMemory(memory_size=case.length, num_envs=env.num_envs, device=env.device)
    settings = {
        "rollouts": case.length,
        "discount_factor": values["gamma"],
        "gae_lambda": values["gae_lambda"],
        "learning_rate": values["learning_rate"],
        "grad_norm_clip": values["max_grad_norm"],
        "entropy_loss_scale": values["entropy_coefficient"],
        "time_limit_bootstrap": True,
        **common,
    }
    asked = {"models": models, "memory": memory, **spaces}
    if case.algorithm == "a2c":
        return A2C(cfg=A2C_CFG(mini_batches=1, **settings), **asked)
    settings |= {
        "learning_epochs": values["epochs"],
        "mini_batches": case.length * env.num_envs // values["batch_size"],
        "ratio_clip": values["clip_range"],
        "value_clip": 0.0,
        "value_loss_scale": values["value_coefficient"],
    }
    return PPO(cfg=PPO_CFG(**settings), **asked)


def off_policy(case: Case, env: Any, spaces: dict[str, Any], common: dict[str, Any]) -> Any:
    """Returns SAC, TD3 or DQN."""
    values = case.values
    warmup = values["warmup_steps"] // env.num_envs
    settings = {
        "gradient_steps": 1,
        "batch_size": values["batch_size"],
        "discount_factor": values["gamma"],
        "polyak": values["tau"],
        "random_timesteps": warmup,
        "learning_starts": warmup,
        **common,
    }
    size = values["replay_capacity"] // env.num_envs
    memory = RandomMemory(memory_size=size, num_envs=env.num_envs, device=env.device, replacement=True)
    agent, cfg, models = {"sac": _sac, "td3": _td3, "dqn": _dqn}[case.algorithm](values, spaces, settings)
    return agent(cfg=cfg, models=models, memory=memory, **spaces)


Parts = tuple[type, Any, dict[str, Model]]
"""An agent's class, configuration and models."""


def _critics(values: dict[str, Any], spaces: dict[str, Any]) -> dict[str, Model]:
    names = ("critic_1", "critic_2", "target_critic_1", "target_critic_2")
    return {name: Value(spaces, values["critic_hidden"], of_actions=True) for name in names}


def _sac(values: dict[str, Any], spaces: dict[str, Any], settings: dict[str, Any]) -> Parts:
    models = _critics(values, spaces) | {"policy": Gaussian(spaces, values["actor_hidden"], bounded=True)}
    rates = tuple(values[f"{name}_learning_rate"] for name in ("actor", "critic", "alpha"))
    cfg = SAC_CFG(learning_rate=rates, initial_entropy_value=values["initial_alpha"], **settings)
    return SAC, cfg, models


def _td3(values: dict[str, Any], spaces: dict[str, Any], settings: dict[str, Any]) -> Parts:
    policies = {name: Deterministic(spaces, values["actor_hidden"]) for name in ("policy", "target_policy")}
    reach = policies["policy"].reach  # the recipe's noise is a share of it

    def noise(name: str) -> dict[str, Any]:
        return {"mean": 0.0, "std": reach * values[name], "device": spaces["device"]}

    cfg = TD3_CFG(
        learning_rate=(values["actor_learning_rate"], values["critic_learning_rate"]),
        policy_delay=values["policy_delay"],
        exploration_noise=GaussianNoise,
        exploration_noise_kwargs=noise("exploration_noise"),
        smooth_regularization_noise=GaussianNoise,
        smooth_regularization_noise_kwargs=noise("target_noise"),
        smooth_regularization_clip=reach * values["target_noise_clip"],
        **settings,
    )
    return TD3, cfg, _critics(values, spaces) | policies


def _dqn(values: dict[str, Any], spaces: dict[str, Any], settings: dict[str, Any]) -> Parts:
    first, last = values["epsilon_start"], values["epsilon_end"]

    def epsilon(step: int, steps: int) -> float:
        return first + min(1.0, step / (values["exploration_share"] * steps)) * (last - first)

    cfg = DQN_CFG(
        learning_rate=values["learning_rate"],
        update_interval=int(values["env_steps_per_update"]),
        target_update_interval=values["target_interval"],
        exploration_scheduler=epsilon,
        **settings,
    )
    names = ("q_network", "target_q_network")
    return DQN, cfg, {name: ValuesOfChoices(spaces, values["hidden"]) for name in names}


class Clipped(gymnasium.vector.VectorWrapper):
    """Sends actions within their bounds, as the other sides do: unclipped ones cost another reward."""

    def step(self, actions: Any):
        if isinstance(self.action_space, gymnasium.spaces.Box):
            actions = np.clip(actions, self.action_space.low, self.action_space.high)
        return self.env.step(actions)


class CountedOne(gymnasium.Wrapper):
    """A lone environment that tells the meter before each step how many there were."""

    def __init__(self, env: gymnasium.Env, run: Run) -> None:
        super().__init__(env)
        self._run = run
        self.steps = 0

    def step(self, action: Any):
        self._run.meter.at(self.steps)
        self.steps += 1
        return self.env.step(action)


def train(case: Case, run: Run) -> Act:
    """Trains and returns the final policy."""
    set_seed(run.seed)
    make = makers(case.environment, case.envs)
    kind = faster(make)
    run.notes["vectorisation"] = f"gymnasium, {kind}" if case.envs > 1 else "one environment"
    # with one it wants no vector: only so does it see an episode's last observation
    counted: Any = (
        Counted(Clipped(vector(make, kind)), run.meter) if case.envs > 1 else CountedOne(make[0](), run)
    )
    env = wrap_env(counted, wrapper="gymnasium", verbose=False)
    env._device = run.device
    spaces = {
        "observation_space": env.observation_space,
        "action_space": env.action_space,
        "device": run.device,
    }
    quiet = {"directory": str(run.folder), "write_interval": 0, "checkpoint_interval": 0}
    build = off_policy if case.off_policy else on_policy
    agent = build(case, env, spaces, {"experiment": quiet})
    run.meter.count_optimizers()
    ways = {
        "timesteps": run.steps // case.envs,
        "headless": True,
        "disable_progressbar": True,
        "close_environment_at_exit": False,
    }
    SequentialTrainer(env=env, agents=agent, cfg=ways).train()
    run.meter.end(counted.steps)
    counted.close()
    model = agent.q_network if case.algorithm == "dqn" else agent.policy

    @torch.no_grad()
    def act(seen: np.ndarray) -> np.ndarray:
        found = model.compute({"observations": torch.as_tensor(seen, device=run.device)})[0].cpu()
        discrete = isinstance(env.action_space, gymnasium.spaces.Discrete)
        actions: np.ndarray = (found.argmax(1) if discrete else found).numpy()
        return actions

    return act
