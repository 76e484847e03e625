"""The learner on a GPU, one line of JSON for each finding.

    python -m tests.benchmarks.gpu_learner PART [--dry-run]

`speed`: updates a second with the guides' networks, for batches of 512 and 1280 and each precision: ours
eager and captured, a plain implementation, and the memory in use. `paper`: ours captured with the paper's
networks and its batch of 1280. `compiled`: the plain implementation through torch.compile. `reference`: the
single file in LeanRL's manner, its whole update captured, and compiled and captured. `equality`: the
greatest relative difference of any tensor after 1 000 updates, captured against eager. `seeds`: updates a
second of 1, 2, 4 and 8 seeds in one graph, all of them added up, and the operations an update of them takes.
`overlap`: whether a policy acts the same alone and behind queued updates of another learner. `bandwidth`:
copies between host and device. `profile`: what one update spends its time on, eager and captured.
Lines come as they are found: a run that is cut off has told what it knew. `--dry-run` does it on the CPU with
tiny numbers.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from tests.benchmarks._learners import ACTION, OBSERVATION, TASKS, Ours, Plain, make_data, single_file
from tests.benchmarks._seeds import Seeds
from trainer import recipe
from trainer.algorithms.acting import Acting
from trainer.algorithms.sac_config import SACConfig, make_policy
from trainer.machine.device import configure

BATCHES = {"guide-mt10": 512, "mclean2025-mt10": 1280}
SEEDS = (1, 2, 4, 8)
PRECISIONS = ("fp32", "tf32", "bf16")
Findings = Iterator[dict[str, Any]]


class Bench:
    """Where and how long to measure.

    Args:
        dry: on the CPU, a single update a figure, one precision, small networks but for the paper's.
        seconds: for each figure.
    """

    def __init__(self, *, dry: bool, seconds: float = 3.0) -> None:
        self.device = torch.device("cpu") if dry else torch.device("cuda", torch.cuda.current_device())
        self.precisions = PRECISIONS[:1] if dry else PRECISIONS
        self.guide = "guide-mt10-debug" if dry else "guide-mt10"
        self.batches = {self.guide: 8} if dry else BATCHES
        self._seconds = 0.0 if dry else seconds
        self._block = 1 if dry else 100
        self.data = make_data(self.device)

    def rate(self, update: Callable[[], object]) -> float:
        """Updates a second, nothing read back in between; a first block of updates is not counted."""
        done, start = -self._block, 0.0
        while done <= 0 or time.perf_counter() - start < self._seconds:
            for _ in range(self._block):
                update()
            self._settle()
            done += self._block
            if done == 0:
                start = time.perf_counter()
        return done / (time.perf_counter() - start)

    def memory(self) -> dict[str, int]:
        """Bytes in use, reserved, and the most that were in use since the last call."""
        if self.device.type != "cuda":
            return {}
        found = {
            "allocated_bytes": torch.cuda.memory_allocated(self.device),
            "reserved_bytes": torch.cuda.memory_reserved(self.device),
            "peak_bytes": torch.cuda.max_memory_allocated(self.device),
        }
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)
        return found

    def speed(self) -> Findings:
        """Ours, eager and captured, and the plain implementation, which has no bfloat16."""
        for batch in self.batches.values():
            for precision in self.precisions:
                configure(self.device.type, precision)
                found: dict[str, Any] = {"batch": batch, "precision": precision}
                found["eager"] = self.rate(Ours(self.guide, self.data, batch, precision).update)
                if precision != "bf16":
                    found["plain"] = self.rate(Plain(self.data, batch).update)
                self.memory()
                yield found | self._captured(self.guide, batch, precision)

    def paper(self) -> Findings:
        """Ours, captured, with the paper's networks."""
        for precision in self.precisions:
            configure(self.device.type, precision)
            self.memory()
            name = "mclean2025-mt10"
            batch = self.batches.get(name, 8)
            found = {"recipe": name, "batch": batch, "precision": precision}
            yield found | self._captured(name, batch, precision)

    def compiled(self) -> Findings:
        """The plain implementation with its networks compiled, which takes the compiler up to a minute.

        A dry run leaves the compiler out.
        """
        configure(self.device.type, "tf32")
        torch._dynamo.config.disable = self.device.type == "cpu"
        for batch in self.batches.values():
            rate = self.rate(Plain(self.data, batch, compiled=True).update)
            yield {"batch": batch, "precision": "tf32", "plain_compiled": rate}

    def reference(self) -> Findings:
        """The single file in LeanRL's manner; eager in a dry run, for only a GPU captures."""
        configure(self.device.type, "tf32")
        cuda = self.device.type == "cuda"
        for batch in self.batches.values():
            for name, compiled in (("reference", False), ("reference_compiled", True)):
                if cuda or not compiled:
                    agent = single_file(self.data, batch, compiled=compiled, graphed=cuda)
                    yield {"batch": batch, "precision": "tf32", name: self.rate(agent.update)}

    def equality(self) -> Findings:
        """Captured and eager updates of equal seeds, each tensor relative to its greatest value."""
        updates = 2 if self.device.type == "cpu" else 1000
        for name, batch in self.batches.items():
            for precision in self.precisions:
                configure(self.device.type, precision)
                sides = [Ours(name, self.data, batch, precision, captured=way) for way in (True, False)]
                for side in sides:
                    torch.manual_seed(1)
                    for _ in range(updates):
                        side.update()
                pairs = zip(sides[0].agent.tensors(), sides[1].agent.tensors(), strict=True)
                largest = max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-12)) for a, b in pairs)
                yield {
                    "recipe": name,
                    "precision": precision,
                    "updates": updates,
                    "max_relative_difference": largest,
                    "note": sides[0].note,
                }

    def seeds(self) -> Findings:
        """Several seeds at once, with small networks, the guides' and the paper's."""
        configure(self.device.type, "tf32")
        dry = self.device.type == "cpu"
        for name in ("guide-mt10-debug",) if dry else ("guide-mt10-debug", *BATCHES):
            for seeds in SEEDS[:2] if dry else SEEDS:
                own = Seeds(name, seeds, self.device)
                yield {
                    "recipe": name,
                    "seeds": seeds,
                    "updates_per_second": seeds * self.rate(own.update),
                    "operations": own.operations(),
                    "note": own.update.note,
                    **self.memory(),
                }

    def overlap(self) -> Findings:
        """Acts alone, then behind updates still being computed: the actions must be equal to the bit."""
        configure(self.device.type, "fp32")
        times, envs = (20, 10) if self.device.type == "cpu" else (10_000, 10)
        config = SACConfig.from_values(recipe.load("mclean2025-mt10").values)
        torch.manual_seed(0)
        policy = make_policy(config, OBSERVATION, ACTION, TASKS).to(self.device)
        acting = Acting(policy, envs, OBSERVATION, lag=1, on_host=False)
        other = Ours(self.guide, self.data, self.batches[self.guide], captured=True)
        seen = np.random.default_rng(0).standard_normal((times, envs, OBSERVATION), np.float32)
        tasks = np.arange(envs) % TASKS
        found = []
        for busy in (False, True):
            actions = []
            for number, each in enumerate(seen):
                if busy:
                    other.update()
                torch.default_generator.manual_seed(number)  # of the noise, which the host draws
                actions.append(acting.act(each, tasks).copy())
            self._settle()
            found.append(np.stack(actions))
        different = int((found[0] != found[1]).any((1, 2)).sum())
        yield {"acts": times, "different": different, "notes": [acting.note, other.note]}

    def bandwidth(self) -> Findings:
        """Copies of 64 MiB, pinned and not, in bytes a second."""
        size, cuda = (2**16 if self.device.type == "cpu" else 2**26), self.device.type == "cuda"
        there = torch.zeros(size, dtype=torch.uint8, device=self.device)
        for pinned in (True, False) if cuda else (False,):
            here = torch.zeros(size, dtype=torch.uint8, pin_memory=pinned)
            pair = {"to_device": (there, here), "to_host": (here, there)}
            rates = {
                name: size * self.rate(lambda to=to, of=of: to.copy_(of, non_blocking=True))
                for name, (to, of) in pair.items()
            }
            yield {"pinned": pinned, "bytes": size, **rates}

    def profile(self) -> Findings:
        """The kernels of one update of the guides' networks, by the time they take on the device."""
        configure(self.device.type, "tf32")
        activities = [torch.profiler.ProfilerActivity.CPU]
        if self.device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        for captured in (False, True):
            ours = Ours(self.guide, self.data, self.batches[self.guide], captured=captured)
            for _ in range(3):
                ours.update()
            self._settle()
            with torch.profiler.profile(activities=activities) as profiler:
                ours.update()
                self._settle()
            events = [(each, _microseconds(each)) for each in profiler.key_averages()]
            events.sort(key=lambda pair: -pair[1])
            table = [
                {"name": each.key[:100], "calls": each.count, "microseconds": round(spent, 1)}
                for each, spent in events[:30]
                if spent
            ]
            whole = round(sum(spent for _, spent in events), 1)
            yield {"captured": captured, "microseconds": whole, "kernels": table, "note": ours.note}

    def _captured(self, name: str, batch: int, precision: str) -> dict[str, Any]:
        ours = Ours(name, self.data, batch, precision, captured=True)
        return {"captured": self.rate(ours.update), "note": ours.note, **self.memory()}

    def _settle(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _microseconds(event: Any) -> float:
    """Time of its own on the device, or on the processor where there is none."""
    on_device = float(getattr(event, "self_device_time_total", 0.0))
    return on_device if torch.cuda.is_available() else float(event.self_cpu_time_total)


def main() -> None:
    """Print the findings asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = (
        *("speed", "paper", "compiled", "reference", "equality", "seeds"),
        *("overlap", "bandwidth", "profile"),
    )
    parser.add_argument("what", choices=kinds)
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, with tiny numbers")
    chosen = parser.parse_args()
    bench = Bench(dry=chosen.dry_run)
    for finding in getattr(bench, chosen.what)():
        print(json.dumps(finding), flush=True)


if __name__ == "__main__":
    main()
