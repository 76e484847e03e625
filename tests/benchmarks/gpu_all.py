"""Runs the parts of `gpu.sh`, each in a process of its own with a limit, and writes findings as JSON."""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
GRACE = 15.0
"""Seconds that a run gets between the request to end and its end by force."""


@dataclass(frozen=True)
class Outcome:
    """How a process ended: exit code (None: it had to be killed), output, seconds."""

    code: int | None
    output: str
    seconds: float

    def summary(self) -> dict[str, Any]:
        """What is kept of it in any case."""
        short = {"exit_code": self.code, "seconds": round(self.seconds, 1)}
        return short if self.code == 0 else short | {"output": self.output[-2000:]}


def run(argv: list[str], limit: float, stop: signal.Signals = signal.SIGKILL) -> Outcome:
    """Runs a process in a group of its own, for at most `limit` seconds: then `stop` goes to the group."""
    begun = time.monotonic()
    process = subprocess.Popen(
        argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    output, code = "", None
    for patience, then in ((limit, stop), (GRACE, signal.SIGKILL), (GRACE, signal.SIGKILL)):
        try:
            output = process.communicate(timeout=max(patience, 0.1))[0]
            code = process.returncode
            break
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, then)
    return Outcome(code, output, time.monotonic() - begun)


class Parts:
    """What there is to find out.

    Args:
        dry: on the CPU, with tiny numbers.
        ends: when all has to be done, by the monotonic clock.
    """

    def __init__(self, *, dry: bool, ends: float) -> None:
        self._dry = dry
        self._ends = ends

    def all(self) -> dict[str, Callable[[], dict[str, Any]]]:
        """The parts in the order of their worth."""
        return {
            "machine": self.machine,
            "tests": self.tests,
            "speed": lambda: self._learner("speed", 90),
            "equality": lambda: self._learner("equality", 60),
            "reference": lambda: self._learner("reference", 60),
            "seeds": lambda: self._learner("seeds", 60),
            "mt10": lambda: self._train("guide-mt10", 45),
            "paper_mt10": lambda: self._train("mclean2025-mt10", 45),
            "paper": lambda: self._learner("paper", 30),
            "compiled": lambda: self._learner("compiled", 55),
            "two_million": lambda: self._train("guide-mt10", 240, total=2_000_000),
        }

    def machine(self) -> dict[str, Any]:
        """GPU, driver, processors, versions."""
        code = "import json, torch; from trainer.device import configure, describe; "
        code += f"print(json.dumps(describe(configure({'cpu' if self._dry else 'cuda'!r}))))"
        asked = run([sys.executable, "-c", code], 60)
        facts = _lines(asked.output)
        smi = "--query-gpu=name,driver_version,power.limit,clocks.max.sm,memory.total"
        try:
            driver = run(["nvidia-smi", smi, "--format=csv,noheader"], 20).output.strip()
        except OSError as error:
            driver = str(error)
        return {
            **asked.summary(),
            "device": facts[-1] if facts else None,
            "nvidia_smi": driver,
            "processors": len(os.sched_getaffinity(0)),
        }

    def tests(self) -> dict[str, Any]:
        """The tests that need a GPU; without one, each says so."""
        every = sorted(ROOT.glob("tests/trainer/test_*.py"))
        files = [str(path) for path in every if "pytest.mark.cuda" in path.read_text()]
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "cuda", *files]
        done = run(argv, self._limit(90))
        last = done.output.strip().splitlines()[-1:]
        return {**done.summary(), "last_line": last[0] if last else ""}

    def _learner(self, what: str, limit: float) -> dict[str, Any]:
        argv = [sys.executable, "-m", "tests.benchmarks.gpu_learner", what]
        done = run([*argv, *(["--dry-run"] if self._dry else [])], self._limit(limit))
        return {**done.summary(), "findings": _lines(done.output)}

    def _train(self, recipe: str, limit: float, total: int = 100_000_000) -> dict[str, Any]:
        """A whole run of the trainer, ended by a signal as a cluster does when the time is up."""
        options = ["--precision", "tf32", "--eval-every", "0", "--log-every", "10000", "--device", "cuda"]
        options += ["--final-episodes", "10"]
        if self._dry:
            small = (
                *("tasks=reach", "actor_hidden=8", "critic_hidden=8", "batch_size=20"),
                *("warmup_steps=200", "env_steps_per_update=20", "replay_capacity=20000"),
            )
            options = [
                option for value in small for option in ("--set", value, "--unlock", value.split("=")[0])
            ]
            options += ["--eval-every", "0", "--log-every", "200", "--device", "cpu"]
            options += ["--num-envs", "2", "--workers", "0"]
            total = min(total, 1000)
        with tempfile.TemporaryDirectory() as run_dir:
            done = run(
                [
                    *(sys.executable, "-m", "trainer", "train", "--recipe", recipe, *options),
                    *("--total-steps", str(total), "--wandb", "disabled"),
                    *("--run-dir", run_dir),
                ],
                self._limit(limit + (0 if total > 10_000_000 else GRACE)),
                signal.SIGTERM,
            )
            return {**done.summary(), **_progress(Path(run_dir, "metrics.jsonl"))}

    def _limit(self, wanted: float) -> float:
        return min(wanted, self._ends - time.monotonic() - GRACE)


