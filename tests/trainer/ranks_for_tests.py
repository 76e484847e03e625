"""What each of two ranks goes through, for test_parallel.py: processes forked from the one of the tests."""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from unittest.mock import patch

import torch

from tests.trainer import test_on_policy, test_ppo
from tests.trainer.learners import fill
from tests.trainer.runs import StopAt, settings_for, settings_of_counters, store_of
from tests.trainer.test_capture import CpuRecorder
from tests.trainer.toys import CounterFactory
from trainer.algorithms.capture import CapturedUpdate
from trainer.algorithms.on_policy_config import make_actor_critic
from trainer.algorithms.ppo_learner import PPO
from trainer.envs.gymnasium_env import GymnasiumFactory
from trainer.errors import WorkerError
from trainer.loops import learner, training
from trainer.loops.learner import Learner
from trainer.loops.off_policy import OffPolicyRun
from trainer.loops.on_policy import OnPolicyRun
from trainer.loops.resuming import find
from trainer.loops.saving import align, fingerprint
from trainer.machine.device import seed_everything
from trainer.preemption import StopSignals
from trainer.ranks import parallel
from trainer.ranks.parallel import Ranks
from trainer.ranks.place import RankPlace, place_from
from trainer.replay.rollout import Rollout
from trainer.settings import TrainSettings


