"""An update of soft actor-critic at the lab guides' sizes: ours against Stable-Baselines3's and a plain one.

Batch 512, observation 49 with the task's id, action 4, actor 2x256, two critics 3x1024, float32, all on the
same threads. `ratio_sb3`: against `SAC.train(gradient_steps=1, batch_size=512)`, `ratio_eager`: against
one network after the other as single-file implementations have it. `ratio_products`: against ours by the
library it does not choose here, of MKL and oneDNN. `ratio_apart`: of `mclean2025-mt10`, whose actor is
1,024 wide, that actor evaluated for observations and next ones apart against both at once, and
`ratio_apart_guide` the same of the guide's, where it is not done. `ratio_bf16`: our bfloat16 against our
float32, where the processor computes in it. The sides take turns, and the median of the ratios of neighbours
counts, for other programs slow down both.

On a machine with a GPU also, for batches of 512 and 1280 and each precision: updates a second captured,
against the same eager (`ratio_eager_gpu_...`), against the plain one, eager and compiled, against a single
file in LeanRL's manner, its whole update captured (`ratio_reference_gpu_...`) or not, compiled or not, and
against Stable-Baselines3's.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from unittest.mock import patch

import torch

from tests.benchmarks._learners import Ours, Plain, make_data
from tests.benchmarks._report import Row, arguments, report
from tests.benchmarks._sb3 import guide_sac
from tests.benchmarks.gpu_learner import Bench
from tests.benchmarks.gpu_sizes import GPU
from trainer.nn import mlp

BATCH = 512
PEERS = (
    *("eager", "captured_by_autograd", "plain", "plain_compiled", "sb3"),
    *("reference_eager", "reference", "reference_compiled_eager", "reference_compiled"),
)
"""Whoever the GPU's findings may name."""


def interleaved(sides: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each call, the sides in turn, after a warm-up; fewer rounds on a machine that is busy."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    begun = time.perf_counter()
    for turn in range(rounds + 2):
        for name, work in sides.items():
            start = time.perf_counter()
            work()
            if turn >= 2:
                times[name].append(time.perf_counter() - start)
        if turn > 6 and time.perf_counter() - begun > rounds:
            break
    return times


def on_the_cpu(rounds: int) -> tuple[list[Row], dict[str, float]]:
    """Ours against both peers."""
    data = make_data("cpu")
    ours, peer, plain = Ours("guide-mt10", data, BATCH), guide_sac("cpu"), Plain(data, BATCH)

    def by_other_products() -> None:
        with patch.object(mlp, "PREFER_ONEDNN", not mlp.PREFER_ONEDNN):
            ours.update()

    sides: dict[str, Callable[[], object]] = {
        "ours": ours.update,
        "products": by_other_products,
        "sb3": lambda: peer.train(gradient_steps=1, batch_size=BATCH),
        "eager": plain.update,
    }
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        sides["bf16"] = Ours("guide-mt10", data, BATCH, "bf16").update
    times = interleaved(sides, rounds)
    rate = {name: 1 / statistics.median(seconds) for name, seconds in times.items()}

    def ratio(slow: str, fast: str) -> float:
        return statistics.median(a / b for a, b in zip(times[slow], times[fast], strict=True))

    rows: list[Row] = [
        ("update, fp32", "ours", rate["ours"], "Stable-Baselines3", rate["sb3"], "updates/s"),
        ("update, fp32", "ours", rate["ours"], "plain", rate["eager"], "updates/s"),
        ("update, fp32", "ours", rate["ours"], "ours, other products", rate["products"], "updates/s"),
    ]
    metrics = {
        "ratio_sb3": ratio("sb3", "ours"),
        "ratio_eager": ratio("eager", "ours"),
        "ratio_products": ratio("products", "ours"),
        "updates_per_second": rate["ours"],
        "threads": torch.get_num_threads(),
    }
    if "bf16" in times:
        rows.append(("update, bf16", "ours", rate["bf16"], "ours, fp32", rate["ours"], "updates/s"))
        metrics |= {"ratio_bf16": ratio("ours", "bf16"), "updates_per_second_bf16": rate["bf16"]}
    return rows, metrics


def apart(name: str, rounds: int) -> tuple[list[Row], float]:
    """An actor evaluated for observations and next ones apart, which spares half of its way back."""
    data = make_data("cpu")
    sides = {side: Ours(name, data, BATCH) for side in ("apart", "at once")}
    for side, ours in sides.items():
        ours.agent._apart = side == "apart"
    times = interleaved({side: ours.update for side, ours in sides.items()}, rounds)
    one, other = (1 / statistics.median(times[side]) for side in sides)
    ratio = statistics.median(b / a for a, b in zip(*times.values(), strict=True))
    return [(f"update of {name}, fp32", "actor apart", one, "at once", other, "updates/s")], ratio


def on_the_gpu(seconds: float) -> tuple[list[Row], dict[str, float]]:
    """Ours, eager and captured, and the plain one, eager and compiled."""
    rows: list[Row] = []
    metrics: dict[str, float] = {}
    bench = Bench(GPU._replace(seconds=seconds))
    captured: dict[tuple[int, str], float] = {}
    for found in (*bench.speed(), *bench.compiled(), *bench.reference(), *bench.sb3()):
        batch, precision = found["batch"], found["precision"]
        ours = captured.setdefault((batch, precision), found.get("captured", 0.0))
        for peer in PEERS:
            if peer in found:
                what = f"GPU, batch {batch}, {precision}"
                rows.append((what, "captured", ours, peer, found[peer], "updates/s"))
                metrics[f"ratio_{peer}_gpu_{precision}_{batch}"] = ours / found[peer]
        metrics[f"updates_per_second_gpu_{precision}_{batch}"] = ours
    return rows, metrics


def main() -> None:
    """Run and report."""
    chosen = arguments(__doc__)
    rounds = 30 if chosen.quick else 100
    rows, metrics = on_the_cpu(rounds)
    for key, name in (("ratio_apart", "mclean2025-mt10"), ("ratio_apart_guide", "guide-mt10")):
        further, metrics[key] = apart(name, rounds)
        rows += further
    if torch.cuda.is_available():
        further, found = on_the_gpu(1.0 if chosen.quick else 3.0)
        rows, metrics = rows + further, metrics | found
    report("learner", rows, metrics)


if __name__ == "__main__":
    main()
