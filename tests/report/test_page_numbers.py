"""The page's numbers, computed once more from the files by code of this test's own."""

from __future__ import annotations

import html
import json
import math
import random
import re
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import pytest

from clusterkit.commands.report import report

TASKS = ("reach-v3", "push-v3", "door-open-v3")
T_975 = {2: 4.30265, 3: 3.18245}
"""Student's t, by degrees of freedom."""
BEGAN = 1_790_000_000.0


def write_run(results: Path, name: str, seed: int, *, rate: float, busy: float, requeued: bool) -> Path:
    """A run with noise in everything; a requeued one repeats a stretch and then goes on differently."""
    noise = random.Random(f"{name}{seed}")
    folder = results / f"{name}-{seed}"
    spans = [(0, 0, 60_000), (1, 50_000, 100_000)] if requeued else [(0, 0, 100_000)]
    lines: list[str] = []
    now = BEGAN + 100 * seed
    for attempt, first, last in spans:
        start = now
        lines.append(
            line("run", first, now, attempt, num_envs=10, precision="tf32", processors=8, device="GPU")
        )
        for step in range(first + 5_000, last + 1, 5_000):
            now += 5_000 / rate * noise.uniform(0.5, 2.0)
            learn = noise.uniform(0.2, 0.5)
            lines.append(
                line(
                    "train",
                    step,
                    now,
                    attempt,
                    **{
                        "steps_per_second": noise.uniform(0.5, 2.0) * rate,
                        "time/learn": learn,
                        "time/env": 0.9 - learn,
                        "time/act": 0.06,
                        "time/evaluate": 0.0,
                        "time/checkpoint": 0.0,
                        "time/other": 0.04,
                        "gpu/utilization": busy * noise.uniform(0.5, 1.5),
                        "gpu/memory_bytes": noise.randrange(1 << 31, 1 << 32),
                        "cpu/share": noise.uniform(0.1, 0.9),
                        "memory/rss_bytes": noise.randrange(1 << 31, 1 << 33),
                        "updates_skipped": 0,
                    },
                )
            )
            if step % 20_000 == 0:
                rates = {f"success/{task}": noise.randrange(51) / 50 for task in TASKS}
                values = {**rates, "success/mean": mean(rates.values())}
                values |= {f"return/{task}": noise.uniform(0, 1000) for task in TASKS}
                values |= {"return/mean": noise.uniform(0, 1000), "episodes": 50, "seconds": 1.0}
                values["diagnostics/dormant/critic"] = noise.uniform(0, 0.5)
                lines.append(line("eval", step, now, attempt, **values))
        lines.append('{"kind": "eval", "step": 99')  # a line that the end of the attempt cut short
        put(
            folder / f"attempts/{attempt}/start.json",
            {"attempt": attempt, "job_id": "1", "node": "n", "started": start},
        )
        why = "completed" if last == 100_000 else "requeue"
        put(folder / f"attempts/{attempt}/exit.json", {"code": 0, "signal": None, "why": why, "ended": now})
        now += 300
    profile = {"name": name, "gpu": "a40", "gpus": 1, "cpus": 8, "memory": 64 << 30, "time": 36_000}
    document = {"schema": 1, "run_id": folder.name, "name": name, "seed": seed, "total_steps": 100_000}
    document |= {"cluster": "c", "profile": profile, "time_limit_seconds": 36_000}
    document |= {"recipe": {"name": "r", "values": {"tasks": list(TASKS)}, "modified": {}}}
    put(folder / "run.json", document)
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def line(kind: str, step: int, time: float, attempt: int, **values: Any) -> str:
    return json.dumps({"kind": kind, "step": step, "time": time, "attempt": attempt, **values})


