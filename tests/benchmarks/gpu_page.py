"""Makes docs/gpu.md: what we predict of a GPU, beside what `gpu.sh` has measured on one.

    python -m tests.benchmarks.gpu_page [RESULT.json]

Without a result the page says that nothing has been measured yet. docs/gpu.json is the result that the page
in docs/ shows. Predictions are of an H200 with 16 processors, made by arithmetic before any GPU was at hand.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks.gpu_all import read
from tests.benchmarks.gpu_learner import BATCHES, SEEDS
from trainer import recipe
from trainer.recipe.memory import learner_parts, library_parts, replay_parts
from trainer.recipe.sizes import Sizes

PAGE = Path(__file__).parents[2] / "docs" / "gpu.md"
RESULT = PAGE.with_suffix(".json")
_NOTHING = "-"
_HEAD = """# GPU performance: predicted and measured

The predictions are calculations for one H200 with 16 processors; the allowance of `clusterkit plan` for CUDA
was set after the first measurement. To measure, run
`tests/benchmarks/gpu.sh --minutes 55 RESULT.json`, then
`python -m tests.benchmarks.gpu_page RESULT.json > docs/gpu.md`. A dash means not measured yet.
[gpu.json](gpu.json) holds the figures, and which parts ran out of time.
"""


class Update(NamedTuple):
    """What is predicted of updates: of a recipe in a precision, how many a second."""

    recipe: str
    precision: str
    predicted: str


class Steps(NamedTuple):
    """What is predicted of a whole run: steps a second and what binds them."""

    recipe: str
    environments: int
    part: str
    predicted: str
    binds: str


UPDATES = (
    Update("guide-mt10", "fp32", "750 to 850"),
    Update("guide-mt10", "tf32", "1,300 to 1,600"),
    Update("mclean2025-mt10", "fp32", "350 to 400"),
    Update("mclean2025-mt10", "tf32", "900 to 1,100"),
)
STEPS = (
    Steps("guide-mt10", 10, "mt10", "7,500 to 9,500", "host: acting, slowest environment, bookkeeping"),
    Steps("guide-mt10", 30, "mt10_30", "12,000 to 15,000", "updates"),
    Steps("mclean2025-mt10", 10, "paper_mt10", "6,500 to 8,500", "updates and host"),
    Steps("mclean2025-mt10", 30, "paper_mt10_30", "9,000 to 11,000", "updates"),
)
PEERS = (
    ("trainer, CUDA graph", "speed", "captured"),
    ("trainer, eager", "speed", "eager"),
    ("plain PyTorch, eager", "speed", "plain"),
    ("plain PyTorch, its networks through torch.compile", "compiled", "plain_compiled"),
    ("single file in LeanRL's manner, CUDA graph", "reference", "reference"),
    ("the same, torch.compile and CUDA graph", "reference", "reference_compiled"),
)
"""Whoever is compared, with the part that measures it and the number's name there."""


def page(result: Mapping[str, Any]) -> str:
    """Returns the page for what was found; of a dry run it takes nothing."""
    found = {} if result.get("dry_run") else result
    device = found.get("machine", {}).get("device") or {}
    where = (
        f"Measured on {device['name']}, PyTorch {device['torch']}."
        if device
        else "No GPU has been measured yet."
    )
    blocks = [
        _HEAD,
        where + "\n",
        _table(
            "Updates per second, as a CUDA graph",
            ("recipe", "precision", "predicted", "measured"),
            _updates(found),
        ),
        _table(
            "Environment steps per second of a whole run, tf32",
            (
                "recipe",
                "environments",
                "predicted",
                "expected limit",
                "measured",
                "GPU busy",
                "environments alone",
            ),
            _steps(found),
        ),
        _table(
            "Updates per second beside other implementations, and their ratio to ours, tf32",
            ("implementation", *(f"batch of {batch:,}" for batch in BATCHES.values())),
            _peers(found),
        ),
        _table(
            "Updates per second of several seeds in one graph, added up, tf32",
            ("recipe", *(f"{seeds} seed{'s' if seeds > 1 else ''}" for seeds in SEEDS)),
            _seeds(found),
        ),
        _table(
            "GPU memory while training, GiB", ("recipe", "by `clusterkit plan`", "measured"), _memory(found)
        ),
        _table("Correctness", ("question", "predicted", "measured"), _truths(found)),
    ]
    return "\n".join(blocks)


