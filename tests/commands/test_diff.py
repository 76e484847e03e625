"""`clusterkit diff` on the local cluster."""

import json

import pytest

from clusterkit.cli.diff import _pair
from clusterkit.sharing.description import DescribedRate
from tests.commands.conftest import Project
from tests.results.run_dirs import make_run_dir
from tests.snapshots.conftest import git


@pytest.mark.slow
def test_two_runs(project: Project) -> None:
    first = project.submit("--", "0")
    (project.folder / "train.py").write_text((project.folder / "train.py").read_text() + "\n")
    second = project.submit("--seed", "7", "--", "0", "more")
    project.ended(first)
    project.ended(second)
    shown = project.run("diff", first, second)
    assert "seed" in shown.stdout
    assert "argv[3]" in shown.stdout
    assert "snapshot" in shown.stdout
    assert f"clusterkit sync-results {first} {second}" in shown.stderr
    project.run("sync-results")
    document = json.loads(project.run("diff", first, f"results/{second}", "--json").stdout)
    assert document["a"] == {"run_id": first, "where": str(project.folder / "results" / first)}
    found = {(each["section"], each["name"]): (each["a"], each["b"]) for each in document["differences"]}
    assert found[("run", "seed")] == (1, 7)
    assert found[("arguments", "argv[3]")] == (None, "more")
    assert "nothing differs" in project.run("diff", first, first).stdout


def test_a_beginning_that_several_have(project: Project) -> None:
    for run_id in ("demo-1", "demo-2"):
        make_run_dir(project.folder / "results", run_id)
    assert "'demo' may mean demo-1, demo-2" in project.run("diff", "demo", "demo-1", code=8).stderr


@pytest.mark.slow
def test_results_in_git_are_no_code(project: Project) -> None:
    git(project.folder, "init", "-q")
    ids = []
    for number in range(2):
        (project.folder / "train.py").open("a").write(f"# {number}\n")
        (project.folder / "results").mkdir(exist_ok=True)
        (project.folder / "results" / f"curve-{number}.csv").write_text("1\n")
        git(project.folder, "add", "-f", "train.py", "results")
        git(project.folder, "commit", "-qm", str(number))
        ids.append(project.submit("--", "0"))
        project.ended(ids[-1])
    document = json.loads(project.run("diff", *ids, "--json").stdout)
    assert document["code"]["between"] == [{"path": "train.py", "added": 1, "removed": 0}]


@pytest.mark.parametrize(
    ("section", "name", "a", "b", "shown"),
    [
        ("results", "loss", 0.010527, 0.010417, ["0.0105", "0.0104"]),
        ("results", "steps a second", 4123.4, 4123.2, ["4,123.4", "4,123.2"]),
        ("results", "steps a second", 0.31, None, ["0.31", "-"]),
        ("results", "seconds", 100.2, 100.4, ["100.2", "100.4"]),
        ("results", "seconds", 3600, 60, ["1h 00m", "1m 00s"]),
        (
            "results",
            "success",
            DescribedRate(0.5, 0.4, 0.6),
            DescribedRate(0.50002, None, None),
            ["50.000%  (40.0% - 60.0%)", "50.002%"],
        ),
        ("profile", "memory", 2**36, 2**36 + 2**20, ["68,719,476,736", "68,720,525,312"]),
        ("recipe", "lr", 3e-4, 3.0001e-4, ["0.0003", "0.00030001"]),
        ("recipe", "width", 256, "256", ["256", '"256"']),
        ("image", "digest", "a" * 64, "a" * 63 + "b", [f'"{"a" * 64}"', f'"{"a" * 63}b"']),
    ],
)  # fmt: skip
def test_what_differs_looks_different(
    section: str, name: str, a: object, b: object, shown: list[str]
) -> None:
    assert _pair(section, name, a, b) == shown
