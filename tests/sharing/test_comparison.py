"""What differs between two runs."""

from pathlib import Path
from typing import Any

from clusterkit.backends.submission import Submission
from clusterkit.results.logs.run_logs import read_run
from clusterkit.runs.run_dir import read_run_dir
from clusterkit.sharing.comparison import Changed, ComparedCode, changed_in, compare
from clusterkit.sharing.description import DescribedRate, Description, describe
from clusterkit.snapshots import git
from tests.results.run_dirs import evaluation, make_run_dir, write_metrics
from tests.snapshots.conftest import git as run_git

OWN: dict[str, Any] = {"run_id": "a-1", "argv": ["python", "train.py", "--lr", "0.1", "-v"], "seed": 1}
TRAIN = ["python", "-m", "trainer", "train", "--recipe", "guide-mt10", "--seed", "1"]


def differences(a: Description, b: Description) -> dict[str, tuple[Any, Any]]:
    return {f"{d.section} {d.name}": (d.a, d.b) for d in compare(a, b, ComparedCode()).differences}


def test_a_run_is_like_itself() -> None:
    assert differences(describe(OWN, "x"), describe(OWN, "y")) == {}


def test_words_of_a_program() -> None:
    other = {**OWN, "argv": ["python", "train.py", "--lr", "0.2", "-v", "a b"], "seed": 2}
    assert differences(describe(OWN, "x"), describe(other, "y")) == {
        "run seed": (1, 2),
        "arguments argv[3]": ("0.1", "0.2"),
        "arguments argv[5]": (None, "'a b'"),
    }


def test_a_training_shows_each_thing_once() -> None:
    def run(argv: list[str], seed: int, gamma: float) -> Description:
        profile = {"name": "p", "seed": seed, "cpus": 2}
        recipe = {"name": "r", "values": {"gamma": gamma, "tau": 1}, "modified": {}}
        document = {"run_id": "r", "argv": argv, "seed": seed, "profile": profile, "recipe": recipe}
        return describe(document, "x")

    changed = [*TRAIN[:-1], "2", "--set", "gamma=0.9", "--unlock", "gamma", "--lockstep", "--workers=3"]
    assert differences(run(TRAIN, 1, 0.99), run(changed, 2, 0.9)) == {
        "recipe gamma": (0.99, 0.9),
        "arguments --seed": ("1", "2"),
        "arguments --lockstep": (None, True),
        "arguments --workers": (None, "3"),
    }


def test_the_arguments_of_the_newest_submission_count() -> None:
    more = describe({**OWN, "argv": TRAIN}, "x", request=Submission(0, argv=(*TRAIN, "--total-steps", "9")))
    assert differences(describe({**OWN, "argv": TRAIN}, "x"), more) == {
        "arguments --total-steps": (None, "9")
    }


def test_an_environment_without_what_belongs_to_one_run() -> None:
    def run(name: str) -> Description:
        here = f"/root of/{name}"
        env = {"WANDB_RUN_ID": name, "WANDB_DIR": here, "OUT": f"{here}/out", "N": "1"}
        return describe({"run_id": name, "env": env}, "x")

    assert differences(run("a"), run("b")) == {}


def test_results_only_where_both_have_some(tmp_path: Path) -> None:
    def pulled(name: str, success: float) -> Description:
        folder = make_run_dir(tmp_path, name)
        write_metrics(folder, [evaluation(10, {"reach-v3": success}), evaluation(5, {"reach-v3": 0.0})])
        run = read_run_dir(folder)
        rows = read_run(folder, own=False).rows
        return describe(run.document, str(folder), rows=rows, attempts=run.attempts)

    a, b = pulled("a", 0.5), pulled("b", 0.75)
    rates = (DescribedRate(0.5, None, None), DescribedRate(0.75, None, None))
    assert differences(a, b) == {"results success": rates, "results success reach-v3": rates}
    assert differences(a, describe(read_run_dir(tmp_path / "b").document, "b")) == {}


def commit(folder: Path, **files: str) -> str:
    for name, text in files.items():
        (folder / name).write_text(text)
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "x")):
        run_git(folder, *words)
    return run_git(folder, "rev-parse", "HEAD").strip()


def test_files_between_commits_and_uncommitted(tmp_path: Path) -> None:
    old = commit(tmp_path, **{"train.py": "a\nb\n", "data.bin": "\0\1"})
    new = commit(tmp_path, **{"train.py": "a\nc\nd\n", "data.bin": "\0\2", "two words": "x\n"})
    found = git.between(tmp_path, old, new)
    assert found == [("data.bin", None, None), ("train.py", 2, 1), ("two words", 1, 0)]
    assert git.between(tmp_path, old, "0" * 40) is None
    assert git.between(tmp_path, old, "--output=x") is None
    (tmp_path / "train.py").write_text("a\n--- b\n+++ c\n")
    (tmp_path / "data.bin").write_bytes(b"\0\3")
    diff = git.stand(tmp_path, stays=lambda name: False).diff
    assert changed_in(diff) == (Changed("data.bin", None, None), Changed("train.py", 2, 2))
