"""The report command: pictures, the page, and that its numbers are those of metrics.jsonl."""

from __future__ import annotations

import json
import re
import statistics
import struct
import xml.etree.ElementTree as ET
from collections.abc import Callable
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from matplotlib.image import imread

from clusterkit.cli.report import print_json, show_reported
from clusterkit.commands.report import Reported, advise_runs, find_pulled, report, report_folder
from clusterkit.errors import RunError
from clusterkit.forecast.bench import PROGRAM
from clusterkit.report.charts import learning, own
from clusterkit.report.groups import group_runs, read_runs
from clusterkit.runs.ledger import Ledger
from tests.results.run_dirs import TASKS, evaluation, make_run_dir, write_metrics

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
MANY = [f"task-{number}-v3" for number in range(50)]


class Page(HTMLParser):
    """The tags of a page and the text of its cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.titles: list[str] = []
        """What a pointer shows, and the page's own."""
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "title":
            self.titles.append("")
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.open[-1:] == ["title"]:
            self.titles[-1] += data
        if self.open[-1:] == ["td"] or self.open[-2:-1] == ["td"]:
            self.rows[-1][-1] += data


def write(folders: list[Path], out: Path) -> tuple[Reported, Page, str]:
    reported = report(folders, out, now=NOW)
    text = (out / "report.html").read_text()
    return reported, Page(text), text


def cells(page: Page) -> list[list[str]]:
    """The rows of the page's tables, with single spaces."""
    return [[" ".join(cell.split()) for cell in row] for row in page.rows]


