"""Runs whose own values do not reach their program are refused, with the line to write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clusterkit.backends.checks import LIBRARIES
from clusterkit.config.settings import Settings
from clusterkit.config.settings_file import checked
from clusterkit.errors import ConfigError
from clusterkit.submit.own_program import check_reach, mentioned
from clusterkit.submit.pipeline import resolve
from clusterkit.submit.plan import Plan
from clusterkit.submit.request import SubmitRequest
from clusterkit.submit.sweep import axes

SEEDS = axes("1..3", ())
RATES = axes(None, ["lr=0.1,0.3"])


class Code:
    """A project with a program of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = ["python", "train.py"]
        self.profile = ""
        self.write("train.py", "print('the same')\n")

    def write(self, name: str, text: str | bytes) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())

    def settings(self) -> Settings:
        own = f"program = {json.dumps(self.program)}\n" if self.program else ""
        text = f"[project]\n{own}# CLUSTERKIT_SEED\n[profiles.p]\ntime = '5m'\n{self.profile}"
        self.write("clusterkit.toml", text)
        return checked(self.folder / "clusterkit.toml", text)

    def plan(self, **asked: Any) -> Plan:
        settings = self.settings()
        return resolve(settings, SubmitRequest(settings.cluster("local"), settings.profile("p"), **asked))

    def check(self, **asked: Any) -> None:
        files = [path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*")]
        check_reach(self.plan(**asked), self.folder, files)

    def refused(self, **asked: Any) -> str:
        with pytest.raises(ConfigError, match="differ in name only") as raised:
            self.check(**asked)
        return f"{raised.value.cause}\n{raised.value.hint}"


@pytest.fixture
def code(tmp_path: Path) -> Code:
    return Code(tmp_path / "project")


def test_runs_that_differ_in_name_only_are_refused_with_the_line_to_write(code: Code) -> None:
    said = code.refused(axes=SEEDS)
    assert "the 3 runs would differ in name only: no argument and no file of the project takes seed" in said
    assert "`clusterkit submit --seeds 1..3 -- --seed {seed}`" in said
    assert "$CLUSTERKIT_SEED" in said
    said = code.refused(axes=axes("1,2,5", ["net.betas=(0.9,0.99),(0.5,0.9)"]))
    assert "takes net.betas and seed" in said
    options = "--sweep 'net.betas=(0.9,0.99),(0.5,0.9)' --seeds 1,2,5"
    assert f"`clusterkit submit {options} -- --net.betas {{net.betas}} --seed {{seed}}`" in said


def test_the_line_has_the_option_that_the_source_has(code: Code) -> None:
    code.write("train.py", "parser.add_argument('--random_seed')\n")
    assert "-- --random_seed {seed}`" in code.refused(axes=SEEDS)
    code.write("train.py", "import hydra\n@hydra.main(config_name='main')\ndef main(c): ...\n")
    code.write("main.yaml", "random_seed: 1\n")
    assert "-- net.lr={net.lr} random_seed={seed}`" in code.refused(axes=axes("1..3", ["net.lr=1,2"]))


def test_a_single_run_has_the_seed_that_it_is_called_by(code: Code) -> None:
    code.check()
    assert "`clusterkit submit --seed 7 -- --seed {seed}`" in code.refused(seed=7)
    assert "takes total_steps" in code.refused(axes=axes(None, ["total_steps=10,20"]))


@pytest.mark.parametrize("place", ["--seed={seed}", "seed={seed}", "$CLUSTERKIT_SEED"])
def test_a_placeholder_in_the_program_or_its_arguments_is_enough(code: Code, place: str) -> None:
    code.check(axes=SEEDS, arguments=(place,))
    code.program = ["sh", "-c", f"python train.py {place}"]
    code.check(axes=SEEDS)


def test_a_swept_value_is_filled_into_the_program_too(code: Code) -> None:
    code.program = ["python", "train.py", "--lr", "{lr}"]
    code.check(axes=RATES)
    runs = code.plan(axes=RATES).runs
    assert [run.program.argv[-1] for run in runs] == ["0.1", "0.3"]
    assert runs[0].submission.command is None, "a `submit` of this run alone would give no value to {lr}"


@pytest.mark.parametrize(
    ("name", "text", "reads"),
    [
        ("a/b.py", "os.environ['CLUSTERKIT_SWEEP_LR']", True),
        ("conf/main.yaml", "lr: ${oc.env:CLUSTERKIT_SWEEP_LR}", True),
        ("a.py", "os.environ[f'CLUSTERKIT_SWEEP_{name}']", True),
        ("a.py", "{k: v for k, v in os.environ.items() if k.startswith('CLUSTERKIT_')}", True),
        ("a.py", "os.environ['CLUSTERKIT_SWEEP_LR_MIN']", False),
        ("a.py", "os.environ['CLUSTERKIT_SEED']", False),
        ("README.md", "CLUSTERKIT_SWEEP_LR", False),
        ("weights.bin", b"\0CLUSTERKIT_SWEEP_LR", False),
    ],
)
def test_a_file_of_the_project_that_reads_the_variable_is_enough(
    code: Code, name: str, text: str | bytes, reads: bool
) -> None:
    code.write(name, text)
    if reads:
        code.check(axes=RATES)
    else:
        assert "takes lr" in code.refused(axes=RATES)


@pytest.mark.parametrize(
    ("name", "text", "argv", "found"),
    [
        ("a.py", "import numpy", "python a.py", set()),
        ("a.py", "import torch\nimport wandb", "python a.py", {"torch", "wandb"}),
        ("a.py", "from stable_baselines3 import PPO", "python a.py", {"torch"}),
        ("requirements.txt", "gymnasium[mujoco]", "python a.py", {"mujoco"}),
        ("clusterkit.toml", "[project.wandb]", "python a.py", set()),
        ("README.md", "PyTorch", "python a.py", set()),
        ("a.py", "", "torchrun a.py", {"torch"}),
    ],
)
def test_the_libraries_of_a_program_are_those_that_its_code_mentions(
    tmp_path: Path, name: str, text: str, argv: str, found: set[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert mentioned(LIBRARIES, tmp_path, [name], [argv.split()]) == found


def test_an_installed_module_that_reads_the_variable_is_enough(
    code: Code, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = tmp_path / "environment"
    monkeypatch.setenv("VIRTUAL_ENV", str(environment))
    (environment / "bin").mkdir(parents=True)
    (environment / "bin/python").touch(0o755)
    module = environment / "lib/python3.12/site-packages/mylab/train.py"
    module.parent.mkdir(parents=True)
    module.write_text("pass")
    code.program = ["python", "-m", "mylab.train"]
    code.refused(axes=SEEDS)
    module.write_text("os.environ['CLUSTERKIT_SEED']")
    code.check(axes=SEEDS)


def test_runs_of_a_stage_differ_by_the_runs_that_they_continue(code: Code) -> None:
    code.write("evaluate.py", "open(os.environ['CLUSTERKIT_PREVIOUS_RUN_DIR'])\n")
    code.profile = "[profiles.next]\ntime = '5m'\nprogram = ['python', 'evaluate.py']\n"
    code.program = ["python", "train.py", "{seed}"]
    code.check(axes=SEEDS, then=("next",))
    code.write("evaluate.py", "pass")
    assert "--seeds 1..3" in code.refused(axes=SEEDS, then=("next",))


def test_runs_are_submitted_as_they_are_if_the_user_says_so(code: Code) -> None:
    code.check(axes=SEEDS, allow_unread=True)


def test_the_bundled_trainer_has_its_seeds(code: Code) -> None:
    code.program = []
    code.profile = 'recipe = "guide-mt10"\ntotal_steps = 1000\n'
    code.check(axes=SEEDS)


def test_arguments_that_replace_a_swept_recipe_or_number_of_steps_are_refused(code: Code) -> None:
    code.program = []
    code.profile = 'recipe = "guide-mt10"\ntotal_steps = 1000\n'
    for sweep, arguments in (
        ("recipe=guide-mt10,mclean2025-mt10", ("--recipe", "mclean2025-mt10")),
        ("total_steps=1_000,2_000", ("--total-steps=5",)),
    ):
        over = axes(None, [sweep])
        assert len(code.plan(axes=over).runs) == 2
        with pytest.raises(ConfigError, match="among the arguments replaces the"):
            code.plan(axes=over, arguments=arguments)


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ([], ("--seed", "7")),
        (["python", "train.py", "--seed", "{seed}"], ("--seed", "7")),
        (["python", "train.py", "--seed={seed}"], ("--seed=7",)),
        (["python", "train.py", "seed={seed}"], ("seed=7",)),
    ],
)
def test_arguments_that_replace_the_seed_are_refused(
    code: Code, program: list[str], arguments: tuple[str, ...]
) -> None:
    code.program = program
    if not program:
        code.profile = 'recipe = "guide-mt10"\ntotal_steps = 1000\n'
    code.plan(arguments=arguments)
    with pytest.raises(ConfigError, match="among the arguments replaces the seed that was asked for, 1"):
        code.plan(arguments=arguments, axes=SEEDS)