def learn_rollouts(ranks: Ranks, place: RankPlace) -> dict:
    """Learns from two rollouts, of whose environments each rank has its part; returns what was learnt."""
    config = replace(
        test_ppo.PPO_CONFIG,
        target_kl=0.01,
        value_clip_range=0.0,
        normalize_observations=True,
        normalize_rewards=True,
    )
    torch.manual_seed(7)
    policy = make_actor_critic(config, test_ppo.OBSERVATION, test_ppo.BOX)
    own_envs, halves = test_ppo.ENVS // place.size, 2 // place.size
    agent = PPO(config, policy, own_envs, nullcontext, learners=ranks.size, average=ranks.average)
    ranks.spread(agent.shared())
    stopped = []
    for seed in range(2):
        torch.manual_seed(seed)
        own = _own_part(test_ppo.lived(), place, own_envs)
        agent.observe(own)
        rows = agent.pack(agent.estimate(own))
        # of each half of the environments the same transitions are in a batch, whoever has them
        for chosen in torch.randperm(own.steps * own_envs // halves).split(4):
            parts = [chosen // 2 * own_envs + chosen % 2 + 2 * half for half in range(halves)]
            notes = agent.update(rows.batch(torch.cat(parts)))
            stopped.append(float(agent.stopped))
    return {
        "learnt": [tensor.clone() for tensor in agent.shared()],
        "notes": {name: float(value) for name, value in notes.items()},
        "stopped": stopped,
    }


def _own_part(rollout: Rollout, place: RankPlace, own_envs: int) -> Rollout:
    """Returns what a rank has of everybody's rollout, handed over."""
    own = Rollout(rollout.steps, own_envs, test_ppo.OBSERVATION, test_ppo.BOX.dim, torch.device("cpu"))
    envs = slice(place.rank * own_envs, (place.rank + 1) * own_envs)
    own.load_state_dict({name: tensor[:, envs] for name, tensor in rollout._host.items()})
    own.hand_over()
    return own


def attempt(settings: TrainSettings, ranks: Ranks, after: int | None = None, lost: int | None = None) -> list:
    """Carries out an attempt as `training` does: on counters, or with PPO on CartPole.

    Args:
        settings: of this rank.
        ranks: all of them.
        after: vector steps after which this rank receives SIGUSR1.
        lost: how often it has waited for its environments before it loses one of their workers.

    Returns:
        Its code or the fault, what was learnt, what is remembered, and what was said of the checkpoint.
    """
    seed_everything(settings.seed, ranks.rank)
    said: list[str] = []
    store, cpu = store_of(settings), torch.device("cpu")
    found = find(settings, store, said, ranks)
    telemetry = training._telemetry(settings, cpu, 0, ranks)
    stop = StopSignals() if after is None else StopAt(after)
    on_policy = settings.recipe.algorithm == "ppo"
    kind = OnPolicyRun if on_policy else OffPolicyRun
    factory = GymnasiumFactory("CartPole-v1", actions="clipped", seed=0) if on_policy else CounterFactory()
    run = kind(settings, factory, cpu, telemetry, stop, store, found, ranks)
    wait, waited = run._vector.wait, count()

    def failing():
        if next(waited) == lost:
            raise WorkerError("a worker died")
        return wait()

    run._vector.wait = failing
    try:
        with telemetry, run:
            code: int | str = run.train()
    except WorkerError as error:
        code = error.cause
    own = run.learner
    shared = own.shared()
    held = own.rollout.observation if on_policy else own.replay.observations()
    if not on_policy:
        shared = [*shared, own._returns.factor]
    return [code, fingerprint(shared), fingerprint([held]), said]


def drift(ranks: Ranks, folder: Path, place: RankPlace) -> list:
    """Lets the networks of the last rank differ from the others', and aligns them, twice."""
    own = Learner(settings_of(folder, place), CounterFactory(), torch.device("cpu"), print, ranks=ranks)
    if place.rank:
        with torch.no_grad():
            own.agent.log_alpha[0] += 1e-6
    aligned = [align(ranks, own.shared()) for _ in range(2)]
    return [*aligned, fingerprint(own.shared())]


def capture(ranks: Ranks, folder: Path, place: RankPlace) -> list:
    """Learns where the last rank cannot capture; returns what each says, has recorded and has learnt."""
    last = place.rank == place.size - 1
    recorder = CpuRecorder(RuntimeError("operation not permitted") if last else None)
    settings = replace(settings_of_counters(folder, "--num-envs", "6"), place=place)
    with patch.object(learner, "CapturedUpdate", partial(CapturedUpdate, recorder=recorder)):
        own = Learner(settings, CounterFactory(), torch.device("cpu"), print, ranks=ranks)
    fill(own)
    for _ in range(2):
        own.update()
    return [own.note, recorder.calls, fingerprint(own.shared())]


def fail(place: RankPlace) -> list:
    """Meets the others and fails; returns how the meeting ended."""
    ended = []
    both = patch.object(parallel.dist, "destroy_process_group", lambda: ended.append("destroyed"))
    abort = parallel._abort_process_group
    with both, patch.object(parallel, "_abort_process_group", lambda: (ended.append("aborted"), abort())):
        try:
            with Ranks.meet(place, torch.device("cpu")) as ranks:
                ranks.part()
                raise ArithmeticError("in the middle of it")
        except ArithmeticError:
            return ended


def settings_of(folder: Path, place: RankPlace, attempt: int = 0) -> TrainSettings:
    """Four environments on three tasks: on each of two ranks, both move from task to task."""
    argv = ("--total-steps", "300", "--num-envs", "4", "--checkpoint-every", "152", "--log-every", "100")
    rewards = ("--set", "normalize_rewards=returns", "--unlock", "normalize_rewards")
    resume = ("--resume",) if attempt else ()
    settings = settings_of_counters(folder, *argv, *rewards, *resume, env_steps_per_update="10")
    return replace(settings, place=place, attempt=attempt)


def rollout_settings_of(folder: Path, place: RankPlace, attempt: int = 0) -> TrainSettings:
    """PPO on four environments, with everything standardised."""
    argv = ("--total-steps", "384", "--num-envs", "4", "--log-every", "64")
    resume = ("--resume",) if attempt else ()
    settings = settings_for(folder, "ppo", *argv, *resume, **test_on_policy.STANDARDISED)
    return replace(settings, place=place, attempt=attempt)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    place = place_from(os.environ, None)
    found: dict[str, object] = {}
    with Ranks.meet(place, torch.device("cpu")) as ranks:
        found["rollouts"] = learn_rollouts(ranks, place)
        found["whole"] = attempt(settings_of(folder / "whole", place), ranks)
        last = place.rank == place.size - 1
        found["drifted"] = drift(ranks, folder, place)
        found["stopped"] = attempt(settings_of(folder / "stopped", place), ranks, 57 if last else None)
        found["resumed"] = attempt(settings_of(folder / "stopped", place, 1), ranks)
        learns = settings_of(folder / "learnt", place)
        found["learnt"] = attempt(replace(learns, eval_every=40, stop_at=0.0), ranks)
        found["lost"] = attempt(settings_of(folder / "lost", place), ranks, lost=60 if last else None)
        found["after"] = attempt(settings_of(folder / "lost", place, 1), ranks)
        found["ppo"] = attempt(rollout_settings_of(folder / "ppo", place), ranks)
        cut = folder / "ppo-cut"
        found["ppo-cut"] = attempt(rollout_settings_of(cut, place), ranks, 23 if last else None)
        found["ppo-resumed"] = attempt(rollout_settings_of(cut, place, 1), ranks)
        found["captured"] = capture(ranks, folder, place)
        ranks.part()
    os.environ["MASTER_PORT"] = os.environ["SECOND_PORT"]  # at the first the old meeting may still be found
    found["failed"] = fail(place)
    torch.save(found, folder / f"rank-{place.rank}.pt")


def forked(folder: Path, environment: Mapping[str, str]) -> int:
    """Starts a rank; returns its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.environ.update(environment)
        main(folder)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
