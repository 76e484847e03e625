"""Makes docs/gpu.md: what we predict of a GPU, beside what `gpu.sh` has measured on one.

    python -m tests.benchmarks.gpu_page [RESULT.json]

Without a result the page says that nothing has been measured yet. docs/gpu.json is the result that the page
in docs/ shows.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks.gpu_all import read
from tests.benchmarks.gpu_predicted import FOUR, PEERS, STEPS, UPDATES, Update
from tests.benchmarks.gpu_sizes import GPU
from trainer import recipe
from trainer.recipe.memory import learner_parts, library_parts, replay_parts
from trainer.recipe.sizes import Sizes

PAGE = Path(__file__).parents[2] / "docs" / "gpu.md"
RESULT = PAGE.with_suffix(".json")
_NOTHING = "-"
_HEAD = """# GPU performance: predicted and measured

Predictions are calculations for one H200 with 16 processors. [gpu.json](gpu.json) holds all figures. To
measure: `tests/benchmarks/gpu.sh RESULT.json` (`--list`), then
`python -m tests.benchmarks.gpu_page RESULT.json > docs/gpu.md`.
"""
_BY_AUTOGRAD = "Autograd computed the updates; by kernels, which compute them since, they are predicted only."


class Table(NamedTuple):
    """A section.

    Attributes:
        title: its heading.
        head: of the columns.
        rows: of cells.
        measured: columns at the right that are measured.
        parts: of `gpu.sh`, one for each row, which measure it.
    """

    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    measured: int
    parts: list[str]

    def text(self) -> str:
        """Returns the section, which has the rows that are measured; empty if none is."""
        rows = [cells for cells in self.rows if not self._lacks(cells)]
        if not rows:
            return ""
        lines = [f"## {self.title}", "", f"| {' | '.join(self.head)} |", f"|{'---|' * len(self.head)}"]
        return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in rows)]) + "\n"

    def missing(self) -> list[str]:
        """Returns the parts that would measure the rows which are missing."""
        pairs = zip(self.rows, self.parts, strict=True)
        return [part for cells, parts in pairs if self._lacks(cells) for part in parts.split(",")]

    def _lacks(self, cells: tuple[str, ...]) -> bool:
        return all(cell == _NOTHING for cell in cells[-self.measured :])


def page(result: Mapping[str, Any]) -> str:
    """Returns the page for what was found; of a dry run it takes nothing."""
    found = {} if result.get("dry_run") else result
    tables = (
        *(_updates(found), _steps(found), _peers(found), _kernels(found)),
        *(_seeds(found), _four(found), _memory(found), _truths(found)),
    )
    sections = [_HEAD, f"{_where(found)}{_verdict(found)}\n", *(table.text() for table in tables)]
    missing = dict.fromkeys(part for table in tables for part in table.missing())
    if missing:
        names = ",".join(missing)
        sections.append(f"What is missing, `gpu.sh --only {names} RESULT.json` measures.\n")
    return "\n".join(section for section in sections if section)


def _where(found: Mapping[str, Any]) -> str:
    device = found.get("machine", {}).get("device")
    if not device:
        return "No GPU has been measured yet."
    day = f" on {found['begun'][:10]}" if "begun" in found else ""
    how = "" if _by_kernels(found) else f" {_BY_AUTOGRAD}"
    return f"Measured{day}: {device['name']}, PyTorch {device['torch']}.{how}"


def _by_kernels(found: Mapping[str, Any]) -> bool:
    return any(one.get("path", "").startswith("kernels") for one in _findings(found, "speed"))


def _verdict(found: Mapping[str, Any]) -> str:
    """Says in how many cases a measured speed is below the predicted ones, and which peer is ahead."""
    pairs = [(each, _rate(found, each)) for each in UPDATES]
    pairs += [(each, found.get(each.part, {}).get("steps_per_second")) for each in STEPS]
    way = _by_kernels(found)
    texts = [(each.by_kernels if way else each.by_autograd, seen) for each, seen in pairs if seen is not None]
    known = [(int(text.split("-")[0].replace(",", "")), seen) for text, seen in texts]
    below = sum(seen < predicted for predicted, seen in known)
    words = [f"{below} of {len(known)} speeds are below their prediction."] if below else []
    ours, *others = _peer_rates(found)
    for (name, *_), rates in zip(PEERS[1:], others, strict=True):
        for batch, rate in rates.items():
            if rate > ours.get(batch, rate):
                words.append(
                    f"At a batch of {batch:,}, one peer is ahead: {name}, {rate / ours[batch]:.2f}x."
                )
    return "".join(f" {each}" for each in words)


def _updates(found: Mapping[str, Any]) -> Table:
    before = found.get("base")
    head: tuple[str, ...] = ("recipe", "precision", "predicted", "by kernels", "measured")
    rows: list[tuple[str, ...]] = [(*each, _number(_rate(found, each))) for each in UPDATES]
    if before:
        head = (*head, "base")
        rows = [(*row, _number(_rate(before, each))) for row, each in zip(rows, UPDATES, strict=True)]
    title = "Updates per second, as a CUDA graph"
    return Table(title, head, rows, len(head) - 4, [_part(each) for each in UPDATES])


def _part(each: Update) -> str:
    return "speed" if each.recipe == "guide-mt10" else "paper"


def _rate(found: Mapping[str, Any], each: Update) -> float | None:
    """Returns the captured updates a second."""
    how = each.precision, GPU.batches[each.recipe]
    seen = [
        one["captured"]
        for one in _findings(found, _part(each))
        if (one["precision"], one["batch"]) == how and "captured" in one
    ]
    return seen[0] if seen else None


def _steps(found: Mapping[str, Any]) -> Table:
    alone = {one["num_envs"]: one["env_steps_per_second"] for one in _findings(found, "environments")}
    before = found.get("base")
    head: tuple[str, ...] = ("recipe", "environments", "predicted", "by kernels", "measured")
    head += ("GPU busy", "environments alone", *(("base",) if before else ()))
    rows = []
    for each in STEPS:
        run = found.get(each.part, {})
        row = [each.recipe, str(each.environments), each.by_autograd, each.by_kernels]
        row += [_number(run.get("steps_per_second")), _busy(run.get("last") or {})]
        row += [_number(alone.get(each.environments))]
        row += [_number(before.get(each.part, {}).get("steps_per_second"))] if before else []
        rows.append(tuple(row))
    title = "Environment steps per second of a run, tf32"
    return Table(title, head, rows, len(head) - 4, [each.part for each in STEPS])


def _peers(found: Mapping[str, Any]) -> Table:
    """The lab guides' networks, the same data, one update at a time, by whoever computes it."""
    rates = _peer_rates(found)
    rows = [
        (text, *(_beside(seen.get(batch), rates[0].get(batch)) for batch in GPU.batches.values()))
        for (text, *_), seen in zip(PEERS, rates, strict=True)
    ]
    title = "Updates per second of others, and over ours, tf32"
    head = ("implementation", *(f"batch of {batch:,}" for batch in GPU.batches.values()))
    return Table(title, head, rows, len(GPU.batches), [part for _, part, _ in PEERS])


