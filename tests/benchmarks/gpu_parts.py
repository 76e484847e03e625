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
from tests.benchmarks.gpu_sizes import DRY, GPU

WHOLE = ("gymnasium", "metaworld", "mujoco")
"""Packages that a whole run needs, which those without environments do without."""
SB3 = ("gymnasium", "stable_baselines3")
OPTIONAL = ("pynvml", "wandb")
_WIDE = ("--num-envs", "30", "--seed", "1")
"""Of the run to 2M steps, four minutes of 30 environments."""


class Part(NamedTuple):
    """A part.

    Attributes:
        what: it finds out, in a line.
        seconds: it takes at most, without what a process takes to start.
        find: finds it out.
        needs: packages beside torch and NumPy.
        compares: whether it tells speeds, which `--base` has measured of another checkout as well.
    """

    what: str
    seconds: float
    find: Callable[[], dict[str, Any]]
    needs: Sequence[str] = ()
    compares: bool = False


class Call(NamedTuple):
    """Some parts as one command of a few minutes.

    Attributes:
        minutes: for all of them.
        parts: by name.
    """

    minutes: float
    parts: Sequence[str]


CALLS = {
    "1": Call(
        7.5,
        (
            *("machine", "tests", "speed", "micro", "mt10", "paper", "profile", "run_profile"),
            "reference",
        ),
    ),
    "2": Call(5.2, ("two_million",)),
    "3": Call(7.5, ("machine", "mt10", "mt10_30", "environments", "together", "pack", "mps", "sb3")),
    "4": Call(5.4, ("two_million_resumed",)),
}
"""The first hour on a GPU: 1 and 2 take 15 minutes together, with their starts, and so do 3 and 4."""


def missing(names: Sequence[str] = (*WHOLE, *OPTIONAL, "pytest")) -> list[str]:
    """Returns which packages cannot be imported here."""
    return [name for name in names if not _importable(name)]


@functools.cache
@functools.cache
def _importable(name: str) -> bool:
    asked = subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True, cwd=ROOT)
    return asked.returncode == 0


