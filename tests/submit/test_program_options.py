"""The options that take the seed and the output folder, found in a program's source."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterkit.submit.program_options import folder_option, option_words

ARGPARSE = "import argparse\np = argparse.ArgumentParser()\np.add_argument({})\n"
TYRO = """
import tyro
from dataclasses import dataclass, field

@dataclass
class Env:
    name: str = "x"
    {inner}

@dataclass
class Args:
    env: Env = field(default_factory=Env)
    {outer}

tyro.cli(Args)
"""
ABSL = "from absl import flags\nflags.DEFINE_integer('seed', 1, 'The seed.')\n"
TYPER = "import typer\ndef main(lr: float = 1.0, {}): ...\ntyper.run(main)\n"
FIRE = "import fire\ndef train(seed=0): ...\ndef other(random_seed=0): ...\nfire.Fire(train)\n"
CLICK = "import click\n@click.command()\n@click.option('-s', '--random-seed')\ndef main(random_seed): ...\n"
PARSED = "from transformers import HfArgumentParser\nfrom settings import Config\nHfArgumentParser(Config)\n"
FIELDS = """
import argparse, dataclasses
@dataclasses.dataclass
class C:
    seed: int = 1
p = argparse.ArgumentParser()
for field in dataclasses.fields(C):
    p.add_argument("--" + field.name)
"""
SEED = ["--seed", "{seed}"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (ARGPARSE.format("'--seed', type=int"), SEED),
        (ARGPARSE.format("'--random_seed'"), ["--random_seed", "{seed}"]),
        (ARGPARSE.format("'--random-seed'"), ["--random-seed", "{seed}"]),
        (ARGPARSE.format("'--seeded', action='store_true'"), []),
        (TYRO.format(inner="", outer="seed: int = 1"), SEED),
        (TYRO.format(inner="seed: int = 1", outer=""), ["--env.seed", "{seed}"]),
        (TYRO.format(inner="", outer="").replace("import tyro", "").replace("tyro.cli(Args)", ""), []),
        (ABSL, SEED),
        (TYPER.format("seed: int = 0"), SEED),
        (TYPER.format("random_seed: int = typer.Option(0)"), ["--random-seed", "{seed}"]),
        (TYPER.format("seed: int = typer.Argument(0)"), []),
        ("import typer\ndef main(seed: int): ...\ntyper.run(main)\n", []),
        (FIRE, SEED),
        (CLICK, ["--random-seed", "{seed}"]),
        (PARSED, SEED),
        (FIELDS, SEED),
        ("# --seed\nprint('--seed is not read')\n", []),
        ("def train(seed=1): ...\n", []),
        ("this is no Python '--seed'", []),
    ],
)
def test_the_option_of_the_seed_is_found(source: str, words: list[str], tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text(
        "from dataclasses import dataclass\n@dataclass\nclass Config:\n  seed: int = 1\n"
    )
    (tmp_path / "train.py").write_text(source)
    assert option_words(tmp_path, ["python", "train.py"], "seed") == words


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("lr: 1\nseed: 3\n", ["seed={seed}"]),
        ("random_seed: 1\n", ["random_seed={seed}"]),
        ("train:\n  seed: 1\n", []),
    ],
)
def test_a_hydra_application_gets_an_override(config: str, words: list[str], tmp_path: Path) -> None:
    (tmp_path / "app/conf").mkdir(parents=True)
    (tmp_path / "app/conf/main.yaml").write_text(config)
    source = "import hydra\n@hydra.main(config_path='conf', config_name='main')\ndef main(c): ...\n"
    (tmp_path / "app/__main__.py").write_text(source)
    assert option_words(tmp_path, ["torchrun", "-m", "app"], "seed") == words


def test_a_config_of_hydra_may_be_a_dataclass(tmp_path: Path) -> None:
    fields = "@dataclass\nclass C:\n  seed: int = 1\n"
    source = f"import hydra\n{fields}@hydra.main(config_name='c')\ndef main(c): ...\n"
    (tmp_path / "train.py").write_text(source)
    assert option_words(tmp_path, ["python", "train.py"], "seed") == ["seed={seed}"]


def test_the_source_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("open('ran', 'w')\n" + ABSL)
    assert option_words(tmp_path, ["train.py"], "seed") == SEED
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("source", "option"),
    [
        (ARGPARSE.format("'--logdir', default='runs'"), "--logdir"),
        (ARGPARSE.format("'--save-dir'"), "--save-dir"),
        (ARGPARSE.format("'--out', default='result.csv'"), None),
        (ARGPARSE.format("'--out', action='store_true'"), None),
        (TYRO.format(inner="", outer="output_dir: str = 'x'"), "--output_dir"),
        (TYRO.format(inner="save_dir: bool = True", outer=""), None),
        (TYPER.format("out_dir: str = 'x'"), "--out-dir"),
        ("from absl import flags\nflags.DEFINE_string('log_dir', None, 'Where.')\n", "--log_dir"),
        ("import hydra\n@hydra.main(config_name='c')\ndef main(c): ...\n", "hydra.run.dir"),
        ("print('--logdir is not read')\n", None),
    ],
)
def test_the_option_of_the_output_folder_is_found(source: str, option: str | None, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(source)
    assert folder_option(tmp_path, ["python", "train.py"]) == option
