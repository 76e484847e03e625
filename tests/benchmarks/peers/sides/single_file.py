"""The single files: what a researcher would write in an afternoon, and on a GPU what LeanRL makes of it."""

from __future__ import annotations

import numpy as np
import torch

from tests.benchmarks.peers.cases import Case
from tests.benchmarks.peers.cell import Run
from tests.benchmarks.peers.environments import Counted, faster, makers, vector
from tests.benchmarks.peers.on_policy_single_file import learn
from tests.benchmarks.peers.play import Act
from tests.benchmarks.peers.sac_single_file import SingleFileSAC


def train(case: Case, run: Run) -> Act:
    """Trains and returns the final policy."""
    make = makers(case.environment, case.envs)
    kind = faster(make)
    run.notes["vectorisation"] = f"gymnasium, {kind}"
    envs = Counted(vector(make, kind), run.meter)
    act = _sac(case, run, envs) if case.algorithm == "sac" else _on_policy(case, run, envs)
    run.meter.end(envs.steps)
    envs.close()
    return act


def _on_policy(case: Case, run: Run, envs: Counted) -> Act:
    def updated() -> None:
        run.meter.updates += 1

    agent = learn(envs, case.values, case.length, run.steps, run.seed, run.device, updated)

    @torch.no_grad()
    def act(seen: np.ndarray) -> np.ndarray:
        likeliest = agent.policy(torch.as_tensor(seen, device=run.device)).cpu()
        found: np.ndarray = (likeliest.argmax(1) if agent.discrete else likeliest).numpy()
        return found

    return act


def _sac(case: Case, run: Run, envs: Counted) -> Act:
    values, space, device = case.values, envs.single_action_space, run.device
    low, high = (torch.as_tensor(bound, dtype=torch.float32) for bound in (space.low, space.high))
    cuda = device.type == "cuda"
    run.notes["compiled and graphed"] = cuda
    size = envs.single_observation_space.shape[0]
    agent = SingleFileSAC(size, low, high, values, device, compiled=cuda, graphed=cuda)
    now = envs.reset(seed=run.seed)[0]
    envs.action_space.seed(run.seed)
    while envs.steps < run.steps:
        if envs.steps < values["warmup_steps"]:
            action = envs.action_space.sample()
        else:
            action = agent.act(torch.as_tensor(now, device=device)).cpu().numpy()
        then, reward, terminated, truncated, info = envs.step(action)
        after = then.copy()
        for index in np.flatnonzero(terminated | truncated):
            after[index] = info["final_obs"][index]
        agent.remember(
            seen=torch.as_tensor(now),
            action=torch.as_tensor(action),
            reward=torch.as_tensor(reward, dtype=torch.float32)[:, None],
            then=torch.as_tensor(after),
            over=torch.as_tensor(terminated, dtype=torch.float32)[:, None],
        )
        now = then
        if envs.steps > values["warmup_steps"]:
            agent.update()
            run.meter.updates += 1

    def act(seen: np.ndarray) -> np.ndarray:
        return agent.act(torch.as_tensor(seen, device=device), likeliest=True).cpu().numpy()

    return act