def _peer_rates(found: Mapping[str, Any]) -> list[dict[int, float]]:
    """Returns updates a second by batch, of each peer; the first is ours."""
    return [
        {
            one["batch"]: one[key]
            for one in _findings(found, part)
            if one["precision"] == "tf32" and key in one
        }
        for _, part, key in PEERS
    ]


def _beside(value: float | None, ours: float | None) -> str:
    ratio = f" ({value / ours:.2f}x)" if value and ours else ""
    return f"{_number(value)}{ratio}"


def _kernels(found: Mapping[str, Any]) -> Table:
    """What profiles have counted of an update by itself and of one in a run, acting and copies included."""
    seen: dict[str, Mapping[str, Any]] = {
        "captured" if one["captured"] else "eager": one
        for one in _findings(found, "profile")
        if "count" in one
    }
    seen |= {f"{one['num_envs']} environments": one for one in _findings(found, "run_profile")}
    numbers = ("count", "microseconds", "gap_microseconds")
    rows = [
        (text, *(_number(seen.get(text, {}).get(name)) for name in numbers))
        for text in ("eager", "captured", "10 environments", "30 environments")
    ]
    title = "Kernels of an update, alone and in a run"
    head = ("", "kernels", "µs in them", "µs between them")
    parts = ["run_profile" if text.endswith("environments") else "profile" for text, *_ in rows]
    return Table(title, head, rows, 3, parts)