@pytest.fixture
def page_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spares a test that looks at the page the second that the pictures take."""
    for name in ("write_curves", "write_machine"):
        monkeypatch.setattr(f"clusterkit.report.pictures.{name}", lambda *_: [])


@pytest.mark.slow
def test_files_and_final_row_are_the_same_for_the_same_runs(tmp_path: Path) -> None:
    folder = make_run_dir(tmp_path, "demo-1")
    reported, page, _ = write([folder], tmp_path / "out")
    names = ["curves.png", "curves.svg", "machine.png", "machine.svg", "report.html"]
    assert [path.name for path in reported.files] == names
    ET.parse(tmp_path / "out" / "machine.svg")
    png = (tmp_path / "out" / "curves.png").read_bytes()
    width, height = struct.unpack(">II", png[16:24])
    assert png.startswith(b"\x89PNG")
    assert width >= 1200
    assert height >= 500
    ET.parse(tmp_path / "out" / "curves.svg")
    (row,) = reported.rows
    assert (row.group, row.runs, row.step) == ("local-demo", 1, 256_000)
    assert page.open == []
    report([folder], tmp_path / "again", now=NOW)
    for name in names:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.usefixtures("page_only")
def test_without_success_rates_the_return_is_told(tmp_path: Path) -> None:
    folders = [make_run_dir(tmp_path, f"demo-{seed}", seed=seed) for seed in (1, 2, 3)]
    for folder, value in zip(folders, (40.0, 50.0, 60.0), strict=True):
        row = {"kind": "eval", "step": 200, "time": 1.0, "attempt": 0, "episodes": 10}
        write_metrics(folder, [row | {"return/x": value, "return/mean": value}])
    reported, page, _ = write(folders, tmp_path / "out")
    (row,) = reported.rows
    assert (row.result.title, row.result.point.value) == ("return", pytest.approx(50.0))
    assert row.result.point.interval.low == pytest.approx(50 - 4.303 * 10 / 3**0.5, rel=1e-3)
    assert "mean return at 200 steps" in page.text
    assert "50 25.16 to 74.84" in " ".join(page.text.split())


@pytest.mark.usefixtures("page_only")
def test_facts_of_a_run(tmp_path: Path) -> None:
    folder = make_run_dir(tmp_path, "demo-1", modified={"gamma": [0.99, 0.9]}, restarted_at=96_000)
    _, page, text = write([folder], tmp_path / "out")
    code = "main@0123456789 with uncommitted changes"
    for fact in ("datalab", "local-demo", "modified: gamma: 0.99 → 0.9", code):
        assert fact in page.text
    assert '<dd class="warn">modified' in text
    attempts = [row for row in page.rows if len(row) == 6 and row[0] in ("0", "1")]
    assert [row[1:] for row in attempts] == [
        ["4711", "gpu00", "2026-01-02 03:04:05", "1h 02m", "requeue, exit code 85"],
        ["4712", "gpu01", "2026-01-02 04:10:45", "1h 02m", "completed"],
    ]
    assert "demo-1: attempt 1" in page.text


@pytest.mark.usefixtures("page_only")
def test_a_recipe_beyond_the_paper_says_so(tmp_path: Path) -> None:
    folder = make_run_dir(tmp_path, "demo-1", recipe="strong-mt10", label="beyond-paper")
    _, page, _ = write([folder], tmp_path / "out")
    assert "strong-mt10 (beyond-paper)" in page.text


@pytest.mark.usefixtures("page_only")
def test_the_page_needs_no_network(tmp_path: Path) -> None:
    _, page, text = write([make_run_dir(tmp_path, "demo-1")], tmp_path / "out")
    assert not re.search(r"https?:|//|url\(|@import|src=|href=\"(?!#|\.\./)", text)
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "link", "img", "iframe", "object"})


@pytest.mark.slow
def test_names_cannot_break_the_page_or_the_pictures(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script> \"'& --> $\\frac{x$ {{ 7*7 }}"
    written, evil = evil + " \ufffd[31m\ufffd", evil + " \x1b[31m\u202e"
    folder = make_run_dir(
        tmp_path,
        "demo-1",
        name=evil,
        recipe=evil,
        tasks=[evil, "plain"],
        values={evil: [evil]},
        profile={"gpu": evil, "cpus": 2},
        header={"device": evil, "precision": evil, "num_envs": 4, "processors": 2},
        machine={"cpu/share": 0.1, "gpu/utilization": 0.1, "time/env": 0.9, "memory/rss_bytes": 1e9},
    )
    (folder / "slurm.log").write_text(f"oom_kill {evil} `{evil}`\n")
    document = json.loads((folder / "run.json").read_text())
    document |= {
        "run_id": evil,
        "seed": evil,
        "created": evil,
        "cluster": evil,
        "argv": [evil],
        "versions": {evil: evil},
    }
    (folder / "run.json").write_text(json.dumps(document))
    reported, page, text = write([folder], tmp_path / "out")
    assert "script" not in {tag for tag, _ in page.tags}
    assert all("onload" not in attributes for _, attributes in page.tags)
    assert "{{ 7*7 }}" in page.text
    assert page.open == []
    assert written in page.text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert "<script" not in text
    for drawn in reported.files:
        if drawn.suffix == ".svg":
            ET.parse(drawn)


@pytest.mark.slow
@pytest.mark.parametrize(
    "tasks",
    [
        TASKS[:1],
        pytest.param(MANY[:7], marks=pytest.mark.slow),
        pytest.param(MANY, marks=pytest.mark.exhaustive),
    ],
)
def test_any_number_of_tasks(tmp_path: Path, tasks: list[str]) -> None:
    folders = [make_run_dir(tmp_path, f"r{seed}", tasks=tasks, seed=seed, evaluations=4) for seed in (1, 2)]
    _, page, text = write(folders, tmp_path / "out")
    assert page.open == []
    assert set(tasks) <= {row[0] for row in page.rows if row}
    assert text.count('<figure class="small">') == (len(tasks) if len(tasks) > 6 else 0)


@pytest.mark.slow
@pytest.mark.usefixtures("page_only")
def test_the_paper_beside_ours(tmp_path: Path) -> None:
    values = {"tasks": ["MT10"], "actor_hidden": [1024] * 3, "critic_hidden": [1024] * 3}
    folders = [make_run_dir(tmp_path, f"r{seed}", seed=seed, values=values) for seed in (1, 2, 3, 4)]
    _, page, _ = write(folders, tmp_path / "out")
    last = [json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1]) for folder in folders]
    middle = sorted(row["success/mean"] for row in last)[1:3]
    (row,) = [row for row in page.rows if "20,000,000 steps" in row]
    assert row[1].split()[0] == f"{100 * statistics.fmean(middle):.1f}%"
    assert row[2:5] == ["256,000 steps", "87.0%", "20,000,000 steps"]
    _, other, _ = write([make_run_dir(tmp_path, "own")], tmp_path / "out2")
    assert "Beside the paper" not in other.text


@pytest.mark.usefixtures("page_only")
def test_attempts_and_use_over_time(tmp_path: Path) -> None:
    machine = {"gpu/utilization": 0.25, "cpu/share": 0.5, "time/learn": 0.75, "time/env": 0.25}
    folder = make_run_dir(tmp_path, "demo-1", machine=machine, restarted_at=96_000)
    _, page, text = write([folder], tmp_path / "out")
    first = page.titles.index("attempt 0: 1h 02m, requeue")
    assert page.titles[first : first + 7] == [
        "attempt 0: 1h 02m, requeue",
        "waited 4m 37s",
        "attempt 1: 1h 02m, completed",
        "seed 1, 2 attempts",
        "learn: 75%",
        "env: 25%",
        "seed 1",
    ]
    assert "seed 1: 25% after 1h 06m" not in text  # nothing ran between the attempts
    assert re.search(r"seed 1: 25% after 1h 0[789]m", page.text)
    assert "Work lost between attempts" in page.text


@pytest.mark.usefixtures("page_only")
def test_a_cancelled_attempt_has_not_failed(tmp_path: Path) -> None:
    attempt = make_run_dir(tmp_path, "demo-1") / "attempts/0"
    ended = json.loads((attempt / "exit.json").read_text())
    (attempt / "exit.json").write_text(json.dumps({**ended, "why": "signalled", "signal": "TERM"}))
    (attempt / "cancel.json").write_text("{}")
    _, page, text = write([attempt.parents[1]], tmp_path / "out")
    assert any(re.fullmatch("attempt 0: .*, cancelled", title) for title in page.titles)
    assert "failed" not in text


@pytest.mark.slow
def test_one_evaluation_and_a_run_without(tmp_path: Path) -> None:
    folder = make_run_dir(tmp_path, "demo-1")
    write_metrics(folder, [evaluation(0, {"x": 0.0})])
    empty = make_run_dir(tmp_path, "demo-2")
    (empty / "metrics.jsonl").unlink()
    reported, _, _ = write([folder, empty], tmp_path / "out")
    assert reported.left_out == ("demo-2",)
    reported, page, _ = write([empty], tmp_path / "out2")
    assert (reported.left_out, reported.rows[0].result) == ((), None)
    assert "No number was logged yet" in page.text
    assert reported.files == (
        tmp_path / "out2/machine.png",
        tmp_path / "out2/machine.svg",
        tmp_path / "out2/report.html",
    )


@pytest.mark.usefixtures("page_only")
def test_a_run_of_tune_is_no_training(tmp_path: Path) -> None:
    folder = make_run_dir(tmp_path, "demo-1")
    tune = make_run_dir(tmp_path, "tune-2", name="tune", recipe=None)
    document = json.loads((tune / "run.json").read_text())
    document["argv"] = [*PROGRAM, "--seconds", "60"]
    (tune / "run.json").write_text(json.dumps(document))
    reported, page, _ = write([folder, tune], tmp_path / "out")
    assert reported.left_out == ("tune-2",)
    assert len(reported.advice) == len(advise_runs([tune, folder])) == 1
    assert "tune" not in page.text
    for what in (lambda: report([tune], tmp_path / "out2", now=NOW), lambda: advise_runs([tune])):
        with pytest.raises(RunError, match="tune-2 measured settings") as refused:
            what()
        assert refused.value.hint == "`clusterkit tune tune-2` shows what it measured"


@pytest.fixture
def find(tmp_path: Path) -> Callable[..., list[str]]:
    def names(*wanted: str) -> list[str]:
        with Ledger(tmp_path / "ledger.sqlite3") as ledger:
            return [path.name for path in find_pulled(tmp_path / "results", wanted, ledger)]

    return names


def test_runs_are_found_by_name_beginning_or_path(tmp_path: Path, find: Callable[..., list[str]]) -> None:
    for run_id in ("demo-1", "demo-22", "other-1"):
        make_run_dir(tmp_path / "results", run_id)
    path = str(tmp_path / "results" / "demo-22")
    assert find("demo-1", "oth", path, "demo-1") == ["demo-1", "other-1", "demo-22"]
    with pytest.raises(RunError, match="may mean demo-1, demo-22"):
        find("demo")
    with pytest.raises(RunError, match="no run 'gone'"):
        find("gone")
    with pytest.raises(RunError):
        find("")


def test_a_group_is_found_by_its_id(tmp_path: Path, find: Callable[..., list[str]]) -> None:
    for run_id in ("demo-0-0", "demo-0-1"):
        make_run_dir(tmp_path / "results", run_id, group="demo-0")
    assert find("demo-0") == find("demo") == ["demo-0-0", "demo-0-1"]
    folders = [tmp_path / "results" / name for name in find("demo-0")]
    assert report_folder(tmp_path, folders) == tmp_path / "reports" / "demo-0"
    assert report_folder(tmp_path, folders[:1]) == folders[0] / "report"
    make_run_dir(tmp_path / "results", "demo-1")
    with pytest.raises(RunError, match=r"may mean demo-0 \(2 runs\), demo-1"):
        find("demo")


def own_run(tmp_path: Path, seed: int, rows: list[dict[str, Any]]) -> Path:
    folder = make_run_dir(tmp_path, f"own-{seed}", name="own", recipe=None, seed=seed)
    write_metrics(folder, rows)
    return folder


def losses(last: float) -> list[dict[str, Any]]:
    values = (4.0, 2.0, last)
    return [
        {"kind": "train", "step": step, "loss": loss, "accuracy": 1.0}
        for step, loss in zip((10, 20, 30), values, strict=True)
    ]


@pytest.mark.usefixtures("page_only")
def test_a_program_of_ones_own_is_told_by_its_first_number(tmp_path: Path) -> None:
    folders = [own_run(tmp_path, seed, losses(last)) for seed, last in ((1, 1.0), (2, 1.5), (3, 2.0))]
    reported, page, _ = write(folders, tmp_path / "out")
    (row,) = reported.rows
    assert (row.result.title, row.result.point.value, row.step) == ("loss", 1.5, 30)
    assert row.result.point.interval.low == pytest.approx(1.5 - 4.303 * 0.5 / 3**0.5, rel=1e-3)
    text = " ".join(page.text.split())
    assert "1.5 0.2579 to 2.742" in text
    assert "loss, mean of the last tenth of 30 steps; 95% Student interval over 3 runs" in text
    header = text[: text.index("1.5 0.2579")]
    assert "codemain@0123456789 with uncommitted changes" in header
    assert "submitted2026-01-02 03:04 UTC" in header
    assert "duration1h 02m a run" in header
    assert "machinedatalab:" in header
    rules = text[text.index("Training unstable") :]
    assert "Plasticity" not in rules
    assert "finite)fineevery number that was logged is finite" in rules
    assert "seed 1seed 2seed 3" in page.text.partition("Final values")[2]
    assert ["loss", "1.5 0.2579 to 2.742", "1", "1.5", "2"] in cells(page)
    assert ["accuracy", "1", "1", "1", "1"] in cells(page)
    row = report(folders, tmp_path / "out", now=NOW, metric="accuracy").rows[0]
    assert (row.result.title, row.result.point.value) == ("accuracy", 1.0)
    with pytest.raises(RunError, match="no run logs a number 'los'") as error:
        report(folders, tmp_path / "out", now=NOW, metric="los")
    assert "accuracy, loss" in (error.value.hint or "")


@pytest.mark.usefixtures("page_only")
def test_runs_of_several_seeds_that_are_equal_to_the_digit_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    timed = [{**row, "wall_time": 0.1 * place} for place, row in enumerate(losses(1.0))]
    folders = [
        own_run(tmp_path, 1, losses(1.0)),
        own_run(tmp_path, 2, losses(2.0)),
        own_run(tmp_path, 3, timed),
    ]
    reported, page, _ = write(folders, tmp_path / "out")
    names = [folder.name for folder in (folders[0], folders[2])]
    words = "are equal to the digit in every metric: seed probably never reached the program"
    assert [str(equal) for equal in reported.equal] == [f"the runs {', '.join(names)} {words}"]
    assert words in " ".join(page.text.split())
    show_reported(reported)
    assert words in " ".join(capsys.readouterr().err.split())
    reported, page, _ = write([folders[0], folders[2]], tmp_path / "out")
    assert reported.rows[0].result.point.interval is None
    reported, page, _ = write(folders[:2], tmp_path / "out")
    assert reported.equal == ()
    assert words not in " ".join(page.text.split())


@pytest.mark.parametrize("count", [2, 4])
def test_of_fewer_than_four_runs_the_runs_are_drawn_and_of_more_a_band(tmp_path: Path, count: int) -> None:
    folders = [own_run(tmp_path, seed, losses(seed)) for seed in range(count)]
    (chart, _) = own(group_runs(read_runs(folders)))
    means = [curve for curve in chart.curves if curve.label == "mean"]
    assert [curve.faint for curve in chart.curves].count(True) == (0 if count < 4 else count)
    assert all((point.interval is None) == (count < 4) for point in means[0].points[-1:])
    trained = [make_run_dir(tmp_path, f"demo-{seed}", seed=seed) for seed in range(count)]
    titles = {chart.title: chart for chart in learning(group_runs(read_runs(trained)))}
    assert any(title.startswith("Interquartile") for title in titles) == (count >= 4)
    labels = [curve.label for curve in titles["Evaluation success"].curves if curve.faint]
    assert labels == (["seed 0", "seed 1"] if count < 4 else [])


def test_groups_of_few_runs_show_them_in_their_colour(tmp_path: Path) -> None:
    folders = []
    for rate in ("0.1", "0.3"):
        for seed in (1, 2):
            made = make_run_dir(tmp_path, f"{rate}-{seed}", recipe=None, seed=seed, sweep={"lr": rate})
            write_metrics(made, losses(seed))
            folders.append(made)
    (chart, _) = own(group_runs(read_runs(folders)))
    assert [(curve.colour, curve.faint) for curve in chart.curves] == [
        *[("c0", True), ("c0", True), ("c0", False)],
        *[("c1", True), ("c1", True), ("c1", False)],
    ]
    assert chart.legend == {"local-demo lr=0.1": "c0", "local-demo lr=0.3": "c1"}


@pytest.mark.usefixtures("page_only")
def test_the_header_has_the_command_and_links_to_the_logs(tmp_path: Path) -> None:
    folder = own_run(tmp_path, 1, losses(1.0))
    log = folder / "attempts/0/log"
    log.write_text("step 1\n")
    document = json.loads((folder / "run.json").read_text())
    document["template"] = ["python", "train.py", "--seed", "{seed}", "--name", "two words"]
    (folder / "run.json").write_text(json.dumps(document))
    out = tmp_path / "elsewhere" / "out ü"
    _, page, _ = write([folder], out)
    assert "python train.py --seed {seed} --name 'two words'" in page.text
    links = [attributes["href"] or "" for tag, attributes in page.tags if tag == "a"]
    logs = [link for link in links if not link.startswith("#")]
    assert [(out / unquote(link)).resolve() for link in logs] == [log, log]
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    sections = ["what-the-program-logged", "time-and-machine", "resources-and-advice", "runs"]
    assert [link for link in links if link.startswith("#")] == [f"#{name}" for name in sections]
    assert ids >= {*sections}


@pytest.mark.slow
@pytest.mark.usefixtures("page_only")
def test_fifty_runs_are_a_line_each(tmp_path: Path) -> None:
    folders = [own_run(tmp_path, seed, losses(seed)) for seed in range(50)]
    _, page, text = write(folders, tmp_path / "out")
    lines = [dict(attributes) for tag, attributes in page.tags if tag == "details"]
    assert (len(lines), [line for line in lines if "open" in line]) == (50, [])
    assert "seeds 0 to 49" in page.text
    assert ">49<" in text[text.index('<div class="runs">') :]
    assert len(text) < 500_000


@pytest.mark.usefixtures("page_only")
def test_equal_runs_of_one_seed_are_no_fault(tmp_path: Path) -> None:
    first, again = own_run(tmp_path, 1, losses(1.0)), own_run(tmp_path / "again", 1, losses(1.0))
    assert write([first, again], tmp_path / "out")[0].equal == ()


@pytest.mark.usefixtures("page_only")
def test_runs_that_have_come_less_far_are_seen_in_the_steps(tmp_path: Path) -> None:
    folders = [own_run(tmp_path, 1, losses(1.0)), own_run(tmp_path, 2, losses(1.0)[:2])]
    reported, page, _ = write(folders, tmp_path / "out")
    assert reported.rows[0].result.at == "20 to 30"
    assert "loss, mean of the last tenth of 20 to 30 steps" in " ".join(page.text.split())


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ((0.5, 1.0, 1.5), ["3", "1 -0.2421 to 2.242", "-1 -"]),
        ((1e-9, float("nan"), 1e-9), ["3, 1 diverged", "1e-09", "-"]),
    ],
    ids=["compared", "not compared where a run diverged"],
)
@pytest.mark.usefixtures("page_only")
def test_groups_of_programs_of_ones_own_are_compared_by_their_number(
    tmp_path: Path, others: tuple[float, ...], words: list[str]
) -> None:
    folders = []
    for rate, ends in (("0.1", (1.0, 2.0, 3.0)), ("0.3", others)):
        for seed, last in enumerate(ends):
            run = {"name": "own", "recipe": None, "seed": seed, "sweep": {"lr": rate}}
            folders.append(make_run_dir(tmp_path, f"own-{rate}-{seed}", **run))
            write_metrics(folders[-1], losses(last))
    _, page, _ = write(folders, tmp_path / "out")
    first, second = (row for row in cells(page) if row and row[0].startswith("own lr="))
    assert first[:4] == ["own lr=0.1", "3", "2 -0.4841 to 4.484", "-"]
    assert second[:3] == ["own lr=0.3", *words[:2]]
    assert second[3].startswith(words[2])
    assert "IQM" not in page.text.partition("Comparison")[2].partition("Time and machine")[0]


@pytest.mark.usefixtures("page_only")
def test_a_group_s_short_name_is_in_the_title(tmp_path: Path) -> None:
    folders = [own_run(tmp_path, seed, []) for seed in (1, 2)]
    for file in (folder / "run.json" for folder in folders):
        document = json.loads(file.read_text())
        file.write_text(json.dumps({**document, "short": f"phd-3/seed{document['seed']}"}))
    assert "<h1>phd-3: own</h1>" in write(folders, tmp_path / "out")[2]
    assert "<h1>own</h1>" in write([*folders, own_run(tmp_path, 3, [])], tmp_path / "more")[2]


@pytest.mark.usefixtures("page_only")
def test_the_machine_s_numbers_that_a_program_logs_are_drawn_once(tmp_path: Path) -> None:
    rows = [{**row, "cpu/share": 0.5, "time": 100.0 + row["step"], "attempt": 0} for row in losses(1.0)]
    _, page, _ = write([own_run(tmp_path, 1, rows)], tmp_path / "out")
    assert "Processor use" in page.text
    assert page.text.count("cpu/share") == 1  # in the table of final values


def test_speed_of_a_program_that_logs_none_comes_from_its_rows(tmp_path: Path) -> None:
    rows = losses(1.0)
    for at, row in enumerate(rows):
        row |= {"time": 100.0 + 4 * at, "attempt": 0}
    (run,) = read_runs([own_run(tmp_path, 1, rows)])
    assert run.steps_per_second == 2.5
    rows[2]["attempt"] = 1  # what passed between attempts was no work
    rows[2]["time"] += 1000
    (run,) = read_runs([own_run(tmp_path / "again", 1, rows)])
    assert run.steps_per_second == 2.5


@pytest.mark.slow
def test_no_label_of_a_picture_is_cut_at_its_edge(tmp_path: Path) -> None:
    folders = [own_run(tmp_path, seed, losses(1.0)) for seed in (1, 2)]
    for picture in [file for file in write(folders, tmp_path / "out")[0].files if file.suffix == ".png"]:
        pixels = imread(picture)[..., :3]
        for edge in (pixels[:, 0], pixels[:, -1], pixels[0], pixels[-1]):
            assert (edge == 1).all(), picture.name


def test_a_file_is_no_folder_for_a_report(tmp_path: Path) -> None:
    (tmp_path / "curves.html").touch()
    with pytest.raises(RunError, match=r"curves\.html: is a file") as error:
        report([own_run(tmp_path, 1, losses(1.0))], tmp_path / "curves.html", now=NOW)
    assert error.value.hint == "name a folder: --out FOLDER"


@pytest.mark.usefixtures("page_only")
def test_one_run_has_no_interval_and_says_so(tmp_path: Path) -> None:
    reported, page, _ = write([own_run(tmp_path, 1, losses(0.25))], tmp_path / "out")
    assert reported.rows[0].result.meaning == "one run: no interval"
    assert "loss, mean of the last tenth of 30 steps; one run: no interval" in " ".join(page.text.split())


@pytest.mark.usefixtures("page_only")
def test_what_is_evaluated_comes_before_what_is_trained(tmp_path: Path) -> None:
    rows = [*losses(1.0), {"kind": "eval", "step": 30, "validation": 0.5}]
    reported, *_ = write([own_run(tmp_path, 1, rows)], tmp_path / "out")
    assert reported.rows[0].result.title == "validation"


@pytest.mark.usefixtures("page_only")
def test_a_number_that_ends_in_nan_has_no_final_value(tmp_path: Path) -> None:
    reported, page, _ = write([own_run(tmp_path, 1, losses(float("nan")))], tmp_path / "out")
    why = "loss was not finite from step 30 to the end"
    (row,) = reported.rows
    assert (row.result.point, row.result.at, row.result.meaning) == (None, "30", why)
    assert "loss was not finite at 1 of 3 points, from step 30 to the end" in page.text
    text = " ".join(page.text.split())
    assert f"not finite loss, mean of the last tenth of 30 steps; {why}" in text
    assert ["loss", "-"] in cells(page)
    assert ["", why] in cells(page)


@pytest.mark.parametrize("lost", [float("nan"), float("inf"), 1e300, None, "NaN", "-Infinity"])
@pytest.mark.usefixtures("page_only")
def test_a_seed_that_diverges_leaves_the_mean_of_the_others_without_an_interval(
    tmp_path: Path, lost: object, capsys: pytest.CaptureFixture[str]
) -> None:
    ends: list[Any] = [1.0, lost, 2.0]
    folders = [own_run(tmp_path, seed, losses(last)) for seed, last in enumerate(ends)]
    reported, page, _ = write(folders, tmp_path / "out")
    how = "null, not finite," if lost is None else "not finite"
    words = f"1 of 3 runs diverged (loss was {how} from step 30 to the end)"
    (row,) = reported.rows
    assert (row.result.point.value, row.result.point.interval) == (1.5, None)
    assert row.result.meaning == f"{words}: the mean is of the others, without interval"
    assert words in " ".join(page.text.split())
    assert ["loss", "1.5", "1", "-", "2"] in cells(page)
    print_json(reported)
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    assert (group["value"], group["low"], group["diverged"]) == (1.5, None, 1)
    (chart, *_) = own(group_runs(read_runs(folders)))
    assert {curve.label: curve.points[-1].step for curve in chart.curves} == {
        "mean": 20, "seed 0": 30, "seed 1": 20, "seed 2": 30,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["success/mean", "return/mean"])
@pytest.mark.usefixtures("page_only")
def test_success_and_return_end_where_a_seed_diverges(tmp_path: Path, name: str) -> None:
    folders = []
    for seed, last in ((1, 0.5), (2, float("nan"))):
        folders.append(own_run(tmp_path, seed, []))
        rows = [{"kind": "eval", "step": step, name: 0.25} for step in (10, 20)]
        write_metrics(folders[-1], [*rows, {"kind": "eval", "step": 30, name: last}])
    reported, *_ = write(folders, tmp_path / "out")
    (row,) = reported.rows
    assert (row.result.name, row.result.point.value, row.result.point.interval) == (name, 0.5, None)
    (group,) = group_runs(read_runs(folders))
    assert [point.step for point in group.curve(name)] == [10, 20]