def _progress(metrics: Path) -> dict[str, Any]:
    """Reads a run's speed: the median of the second half of its lines with updates, and where it got to."""
    if not metrics.exists():
        return {"steps": 0}
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    train = [line for line in lines if line["kind"] == "train"]
    learning = [line for line in train if line.get("updates")]
    half = learning[len(learning) // 2 :]
    found: dict[str, Any] = {
        "steps": max((line["step"] for line in lines), default=0),
        "wall_seconds": lines[-1]["time"] - lines[0]["time"] if lines else 0.0,
        "events": [line for line in lines if line["kind"] == "event"][-20:],
        "last": train[-1] if train else None,
        "evaluation": next((line for line in reversed(lines) if line["kind"] == "eval"), None),
    }
    for key in ("steps_per_second", "updates_per_second"):
        values = [line[key] for line in half if line.get(key)]
        found[key] = statistics.median(values) if values else None
    return found


def _lines(output: str) -> list[Any]:
    """The lines of an output that are JSON objects."""
    found = []
    for line in output.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def main() -> None:
    """Run the parts that are left time for."""
    parser = argparse.ArgumentParser(prog="gpu.sh", description="Everything that needs a GPU, as JSON.")
    default = Path(f"gpu-{time.strftime('%Y%m%d-%H%M%S')}.json")
    parser.add_argument("result", nargs="?", type=Path, default=default, help="where to write")
    parser.add_argument("--minutes", type=float, default=8.7, help="for all parts together (8.7)")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, with tiny numbers")
    chosen = parser.parse_args()
    begun = time.monotonic()
    ends = begun + 60 * chosen.minutes
    result: dict[str, Any] = {"dry_run": chosen.dry_run, "begun": time.strftime("%FT%TZ", time.gmtime())}
    for name, part in Parts(dry=chosen.dry_run, ends=ends).all().items():
        left = ends - time.monotonic()
        if left < 2 * GRACE:
            result[name] = {"skipped": f"only {left:.0f} s were left"}
        else:
            try:
                result[name] = part()
            except Exception as error:  # whatever it is, the other parts are still worth their time
                result[name] = {"error": f"{type(error).__name__}: {error}"}
        result["seconds"] = round(time.monotonic() - begun, 1)
        chosen.result.write_text(json.dumps(result, indent=1) + "\n")
        print(f"{result['seconds']:6.1f} s  {name}: {json.dumps(result[name])[:160]}", flush=True)
    print(f"written to {chosen.result}")


if __name__ == "__main__":
    main()
