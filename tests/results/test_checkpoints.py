"""Which of a pulled run's models is meant."""

import json
from pathlib import Path

import pytest

from clusterkit.errors import RunError
from clusterkit.results.checkpoints import best_step, choose, models_here
from clusterkit.results.metrics import MetricRow


def rows(*rates: float) -> list[MetricRow]:
    return [
        MetricRow("eval", 10 * n, 0.0, 0, {"success/mean": rate}) for n, rate in enumerate(rates, start=1)
    ]


def checkpoint(run: Path, step: int, serial: int, *, whole: bool = True) -> None:
    folder = run / "checkpoints" / f"step-{step:012}"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"step": step, "serial": serial}))
    if whole:
        (folder / "model.pt").touch()


def test_nothing_is_here(tmp_path: Path) -> None:
    checkpoint(tmp_path, 10, 1, whole=False)
    with pytest.raises(RunError, match="no checkpoint of r on this machine") as caught:
        choose("r", models_here(tmp_path, []), [], "last")
    assert "--checkpoints last" in (caught.value.hint or "")


def test_last_is_the_final_model_or_what_was_saved_last(tmp_path: Path) -> None:
    checkpoint(tmp_path, 30, 1)
    checkpoint(tmp_path, 20, 2)  # of a run that went on from an older one
    found = rows(0.1, 0.5)
    assert choose("r", models_here(tmp_path, found), found, "last")[0].step == 20
    (tmp_path / "checkpoints" / "final_model.pt").touch()
    model, said = choose("r", models_here(tmp_path, found), found, "last")
    assert (model.path.name, model.step, said) == ("final_model.pt", 20, None)


def test_best_by_its_own_evaluation(tmp_path: Path) -> None:
    for serial, step in enumerate((10, 20, 25)):
        checkpoint(tmp_path, step, serial)
    found = rows(0.4, 0.2, 0.9)
    model, said = choose("r", models_here(tmp_path, found), found, "best")
    assert model.step == 10
    assert said == (
        "best of 2 here: step 10, 40.0% in training; 90.0% was at step 30, whose checkpoint is not on "
        "this machine"
    )


def test_best_by_the_return_where_no_evaluation_knows_success(tmp_path: Path) -> None:
    for serial, step in enumerate((10, 20)):
        checkpoint(tmp_path, step, serial)
    found = [
        MetricRow("eval", step, 0.0, 0, {"return/mean": mean}) for step, mean in ((10, -900.0), (20, -160.25))
    ]
    model, said = choose("r", models_here(tmp_path, found), found, "best")
    assert (model.step, said) == (20, "best of 2 here: step 20, return -160.2 in training")
    (tmp_path / "metrics.jsonl").write_text(
        "".join(json.dumps({"kind": "eval", "step": row.step} | row.values) + "\n" for row in found)
    )
    assert best_step(tmp_path / "metrics.jsonl") == 20
    with (tmp_path / "metrics.jsonl").open("a") as lines:
        lines.write('{"kind": "eval", "step": 5, "success/mean": 0.1, "return/mean": -950.0}\n')
    assert best_step(tmp_path / "metrics.jsonl") == 5


def test_best_of_what_was_never_evaluated(tmp_path: Path) -> None:
    checkpoint(tmp_path, 15, 1)
    with pytest.raises(RunError, match="the best one is not known"):
        choose("r", models_here(tmp_path, rows(0.4)), rows(0.4), "best")
