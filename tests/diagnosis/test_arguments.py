"""The next command keeps the arguments of the run, and shows where the faulty one must change."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from clusterkit.backends.submission import Submission
from clusterkit.diagnosis import diagnose, parse_evidence
from clusterkit.diagnosis.arguments import command_words, without_fault
from tests.diagnosis.run_dirs import ask, make_run

ASKED = "--cluster uni --profile p --set lr=1 --time 4h"
USAGE = "usage: train.py [-h]\ntrain.py: error: "


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said", "rest", "advice"),
    [
        (
            "--learnig-rate 1e-3 --steps 10",
            "unrecognized arguments: --learnig-rate 1e-3",
            "--steps 10",
            "change `--learnig-rate 1e-3`",
        ),
        ("--steps 10 --fast", "unrecognized arguments: --fast", "--steps 10", "change `--fast`"),
        ("--fast", "unrecognized arguments: --fast", "", "change `--fast`"),
        (
            "--sed=3 'a b'",
            "trainer: unknown argument '--sed=3'; did you mean --seed?",
            "--seed=3 'a b'",
            "change `--sed=3`: the command below uses --seed instead",
        ),
        (
            "--lr abc -v",
            "argument --lr: invalid float value: 'abc'",
            "--lr VALUE -v",
            "change `--lr abc`: invalid float",
        ),
        (
            "--algo=x 1",
            "argument -a/--algo: invalid choice: 'x'",
            "--algo=VALUE 1",
            "change `--algo=x`: invalid choice",
        ),
        ("--lr", "argument --lr: expected one argument", "--lr VALUE", "change `--lr`: expected one"),
        ("--foo 1 --bar", "Error: No such option: --foo", "--bar", "change `--foo 1`"),
        (
            "--lr abc",
            "Error: Invalid value for '--lr': 'abc' is not a valid float.",
            "--lr VALUE",
            "change `--lr abc`",
        ),
        (
            "--lr 1",
            "the following arguments are required: --data, --out",
            None,
            "add --data, --out after --",
        ),
        (
            "--lr 1",
            "argument --steps: invalid int value: 'x'",
            None,
            "change --steps in `program` of the settings: ",
        ),
        ("--lr 1", "Flags parsing error", None, "correct the arguments after `--`"),
    ],
)
def test_the_argument_at_fault_is_named(
    arguments: str, said: str, rest: str | None, advice: str, tmp_path: Path
) -> None:
    run = make_run(tmp_path, f"{USAGE}{said}\n", ended={"code": 2})
    words = [*shlex.split(ASKED), "--", *shlex.split(arguments)]
    folder = run / "submissions" / "0"
    folder.mkdir(parents=True)
    (folder / "request.json").write_text(json.dumps({"schema": 1, "number": 0, "command": words}))
    finding = diagnose(parse_evidence(ask(run))).finding
    assert finding.cause.slug == "wrong-argument"
    assert finding.cure.startswith(advice)
    if rest is None:
        assert finding.next == f"clusterkit submit {ASKED} --dry-run -- {arguments}"
    else:
        assert finding.next == f"clusterkit submit {ASKED}" + (f" -- {rest}" if rest else "")


def test_a_wrong_option_of_the_settings_is_named_with_what_was_meant(tmp_path: Path) -> None:
    log = "usage: train.py [-h] [--logdir LOGDIR]\n                [--lr LR]\n"
    run = make_run(
        tmp_path, f"{log}train.py: error: unrecognized arguments: --logdirr x\n", ended={"code": 2}
    )
    (run / "submissions" / "0").mkdir(parents=True)
    (run / "submissions/0/request.json").write_text(
        json.dumps({"command": ["--profile", "p", "--", "--lrr=3"]})
    )
    finding = diagnose(parse_evidence(ask(run))).finding
    assert finding.cure == "change --logdirr in `program` of the settings; did you mean --logdir?"
    (run / "attempts/0/log").write_text(f"{log}train.py: error: unrecognized arguments: --lrr=3\n")
    assert diagnose(parse_evidence(ask(run))).finding.next == "clusterkit submit --profile p -- --lr=3"


@pytest.mark.parametrize(
    ("own", "said", "fault"),
    [
        (["", "1"], "trainer: unknown argument ''", "''"),
        (["a b", "1"], "trainer: unknown argument 'a b'", "'a b'"),
        (["", "1"], "train.py: error: unrecognized arguments:  ", "''"),
    ],
)
def test_an_argument_that_is_empty_or_has_blanks_is_the_one_at_fault(
    own: list[str], said: str, fault: str
) -> None:
    cure, changed = without_fault(["--", *own], said)
    assert cure.startswith(f"change `{fault}`: ")
    assert changed == ["--", "1"]


def test_other_causes_keep_all_arguments(tmp_path: Path) -> None:
    run = make_run(
        tmp_path, "[clusterkit] the code folder /share/s/x does not exist on n1: submit the run again"
    )
    (run / "submissions/0").mkdir(parents=True)
    words = ["--profile", "p", "--", "--name", "it's -- mine", "$HOME"]
    (run / "submissions/0/request.json").write_text(json.dumps({"command": words}))
    assert shlex.split(diagnose(parse_evidence(ask(run))).finding.next) == ["clusterkit", "submit", *words]


@pytest.mark.parametrize(
    "command",
    [
        None,
        "submit",
        [1],
        ["--profile"],
        ["--config", "/tmp/evil.toml"],
        ["x;rm", "-rf"],
        ["--profile", "a", "--", "\x1b]0;x\x07"],
        ["--profile", "a", "--", "y" * 20_000],
    ],
)
def test_words_nobody_typed_are_not_shown(command: object) -> None:
    assert command_words(Submission.recorded(0, {"command": command}).command) is None


def test_nothing_is_made_up() -> None:
    assert without_fault(("--profile", "p"), "") == ("", None)
