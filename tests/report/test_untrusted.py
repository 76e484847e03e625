"""Run directories whose JSON holds what nobody expects: a page or one clear error, and no other end."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from clusterkit.cli.report import show_advice
from clusterkit.errors import ClusterkitError
from clusterkit.report.advice import advise
from clusterkit.report.evidence import read_evidence
from clusterkit.report.groups import group_runs, read_runs
from clusterkit.report.measured import measure
from clusterkit.report.page import render
from clusterkit.results.logs.run_logs import read_run
from clusterkit.runs.run_dir import newest_request, read_run_dir
from clusterkit.runs.spec import RunSpec
from clusterkit.sharing.comparison import ComparedCode, as_json, compare
from clusterkit.sharing.description import describe
from tests.results.run_dirs import make_run_dir
from tests.sampling import sampled

ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**18, 10**400, 1e300, float("inf"), float("nan")),
    *("", "x", "\ud800", "--output=evil", [], [1], [{}], {}, {"a": 1}),
)


def spoilt(value: Any, chance: random.Random, share: float) -> Any:
    if chance.random() < share:
        return chance.choice(ODD)
    if isinstance(value, dict):
        return {
            key: spoilt(each, chance, share) for key, each in value.items() if chance.random() > share / 2
        }
    return [spoilt(each, chance, share) for each in value] if isinstance(value, list) else value


def spoil(folder: Path, chance: random.Random) -> None:
    share = chance.choice((0.02, 0.1))
    for path in sorted(folder.rglob("*.json")):
        path.write_text(json.dumps(spoilt(json.loads(path.read_text()), chance, share)))
    metrics = folder / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    metrics.write_text("".join(json.dumps(spoilt(line, chance, share / 5)) + "\n" for line in lines))


@pytest.mark.slow
@pytest.mark.parametrize("seed", sampled(range(60), 15))
def test_a_report_a_comparison_and_an_export(tmp_path: Path, seed: int) -> None:
    whole = make_run_dir(tmp_path, "whole", seed=1)
    folder = make_run_dir(
        tmp_path, "spoilt", seed=2, machine={"gpu": 0.2, "time/act": 0.1}, sweep={"lr": "1"}
    )
    spoil(folder, random.Random(seed))

    def reported() -> None:
        groups = group_runs(read_runs([whole, folder]))
        advice = advise(
            {group.label: [measure(read_evidence(run)) for run in group.runs] for group in groups}
        )
        render(groups, advice, now=datetime.now(UTC), folder=tmp_path)
        show_advice(advice)

    def compared() -> None:
        sides = []
        for path in (whole, folder):
            run, rows = read_run_dir(path), read_run(path, own=False).rows
            request = newest_request(path)
            sides.append(describe(run.document, str(path), request=request, rows=rows, attempts=run.attempts))
        json.dumps(as_json(compare(*sides, ComparedCode())))

    def exported() -> None:
        run = read_run_dir(folder)
        assert run.ended in (True, False)
        spec = RunSpec.recorded(run.document, str(folder))
        assert isinstance(spec.code, str)
        assert all(isinstance(tree, str) for tree in spec.trees)
        assert spec.stored_image is None or spec.stored_image.digest

    for work in (reported, compared, exported):
        with suppress(ClusterkitError):
            work()
