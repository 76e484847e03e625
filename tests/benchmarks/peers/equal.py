"""What the page says that every side has in common: the values of our recipes, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.benchmarks.peers.cases import Case


def equal(shown: Sequence[Case]) -> str:
    """Returns the table, a row for each case."""
    rows = ["| | of every side |", "|---|---|"]
    for case in shown:
        said = _off_policy(case.algorithm, case.values) if case.off_policy else _on_policy(case)
        rows.append(f"| {case.title} | {'; '.join(said)} |")
    return "\n".join(rows) + "\n"


def _on_policy(case: Case) -> list[str]:
    values = case.values
    said = [
        f"policy and values {_layers(values['hidden'])} each, tanh",
        f"rollouts of {case.length} x {case.envs}",
        f"rate {values['learning_rate']:g}",
        f"gamma {values['gamma']:g}, lambda {values['gae_lambda']:g}",
        f"values count {values['value_coefficient']:g}, gradients to {values['max_grad_norm']:g}",
    ]
    if case.algorithm == "ppo":
        return [
            *said,
            f"{values['epochs']} epochs of batches of {values['batch_size']}",
            f"clip range {values['clip_range']:g}, nothing standardised but advantages",
        ]
    return [*said, "RMSprop, one update a rollout, nothing standardised"]


def _off_policy(algorithm: str, values: Mapping[str, Any]) -> list[str]:
    each = values["env_steps_per_update"]
    updates = [f"batches of {values['batch_size']}", f"an update every {each:g} steps"]
    network, *rest = _OWN[algorithm](values)
    return [network, *updates, *rest, f"{values['warmup_steps']} random steps first"]


def _sac(values: Mapping[str, Any]) -> list[str]:
    return [
        f"policy {_layers(values['actor_hidden'])}, critics {_layers(values['critic_hidden'])}, ReLU",
        f"rates {values['actor_learning_rate']:g}, gamma {values['gamma']:g}, tau {values['tau']:g}",
    ]


def _td3(values: Mapping[str, Any]) -> list[str]:
    return [
        *_sac(values),
        f"policy and targets move with one of {values['policy_delay']} updates",
        f"noise {values['exploration_noise']:g}, of targets {values['target_noise']:g} "
        f"to {values['target_noise_clip']:g}",
    ]


def _dqn(values: Mapping[str, Any]) -> list[str]:
    return [
        f"values {_layers(values['hidden'])}, ReLU",
        f"rate {values['learning_rate']:g}, gamma {values['gamma']:g}, Huber loss, "
        f"gradients to {values['max_grad_norm']:g}",
        f"the target copied every {values['target_interval']} updates",
        f"epsilon from {values['epsilon_start']:g} to {values['epsilon_end']:g} "
        f"in {values['exploration_share']:.0%} of the steps",
    ]


_OWN: dict[str, Callable[[Mapping[str, Any]], list[str]]] = {"sac": _sac, "td3": _td3, "dqn": _dqn}
"""What each off-policy algorithm has beside batches, updates and random steps: its networks first."""


def _layers(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))