def _updates(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rows = []
    for name, precision, predicted in UPDATES:
        part = "speed" if name == "guide-mt10" else "paper"
        seen = [
            one["captured"]
            for one in found.get(part, {}).get("findings", ())
            if one["precision"] == precision and one["batch"] == BATCHES[name] and "captured" in one
        ]
        rows.append((name, precision, predicted, f"{seen[0]:,.0f}" if seen else _NOTHING))
    return rows


def _steps(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    alone = {
        one["num_envs"]: f"{one['env_steps_per_second']:,.0f}"
        for one in found.get("environments", {}).get("findings", ())
    }
    return [
        (
            each.recipe,
            str(each.environments),
            each.predicted,
            each.binds,
            _number(found.get(each.part, {}).get("steps_per_second")),
            _busy(found.get(each.part, {}).get("last") or {}),
            alone.get(each.environments, _NOTHING),
        )
        for each in STEPS
    ]


def _peers(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The guides' networks, the same data, one update at a time, by whoever computes it."""
    rates = [
        {
            one["batch"]: one[key]
            for one in found.get(part, {}).get("findings", ())
            if one["precision"] == "tf32" and key in one
        }
        for _, part, key in PEERS
    ]
    return [
        (text, *(_beside(seen.get(batch), rates[0].get(batch)) for batch in BATCHES.values()))
        for (text, *_), seen in zip(PEERS, rates, strict=True)
    ]


def _beside(value: float | None, ours: float | None) -> str:
    ratio = f" ({value / ours:.2f}x)" if value and ours else ""
    return f"{_number(value)}{ratio}"


def _seeds(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    seen = {
        (one["recipe"], one["seeds"]): one["updates_per_second"]
        for one in found.get("seeds", {}).get("findings", ())
    }
    return [(name, *(_number(seen.get((name, seeds))) for seeds in SEEDS)) for name in BATCHES]


def _memory(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rows = []
    for name, part in (("guide-mt10", "mt10"), ("mclean2025-mt10", "paper_mt10")):
        sizes = Sizes(recipe.load(name), precision="tf32")
        parts = (*replay_parts(sizes), *learner_parts(sizes), *library_parts(sizes))
        used = (found.get(part, {}).get("last") or {}).get("gpu/memory_bytes")
        seen = f"{used / 2**30:.2f}" if used else _NOTHING
        rows.append((name, f"{sum(each.bytes for each in parts) / 2**30:.2f}", seen))
    return rows


def _truths(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    overlap = found.get("overlap", {}).get("findings") or []
    equality = [one["max_relative_difference"] for one in found.get("equality", {}).get("findings", ())]
    resume = found.get("resume", {})
    success = found.get("two_million", {}).get("success")
    return [
        (
            "actions changed by queued updates, of 10,000",
            "0",
            f"{overlap[0]['different']:,}" if overlap else _NOTHING,
        ),
        (
            "largest difference from eager updates, after 1,000",
            "below 1e-5",
            f"{max(equality):.1e}" if equality else _NOTHING,
        ),
        (
            "SHA-256 of a run that was killed and resumed",
            "the same",
            ("the same" if resume["equal"] else "different") if "equal" in resume else _NOTHING,
        ),
        ("tests that need a GPU", "all pass", found.get("tests", {}).get("last_line") or _NOTHING),
        (
            "success rate of guide-mt10 after 2M steps",
            "not predicted",
            _NOTHING if success is None else f"{success:.1%}",
        ),
    ]


def _busy(line: Mapping[str, Any]) -> str:
    share = line.get("gpu/utilization")
    return _NOTHING if share is None else f"{share:.0%}"


def _number(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:,.0f}"


def _table(title: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [f"## {title}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the page."""
    result = read(Path(sys.argv[1])) if len(sys.argv) > 1 else {}
    sys.stdout.write(page(result))


if __name__ == "__main__":
    main()