def _seeds(found: Mapping[str, Any]) -> Table:
    seen = {(one["recipe"], one["seeds"]): one["updates_per_second"] for one in _findings(found, "seeds")}
    rows = [(name, *(_number(seen.get((name, seeds))) for seeds in GPU.seeds)) for name in GPU.batches]
    title = "Updates per second of seeds in one graph, added up, tf32"
    head = ("recipe", *(f"{seeds} seed{'s' if seeds > 1 else ''}" for seeds in GPU.seeds))
    return Table(title, head, rows, len(GPU.seeds), ["seeds"] * len(rows))


def _four(found: Mapping[str, Any]) -> Table:
    """Whole runs of 10 environments each, all of them added up."""
    rates = []
    for _, part in FOUR:
        run = (_findings(found, part) or [found.get(part, {})])[0]
        rates.append(run.get("steps_per_second"))
    rows = [(text, _beside(rate, rates[0])) for (text, _), rate in zip(FOUR, rates, strict=True)]
    title = "Environment steps per second of four runs, added up"
    return Table(title, ("", "measured"), rows, 1, [part for _, part in FOUR])


def _memory(found: Mapping[str, Any]) -> Table:
    rows = []
    for name, part in (("guide-mt10", "mt10"), ("mclean2025-mt10", "paper_mt10")):
        sizes = Sizes(recipe.load(name), precision="tf32")
        parts = (*replay_parts(sizes), *learner_parts(sizes), *library_parts(sizes))
        used = (found.get(part, {}).get("last") or {}).get("gpu/memory_bytes")
        seen = f"{used / 2**30:.2f}" if used else _NOTHING
        rows.append((name, f"{sum(each.bytes for each in parts) / 2**30:.2f}", seen))
    head = ("recipe", "`plan`, set afterwards", "measured")
    return Table("GPU memory while training, GiB", head, rows, 1, ["mt10", "paper_mt10"])


def _truths(found: Mapping[str, Any]) -> Table:
    overlap = _findings(found, "overlap")
    equality = [one["max_relative_difference"] for one in _findings(found, "equality")]
    resume, long = found.get("resume", {}), found.get("two_million", {})
    resumed, success = found.get("two_million_resumed", {}), long.get("success")
    rows = [
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
            _same(resume.get("whole"), resume.get("resumed")),
        ),
        ("SHA-256 of such a run to 2M steps", "the same", _same(long.get("sha256"), resumed.get("sha256"))),
        ("tests that need a GPU", "all pass", found.get("tests", {}).get("last_line") or _NOTHING),
        (
            "success rate of guide-mt10 after 2M steps",
            "not predicted",
            _NOTHING if success is None else f"{success:.1%}",
        ),
    ]
    parts = ["overlap", "equality", "resume", "two_million,two_million_resumed", "tests", "two_million"]
    return Table("Correctness", ("question", "predicted", "measured"), rows, 1, parts)


def _same(one: str | None, other: str | None) -> str:
    if one is None or other is None:
        return _NOTHING
    return "the same" if one == other else "different"


def _findings(found: Mapping[str, Any], part: str) -> list[dict[str, Any]]:
    """Returns the lines that a part has found."""
    return list(found.get(part, {}).get("findings") or ())


def _busy(line: Mapping[str, Any]) -> str:
    share = line.get("gpu/utilization")
    return _NOTHING if share is None else f"{share:.0%}"


def _number(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:,.0f}"


def main() -> None:
    """Print the page."""
    result = read(Path(sys.argv[1])) if len(sys.argv) > 1 else {}
    sys.stdout.write(page(result))


if __name__ == "__main__":
    main()