class Parts:
    """What there is to find out.

    Args:
        dry: on the CPU, with tiny numbers.
        ends: when all has to be done, by the monotonic clock.
        root: the checkout that is measured.
    """

    def __init__(self, *, dry: bool, ends: float, root: Path = ROOT) -> None:
        self._sizes = DRY if dry else GPU
        self._dry = ["--dry-run"] if dry else []
        self._ends = ends
        self._root = root

    def all(self) -> dict[str, Part]:
        """The parts in the order of their worth."""
        learner, train, fast = self._learner, self._train, {"compares": True}
        return {
            "machine": Part("GPU, driver, processors, versions, missing packages", 60, self.machine),
            "tests": Part("the tests that only a GPU can run", 120, self.tests, ("pytest",)),
            "overlap": learner("acting alone and behind queued updates, compared to the bit", "overlap", 40),
            "speed": learner("updates a second and memory, by batch and precision", "speed", 120, **fast),
            "micro": Part("products, optimisers and streams one by one", 60, self.micro),
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
            "paper": learner("updates a second of the paper's networks", "paper", 40, **fast),
            "seeds": learner("updates a second of 1 to 8 seeds in one graph", "seeds", 60, **fast),
            "together": train("4 seeds in one process", "guide-mt10", 60, "--seeds", "1..4"),
            "pack": Part("4 runs beside each other", 60, self.pack, WHOLE),
            "mps": Part("the same under NVIDIA MPS", 60, functools.partial(self.pack, mps=True), WHOLE),
            "bandwidth": learner("copies between host and device", "bandwidth", 20),
            "profile": learner("all kernels of an update", "profile", 40, **fast),
            "run_profile": Part("all kernels of runs, an update", 90, self.run_profile, WHOLE, compares=True),
            "reference": learner("a single file in LeanRL's manner", "reference", 150),
            "compiled": learner("a plain implementation through torch.compile", "compiled", 60),
            "sb3": learner("updates a second of Stable-Baselines3", "sb3", 40, needs=SB3),
            "two_million": train(
                "2M steps of guide-mt10, and its success", "guide-mt10", 285, *_WIDE, long=True
            ),
            "two_million_resumed": Part("the same, killed and resumed", 300, self.long_resume, WHOLE),
        }

    def machine(self) -> dict[str, Any]:
        """GPU, driver, processors, versions."""
        code = "import json, torch; from trainer.machine.device import configure, describe; "
        code += f"print(json.dumps(describe(configure({self._sizes.device!r}))))"
        asked = self._run([sys.executable, "-c", code], 60)
        facts = lines(asked.output)
        smi = "--query-gpu=name,driver_version,power.limit,clocks.max.sm,memory.total"
        try:
            driver = self._run(["nvidia-smi", smi, "--format=csv,noheader"], 20).output.strip()
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
        every = sorted(ROOT.glob("tests/trainer/**/test_*.py"))
        files = [str(path) for path in every if "pytest.mark.cuda" in path.read_text()]
        # a file that lacks a package fails by itself
        options = ["-q", "-p", "no:cacheprovider", "-m", "cuda", "--continue-on-collection-errors"]
        done = self._run([sys.executable, "-m", "pytest", *options, *files], self._limit(120))
        last = done.output.strip().splitlines()[-1:]
        return {**done.summary(), "last_line": last[0] if last else ""}

    def environments(self) -> dict[str, Any]:
        """Steps a second of environments that nobody learns from: what whole runs cannot exceed."""
        counts = ",".join(map(str, self._sizes.alone))
        return self._module("tests.benchmarks.gpu_runs", counts, str(self._sizes.alone_seconds), limit=60)

    def resume(self) -> dict[str, Any]:
        """The same short run twice: at once, and killed and resumed."""
        total = self._sizes.resumed_steps
        found: dict[str, Any] = {"steps": total}
        with tempfile.TemporaryDirectory() as folder:
            options = ["--total-steps", str(total), "--checkpoint-every", str(total // 10)]
            argv = self._train_argv("guide-mt10", *options)
            whole, cut = Path(folder, "whole"), Path(folder, "cut")
            done = self._run([*argv, "--run-dir", str(whole)], self._limit(120))
            found |= done.summary() | {"whole": digest(whole)}
            found["killed_at"] = kill_past(
                [*argv, "--run-dir", str(cut)], cut / "metrics.jsonl", total // 2, self._limit(120)
            )
            again = self._run([*argv, "--run-dir", str(cut), "--resume"], self._limit(120))
            found |= {"resumed_exit_code": again.code, "resumed": digest(cut)}
        found["equal"] = found["whole"] is not None and found["whole"] == found["resumed"]
        return found

    def long_resume(self) -> dict[str, Any]:
        """The run to 2M steps killed half-way and resumed: its sha256 is to be that of `two_million`."""
        total = self._sizes.long_steps
        with tempfile.TemporaryDirectory() as folder:
            argv = self._train_argv("guide-mt10", *_WIDE, *self._evaluated())
            argv += ["--checkpoint-every", str(total // 4), "--run-dir", folder]
            half, left = total // 2, self._limit(300)
            begun = time.monotonic()
            killed_at = kill_past(argv, Path(folder, "metrics.jsonl"), half, left)
            done = self._run([*argv, "--resume"], left - (time.monotonic() - begun))
            return {**done.summary(), "killed_at": killed_at, "sha256": digest(Path(folder))}

    def micro(self) -> dict[str, Any]:
        """Single operations of an update."""
        return self._module("tests.benchmarks.gpu_micro", *self._dry, limit=60)

    def run_profile(self) -> dict[str, Any]:
        """What runs of 10 and 30 environments have the GPU do; ended by a signal, as any run may be."""
        findings: list[Any] = []
        found: dict[str, Any] = {}
        watched = str(self._sizes.watched_after), str(self._sizes.watched)
        for count in self._sizes.watched_envs:
            with tempfile.TemporaryDirectory() as folder:
                argv = self._train_argv("guide-mt10", "--num-envs", str(count))
                words = *watched, folder, *argv[argv.index("train") :]
                found = self._module("tests.benchmarks.gpu_profile", *words, limit=45)
                findings += [{"num_envs": count, **one} for one in found["findings"]]
        return {**found, "findings": findings}

    def pack(self, *, mps: bool = False) -> dict[str, Any]:
        """Runs beside each other on one GPU, each with a part of the processors."""
        if mps and shutil.which("nvidia-cuda-mps-control") is None:
            return {"skipped": "nvidia-cuda-mps-control is not here"}
        how = "--pack", str(self._sizes.pack), str(self._sizes.pack_seconds)
        with tempfile.TemporaryDirectory() as folder:
            argv = self._train_argv("guide-mt10", "--total-steps", str(self._sizes.pack_steps))
            words = *how, folder, *(["--mps"] if mps else []), "--", *argv
            return self._module("tests.benchmarks.gpu_runs", *words, limit=90)

    def _learner(
        self, text: str, what: str, limit: float, *, needs: Sequence[str] = (), compares: bool = False
    ) -> Part:
        words = "tests.benchmarks.gpu_learner", what, *self._dry
        find = functools.partial(self._module, *words, limit=limit)
        return Part(text, limit, find, needs, compares)

    def _module(self, name: str, *words: str, limit: float) -> dict[str, Any]:
        done = self._run([sys.executable, "-m", name, *words], self._limit(limit))
        return {**done.summary(), "findings": lines(done.output)}

    def _train(self, text: str, recipe: str, limit: float, *options: str, long: bool = False) -> Part:
        """A whole run of the trainer, ended by a signal as a cluster does when the time is up.

        One that can come to its end is evaluated there.
        """

        def find() -> dict[str, Any]:
            argv = self._train_argv(recipe, *options, *(self._evaluated() if long else []))
            with tempfile.TemporaryDirectory() as run_dir:
                done = self._run([*argv, "--run-dir", run_dir], self._limit(limit + GRACE), signal.SIGTERM)
                folders = sorted(Path(run_dir).glob("seed-*")) or [Path(run_dir)]
                found = [progress(folder / "metrics.jsonl") for folder in folders]
                sha = {"sha256": digest(folders[0])} if long else {}
            rates = [one.get("steps_per_second") or 0.0 for one in found]
            whole = {"runs": len(found), "steps_per_second": sum(rates) or None} if len(found) > 1 else {}
            return {**done.summary(), **found[0], **whole, **sha}

        return Part(text, limit, find, WHOLE, compares=True)

    def _train_argv(self, recipe: str, *options: str) -> list[str]:
        sizes = self._sizes
        argv = [sys.executable, "-m", "trainer", "train", "--recipe", recipe, "--wandb", "disabled"]
        argv += ["--eval-every", "0", "--checkpoint-every", "0", "--final-episodes", str(sizes.last_episodes)]
        argv += ["--total-steps", str(sizes.steps), "--log-every", str(sizes.log_every)]
        on_tasks = recipe in GPU.batches
        for value in sizes.tasks_values if on_tasks else sizes.rollout_values:
            argv += ["--set", value, "--unlock", value.split("=")[0]]
        if recipe == "ppo-mujoco" and sizes.dry:
            argv += ["--set", "batch_size=100", "--unlock", "batch_size"]
        return [*argv, "--device", sizes.device, *options, *sizes.options]

    def _evaluated(self) -> list[str]:
        """Returns the options of a long run, evaluated after each quarter and, more closely, at the end."""
        sizes, total = self._sizes, self._sizes.long_steps
        words = ["--total-steps", str(total), "--eval-every", str(total // 4)]
        words += ["--eval-episodes", str(sizes.last_episodes), "--final-episodes", str(sizes.long_episodes)]
        return words

    def _run(
        self, argv: list[str], limit: float, stop: signal.Signals = signal.SIGKILL
    ) -> gpu_process.Outcome:
        return gpu_process.run(argv, limit, stop, root=self._root)

    def _limit(self, wanted: float) -> float:
        return min(self._sizes.patience * wanted, self._ends - time.monotonic() - GRACE)