def put(path: Path, value: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


class Truth:
    """What the files say, read as plainly as can be."""

    def __init__(self, folder: Path) -> None:
        self.rows: list[dict[str, Any]] = []
        for text in (folder / "metrics.jsonl").read_text().splitlines():
            try:
                self.rows.append(json.loads(text))
            except ValueError:
                continue
        self.evals = self._newest("eval")
        self.trains = self._newest("train")
        self.final = self.evals[max(self.evals)]
        spans = [
            json.loads((path / "exit.json").read_text())["ended"]
            - json.loads((path / "start.json").read_text())["started"]
            for path in folder.glob("attempts/*")
        ]
        self.running = sum(spans)

    def _newest(self, kind: str) -> dict[int, dict[str, Any]]:
        newest: dict[int, dict[str, Any]] = {}
        for row in sorted((row for row in self.rows if row["kind"] == kind), key=lambda row: row["attempt"]):
            newest[row["step"]] = row
        return newest

    def over_time(self, key: str) -> float:
        """The mean over wall time, of all attempts."""
        total = weight = 0.0
        for attempt in {row["attempt"] for row in self.rows}:
            mine = [row for row in self.rows if row["attempt"] == attempt and row["kind"] in ("run", "train")]
            for index in range(1, len(mine)):
                seconds = mine[index]["time"] - mine[index - 1]["time"]
                total += seconds * mine[index][key]
                weight += seconds
        return total / weight

    def highest(self, key: str) -> float:
        return max(row[key] for row in self.rows if row["kind"] == "train")


def middle(values: list[float]) -> float:
    """The mean without the lowest and the highest quarter."""
    ordered = sorted(values)
    cut = len(values) // 4
    return mean(ordered[cut : len(ordered) - cut])


def student(values: list[float]) -> tuple[float, float]:
    half = T_975[len(values) - 1] * stdev(values) / math.sqrt(len(values))
    return max(0.0, mean(values) - half), min(1.0, mean(values) + half)


def rows_of(page: str, heading: str) -> dict[str, list[str]]:
    """The cells of the first table behind a heading, by their first cell."""
    table = page.split(f">{heading}</h2>", 1)[1].split("<tbody>", 1)[1].split("</tbody>", 1)[0]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in table.split("</tr>")]
    plain = [
        [" ".join(html.unescape(re.sub(r"<[^>]+>", "", cell)).replace("\u2013", "-").split()) for cell in row]
        for row in rows
    ]
    return {row[0]: row[1:] for row in plain if row}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[Truth]], str]:
    results = tmp_path_factory.mktemp("results")
    kinds = {"slow": (400.0, 0.2, (1, 2, 3)), "quick": (900.0, 0.6, (1, 2, 3, 4))}
    folders = {
        name: [write_run(results, name, seed, rate=rate, busy=busy, requeued=seed == 2) for seed in seeds]
        for name, (rate, busy, seeds) in kinds.items()
    }
    runs = [folder for those in folders.values() for folder in those]
    with pytest.MonkeyPatch.context() as without:
        for name in ("write_curves", "write_machine"):
            without.setattr(f"clusterkit.report.pictures.{name}", lambda *_: [])
        report(runs, results / "out", now=datetime(2026, 1, 2, tzinfo=UTC))
    truth = {name: [Truth(folder) for folder in those] for name, those in folders.items()}
    return truth, (results / "out" / "report.html").read_text()


def percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f}%"


@pytest.mark.slow
def test_final_evaluation(made: tuple[dict[str, list[Truth]], str]) -> None:
    truth, page = made
    table = rows_of(page, "Final evaluation")
    assert list(table) == [*TASKS, "mean"]
    for name in table:
        for place, runs in enumerate(truth.values()):
            values = [run.final[f"success/{name}"] for run in runs]
            low, high = student(values)
            assert table[name][2 * place] == f"{percent(mean(values))} {100 * low:.0f}-{100 * high:.0f}%"
            returns = mean(run.final[f"return/{name}"] for run in runs)
            assert float(table[name][2 * place + 1]) == pytest.approx(returns, rel=1e-3)


