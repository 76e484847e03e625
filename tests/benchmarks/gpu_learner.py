"""The learner on a GPU, one line of JSON for each finding.

    python -m tests.benchmarks.gpu_learner PART [--dry-run]

`speed`: updates a second with the lab guides' networks, for batches of 512 and 1280 and each precision: ours
eager and captured, a plain implementation, and the memory in use. `paper`: ours captured with the paper's
networks and its batch of 1280. Each names the path that computed it; where that is kernels, the same updates
by autograd are measured in turn with it. `compiled`: the plain implementation through torch.compile.
`reference`: the single file in LeanRL's manner, eager and captured, then the same compiled. `sb3`:
Stable-Baselines3's update. `equality`: the greatest relative difference of any tensor after 1 000 updates,
captured against eager. `seeds`: updates a second of 1, 2, 4 and 8 seeds in one graph, all of them added up,
and the operations an update of them takes. `overlap`: whether a policy acts the same alone and behind queued
updates of another learner. `bandwidth`: copies between host and device. `profile`: all kernels of an update,
eager and captured.
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

from tests.benchmarks._learners import (
    ACTION,
    OBSERVATION,
    TASKS,
    Ours,
    Plain,
    make_data,
    path_of,
    single_file,
)
from tests.benchmarks._seeds import Seeds
from tests.benchmarks.gpu_profile import table, watched
from tests.benchmarks.gpu_sizes import DRY, GPU, Sizes
from trainer import recipe
from trainer.algorithms.acting import Acting
from trainer.algorithms.sac_config import SACConfig, make_policy
from trainer.machine.device import configure

Findings = Iterator[dict[str, Any]]


class Bench:
    """Where and how long to measure.

    Args:
        sizes: of everything.
    """

    def __init__(self, sizes: Sizes) -> None:
        self.device = torch.device("cpu") if sizes.dry else torch.device("cuda", torch.cuda.current_device())
        self.sizes = sizes
        self.guide, self.batches = sizes.guide, sizes.batches
        self.data = make_data(self.device)

    def rate(self, update: Callable[[], object]) -> float:
        """Updates a second, nothing read back in between; a first block of updates is not counted."""
        return self.rates(update)[0]

    def rates(self, *updates: Callable[[], object]) -> list[float]:
        """Updates a second of each, blocks of which take turns."""
        spent, blocks = [0.0] * len(updates), -1
        while blocks <= 0 or max(spent) < self.sizes.seconds:
            for number, update in enumerate(updates):
                start = time.perf_counter()
                for _ in range(self.sizes.block):
                    update()
                self._settle()
                if blocks >= 0:
                    spent[number] += time.perf_counter() - start
            blocks += 1
        return [blocks * self.sizes.block / each for each in spent]

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
            for precision in self.sizes.precisions:
                configure(self.device.type, precision)
                found: dict[str, Any] = {"batch": batch, "precision": precision}
                found["eager"] = self.rate(Ours(self.guide, self.data, batch, precision).update)
                if precision != "bf16":
                    found["plain"] = self.rate(Plain(self.data, batch).update)
                self.memory()
                yield found | self._captured(self.guide, batch, precision)

    def paper(self) -> Findings:
        """Ours, captured, with the paper's networks."""
        for precision in self.sizes.precisions:
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
        for batch in self.batches.values():
            rate = self.rate(Plain(self.data, batch, compiled=self.sizes.compiles).update)
            yield {"batch": batch, "precision": "tf32", "plain_compiled": rate}

    def reference(self) -> Findings:
        """The single file in LeanRL's manner; in a dry run neither compiled nor captured."""
        configure(self.device.type, "tf32")
        cuda = self.device.type == "cuda"
        for batch in self.batches.values():
            for name, compiled in (("reference", False), ("reference_compiled", True)):
                if cuda or not compiled:
                    agent = single_file(self.data, batch, compiled=compiled, graphed=False)
                    found = {"batch": batch, "precision": "tf32"}
                    yield found | {f"{name}_eager": self.rate(agent.update)}
                    if cuda:
                        agent.graphed = True
                        yield found | {name: self.rate(agent.update)}

    def sb3(self) -> Findings:
        """Stable-Baselines3's update, whose replay lies in the host's memory."""
        from tests.benchmarks._sb3 import guide_sac

        configure(self.device.type, "tf32")
        peer = guide_sac(self.device.type)
        for batch in self.batches.values():
            rate = self.rate(lambda size=batch: peer.train(gradient_steps=1, batch_size=size))
            yield {"batch": batch, "precision": "tf32", "sb3": rate}

    def equality(self) -> Findings:
        """Captured and eager updates of equal seeds, each tensor relative to its greatest value."""
        updates = self.sizes.equal
        for name, batch in self.batches.items():
            for precision in self.sizes.precisions:
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
        """Several seeds at once, with small networks, the lab guides' and the paper's."""
        configure(self.device.type, "tf32")
        for name in self.sizes.seeds_of:
            for seeds in self.sizes.seeds:
                own = Seeds(name, seeds, self.device)
                yield {
                    "recipe": name,
                    "seeds": seeds,
                    "updates_per_second": seeds * self.rate(own.update),
                    "operations": own.operations(),
                    "path": path_of(own.agents[0]),
                    "note": own.update.note,
                    **self.memory(),
                }

    def overlap(self) -> Findings:
        """Acts alone, then behind updates still being computed: the actions must be equal to the bit."""
        configure(self.device.type, "fp32")
        times, envs = self.sizes.acts, 10
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
        size, cuda = self.sizes.copied, self.device.type == "cuda"
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
        """All kernels of an update of the lab guides' networks, the mean of some; eager and captured."""
        configure(self.device.type, "tf32")
        updates = self.sizes.profiled
        for captured in (False, True):
            ours = Ours(self.guide, self.data, self.batches[self.guide], captured=captured)
            for _ in range(3):
                ours.update()
            with watched() as profiler:
                for _ in range(updates):
                    ours.update()
            yield {"captured": captured, "path": ours.path, **table(profiler, updates), "note": ours.note}

    def _captured(self, name: str, batch: int, precision: str) -> dict[str, Any]:
        """Ours as a CUDA graph, and the memory of it; in turn with autograd's where kernels compute it."""
        ours = Ours(name, self.data, batch, precision, captured=True)
        for _ in range(3):
            ours.update()
        found = {"path": ours.path, "note": ours.note, **self.memory()}
        if not ours.path.startswith("kernels"):
            return found | {"captured": self.rate(ours.update)}
        base = Ours(name, self.data, batch, precision, captured=True, kernels=False)
        both = self.rates(ours.update, base.update)
        return found | dict(zip(("captured", "captured_by_autograd"), both, strict=True))

    def _settle(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def main() -> None:
    """Print the findings asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = (
        *("speed", "paper", "compiled", "reference", "sb3", "equality", "seeds"),
        *("overlap", "bandwidth", "profile"),
    )
    parser.add_argument("what", choices=kinds)
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, with tiny numbers")
    chosen = parser.parse_args()
    bench = Bench(DRY if chosen.dry_run else GPU)
    for finding in getattr(bench, chosen.what)():
        print(json.dumps(finding), flush=True)


if __name__ == "__main__":
    main()
