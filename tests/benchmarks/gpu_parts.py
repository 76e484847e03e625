"""The parts of `gpu.sh`: what each needs, how long it takes at most, and what it does."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks import gpu_process
from tests.benchmarks.gpu_process import GRACE, ROOT, lines
from tests.benchmarks.gpu_runs import digest, kill_past, progress

WHOLE = ("gymnasium", "metaworld", "mujoco")
"""Packages that a whole run needs, which those without environments do without."""
OPTIONAL = ("pynvml", "wandb")
_ENDLESS = 100_000_000
_SMALL = (
    *("tasks=reach", "actor_hidden=8", "critic_hidden=8", "batch_size=20"),
    *("warmup_steps=200", "env_steps_per_update=20", "replay_capacity=20000"),
)
"""Of a dry run on Meta-World."""
_SMALL_ROLLOUTS = ("hidden=8", "rollout_size=200")


class Part(NamedTuple):
    """A part.

    Attributes:
        what: it finds out, in a line.
        seconds: it takes at most, without what a process takes to start.
        find: finds it out.
        needs: packages beside torch and NumPy.
    """

    what: str
    seconds: float
    find: Callable[[], dict[str, Any]]
    needs: Sequence[str] = ()


def missing(names: Sequence[str] = (*WHOLE, *OPTIONAL, "pytest")) -> list[str]:
    """Returns which packages cannot be imported here."""
    return [name for name in names if not _importable(name)]


@functools.cache
def _importable(name: str) -> bool:
    asked = subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True, cwd=ROOT)
    return asked.returncode == 0


class Parts:
    """What there is to find out.

    Args:
        dry: on the CPU, with tiny numbers.
        ends: when all has to be done, by the monotonic clock.
    """

    def __init__(self, *, dry: bool, ends: float) -> None:
        self._dry = dry
        self._ends = ends

    def all(self) -> dict[str, Part]:
        """The parts in the order of their worth."""
        learner, train = self._learner, self._train
        return {
            "machine": Part("GPU, driver, processors, versions, missing packages", 60, self.machine),
            "tests": Part("the tests that only a GPU can run", 120, self.tests, ("pytest",)),
            "overlap": learner("acting alone and behind queued updates, compared to the bit", "overlap", 40),
            "speed": learner("updates a second and memory, by batch and precision", "speed", 90),
            "equality": learner("captured against eager after 1 000 updates", "equality", 90),
            "mt10": train("guide-mt10, 10 environments", "guide-mt10", 45),
            "mt10_30": train("guide-mt10, 30 environments", "guide-mt10", 45, "--num-envs", "30"),
            "paper_mt10": train("mclean2025-mt10, 10 environments", "mclean2025-mt10", 45),
            "paper_mt10_30": train("the same, 30 environments", "mclean2025-mt10", 45, "--num-envs", "30"),
            "environments": Part("steps a second of 10 and 30 alone", 40, self.environments, WHOLE),
            "lockstep": train("guide-mt10 acting with the newest weights", "guide-mt10", 40, "--lockstep"),
            "resume": Part("sha256 of a run, and of one killed and resumed", 240, self.resume, WHOLE),
            "ppo": train("steps a second of PPO", "ppo-mujoco", 30),
            "a2c": train("steps a second of A2C", "a2c", 30),
            "paper": learner("updates a second of the paper's networks", "paper", 40),
            "seeds": learner("updates a second of 1 to 8 seeds in one graph", "seeds", 60),
            "together": train("4 seeds in one process", "guide-mt10", 60, "--seeds", "1..4"),
            "pack": Part("4 runs beside each other", 60, self.pack, WHOLE),
            "mps": Part("the same under NVIDIA MPS", 60, functools.partial(self.pack, mps=True), WHOLE),
            "bandwidth": learner("copies between host and device", "bandwidth", 20),
            "profile": learner("the kernels of one update", "profile", 40),
            "reference": learner("a single file in LeanRL's manner", "reference", 120),
            "compiled": learner("a plain implementation through torch.compile", "compiled", 60),
            "two_million": train(
                "2M steps of guide-mt10, and its success", "guide-mt10", 1200, total=2_000_000
            ),
        }

    def machine(self) -> dict[str, Any]:
        """GPU, driver, processors, versions."""
        code = "import json, torch; from trainer.machine.device import configure, describe; "
        code += f"print(json.dumps(describe(configure({'cpu' if self._dry else 'cuda'!r}))))"
        asked = gpu_process.run([sys.executable, "-c", code], 60)
        facts = lines(asked.output)
        smi = "--query-gpu=name,driver_version,power.limit,clocks.max.sm,memory.total"
        try:
            driver = gpu_process.run(["nvidia-smi", smi, "--format=csv,noheader"], 20).output.strip()
        except OSError as error:
            driver = str(error)
        return {
            **asked.summary(),
            "device": facts[-1] if facts else None,
            "nvidia_smi": driver,
            "processors": len(os.sched_getaffinity(0)),
            "missing": missing(),
        }

    def tests(self) -> dict[str, Any]:
        """The tests that need a GPU; without one, each says so."""
        every = sorted(ROOT.glob("tests/trainer/test_*.py"))
        files = [str(path) for path in every if "pytest.mark.cuda" in path.read_text()]
        # a file that lacks a package fails by itself
        options = ["-q", "-p", "no:cacheprovider", "-m", "cuda", "--continue-on-collection-errors"]
        done = gpu_process.run([sys.executable, "-m", "pytest", *options, *files], self._limit(120))
        last = done.output.strip().splitlines()[-1:]
        return {**done.summary(), "last_line": last[0] if last else ""}

    def environments(self) -> dict[str, Any]:
        """Steps a second of environments that nobody learns from: what whole runs cannot exceed."""
        argv = [sys.executable, "-m", "tests.benchmarks.gpu_runs", "1" if self._dry else "10,30"]
        done = gpu_process.run([*argv, "0.2" if self._dry else "8"], self._limit(60))
        return {**done.summary(), "findings": lines(done.output)}

    def resume(self) -> dict[str, Any]:
        """The same short run twice: at once, and killed and resumed."""
        total = 1000 if self._dry else 60_000
        found: dict[str, Any] = {"steps": total}
        with tempfile.TemporaryDirectory() as folder:
            options = ["--total-steps", str(total), "--checkpoint-every", str(total // 10)]
            argv = self._train_argv("guide-mt10", *options)
            whole, cut = Path(folder, "whole"), Path(folder, "cut")
            done = gpu_process.run([*argv, "--run-dir", str(whole)], self._limit(120))
            found |= done.summary() | {"whole": digest(whole)}
            found["killed_at"] = kill_past(
                [*argv, "--run-dir", str(cut)], cut / "metrics.jsonl", total // 2, self._limit(120)
            )
            again = gpu_process.run([*argv, "--run-dir", str(cut), "--resume"], self._limit(120))
            found |= {"resumed_exit_code": again.code, "resumed": digest(cut)}
        found["equal"] = found["whole"] is not None and found["whole"] == found["resumed"]
        return found

    def pack(self, *, mps: bool = False) -> dict[str, Any]:
        """Runs beside each other on one GPU, each with a part of the processors."""
        if mps and shutil.which("nvidia-cuda-mps-control") is None:
            return {"skipped": "nvidia-cuda-mps-control is not here"}
        count, seconds = (2, 60.0) if self._dry else (4, 40.0)
        with tempfile.TemporaryDirectory() as folder:
            total = 600 if self._dry else _ENDLESS
            argv = self._train_argv("guide-mt10", "--total-steps", str(total))
            pack = ["--pack", str(count), str(seconds), folder, *(["--mps"] if mps else [])]
            runs = [sys.executable, "-m", "tests.benchmarks.gpu_runs", *pack, "--", *argv]
            done = gpu_process.run(runs, self._limit(90))
        return {**done.summary(), "findings": lines(done.output)}

    def _learner(self, text: str, what: str, limit: float) -> Part:
        def find() -> dict[str, Any]:
            argv = [sys.executable, "-m", "tests.benchmarks.gpu_learner", what]
            done = gpu_process.run([*argv, *(["--dry-run"] if self._dry else [])], self._limit(limit))
            return {**done.summary(), "findings": lines(done.output)}

        return Part(text, limit, find)

    def _train(self, text: str, recipe: str, limit: float, *options: str, total: int = _ENDLESS) -> Part:
        """A whole run of the trainer, ended by a signal as a cluster does when the time is up.

        One that can come to its end is evaluated there.
        """

        def find() -> dict[str, Any]:
            steps = min(total, 1000) if self._dry else total
            evaluate = ["--eval-every", str(10 * steps if total < _ENDLESS else 0)]
            argv = self._train_argv(recipe, *options, "--total-steps", str(steps), *evaluate)
            with tempfile.TemporaryDirectory() as run_dir:
                done = gpu_process.run(
                    [*argv, "--run-dir", run_dir], self._limit(limit + GRACE), signal.SIGTERM
                )
                folders = sorted(Path(run_dir).glob("seed-*")) or [Path(run_dir)]
                found = [progress(folder / "metrics.jsonl") for folder in folders]
            rates = [one.get("steps_per_second") or 0.0 for one in found]
            whole = {"runs": len(found), "steps_per_second": sum(rates) or None} if len(found) > 1 else {}
            return {**done.summary(), **found[0], **whole}

        return Part(text, limit, find, WHOLE)

    def _train_argv(self, recipe: str, *options: str) -> list[str]:
        argv = [sys.executable, "-m", "trainer", "train", "--recipe", recipe, "--wandb", "disabled"]
        argv += ["--eval-every", "0", "--checkpoint-every", "0", "--final-episodes", "10"]
        if not self._dry:
            return [*argv, "--log-every", "10000", "--device", "cuda", *options]
        on_tasks = recipe in ("guide-mt10", "mclean2025-mt10")
        for value in _SMALL if on_tasks else _SMALL_ROLLOUTS:
            argv += ["--set", value, "--unlock", value.split("=")[0]]
        if recipe == "ppo-mujoco":
            argv += ["--set", "batch_size=100", "--unlock", "batch_size"]
        return [*argv, "--log-every", "200", "--device", "cpu", *options, "--num-envs", "2", "--workers", "0"]

    def _limit(self, wanted: float) -> float:
        return min(wanted, self._ends - time.monotonic() - GRACE)