def test_comparison(made: tuple[dict[str, list[Truth]], str]) -> None:
    truth, page = made
    table = rows_of(page, "Comparison")
    assert list(table) == ["slow", "quick"]
    first = [run.final["success/mean"] for run in truth["slow"]]
    for name, runs in truth.items():
        count, success, iqm, against, speed, time, gpu, dormant = table[name]
        means = [run.final["success/mean"] for run in runs]
        assert count == str(len(runs))
        assert success.split()[0] == percent(mean(means))
        scores = [run.final[f"success/{task}"] for run in runs for task in TASKS]
        assert iqm.split()[0] == percent(middle(scores))
        low, high = map(float, iqm.split()[1].removesuffix("%").split("-"))
        assert low <= 100 * middle(scores) + 0.5
        assert high >= 100 * middle(scores) - 0.5
        assert high - low > 5
        if name != "slow":
            assert against.startswith(f"{100 * (mean(means) - mean(first)):+.1f} points")
        rate = mean(median(row["steps_per_second"] for row in run.trains.values()) for run in runs)
        assert speed == f"{rate:,.0f}"
        minutes, seconds = divmod(round(mean(run.running for run in runs)), 60)
        assert time == f"{minutes}m {seconds:02}s"
        assert gpu == percent(mean(run.over_time("gpu/utilization") for run in runs), 0)
        assert dormant == percent(mean(run.final["diagnostics/dormant/critic"] for run in runs), 0)


def test_cards(made: tuple[dict[str, list[Truth]], str]) -> None:
    truth, page = made
    shown = re.findall(r'<span class="big">([\d.]+%)</span>', page)
    assert shown == [percent(mean(run.final["success/mean"] for run in runs)) for runs in truth.values()]


def test_time_split(made: tuple[dict[str, list[Truth]], str]) -> None:
    truth, page = made
    part = page.split("Where the loop's time went".replace("'", "&#39;"), 1)[1].split("</figure>", 1)[0]
    shares = re.findall(r"<title>(\w+): ([\d.]+%)</title>", part)
    runs = [run for those in truth.values() for run in those]
    bars = [dict(shares[start : start + 4]) for start in range(0, len(shares), 4)]
    assert len(bars) == len(runs)
    for bar, run in zip(bars, runs, strict=True):
        for name in ("learn", "env", "act", "other"):
            assert bar[name] == percent(run.over_time(f"time/{name}"), 0)


def test_requested_against_used(made: tuple[dict[str, list[Truth]], str]) -> None:
    truth, page = made
    for name, runs in truth.items():
        advice = page.split('<h2 id="resources-and-advice"', 1)[1].replace("</h3>", "</h2>")
        table = rows_of(advice, name)
        memory = max(run.highest("memory/rss_bytes") for run in runs)
        assert table["memory"][:2] == ["64 GiB", f"{memory / 2**30:.1f} GiB, {memory / 2**36:.0%}"]
        enough = float(table["memory"][2].split()[0])
        assert 1.3 * memory <= enough * 2**30 < 1.3 * memory + 2**30
        assert table["memory"][3] == f'memory = "{enough:.0f}G"'
        longest = max(run.running for run in runs)
        minutes = int(re.findall(r'time = "(\d+)m"', table["time"][3])[0])
        assert 1.25 * longest <= 60 * minutes <= 1.25 * longest + 300


def test_a_point_of_each_curve(made: tuple[dict[str, list[Truth]], str]) -> None:
    """Each mark says its value; that of the speed at the run's own time."""
    truth, page = made
    for name, runs in truth.items():
        for step in (20_000, 40_000, 80_000, 100_000):
            value = mean(run.evals[step]["success/mean"] for run in runs)
            low, high = student([run.evals[step]["success/mean"] for run in runs])
            band = f" ({percent(low, 0)} to {percent(high, 0)})" if len(runs) > 3 else ""
            assert f"<title>{name}: {percent(value, 0)}{band} at {step:,} steps</title>" in page
        run = runs[0]
        seconds = round(run.rows[1]["time"] - run.rows[0]["time"])
        assert re.search(
            rf"<title>{name}: {percent(run.rows[1]['cpu/share'], 0)} after {seconds}s</title>", page
        )
