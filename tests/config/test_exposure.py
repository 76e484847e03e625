"""Secrets that a person is about to write where others read them: each way into a job."""

from __future__ import annotations

import pytest

from clusterkit.backends.slurm.options import sbatch_options
from clusterkit.config.exposure import secret_argument
from clusterkit.config.models import Cluster, Profile
from clusterkit.errors import ConfigError
from tests.config.conftest import Place
from tests.config.test_problems import PROFILE, fault

VALUES = (
    "ALL,WANDB_API_KEY=abc123",
    "WANDB_API_KEY=abc123",
    'A=1,HF_TOKEN="abc123"',
    "my token=abc123",
    "AWS_SECRET_KEY=abc123",
    "PGPASSWORD=abc123",
)
HARMLESS = (
    "ALL",
    "NONE,WANDB_PROJECT",
    "A=1,B=2",
    "TOKENIZERS_PARALLELISM=false",
)


def options(extra: str) -> tuple[str, ...]:
    profile = Profile.model_validate({"name": "p", "time": "4h"})
    return sbatch_options(Cluster(name="site", root="/work"), profile, extra=[extra])


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("option", ["export", "comment", "wckey"])
def test_an_option_that_gives_a_secret_away_is_refused_and_not_repeated(option: str, value: str) -> None:
    with pytest.raises(ConfigError, match="looks like a secret") as error:
        options(f"--{option}={value}")
    assert "abc123" not in f"{error.value.cause}{error.value.hint}"
    assert "[secrets]" in str(error.value.hint)


@pytest.mark.parametrize("value", ["NONE,WANDB_API_KEY", "HF_TOKEN=", "HF_TOKEN=$HF_TOKEN"])
def test_an_export_that_names_a_secret_is_refused(value: str) -> None:
    """The scheduler would keep what the login node has under this name."""
    with pytest.raises(ConfigError, match=r"--export: (WANDB_API_KEY|HF_TOKEN) looks like a secret"):
        options(f"--export={value}")


@pytest.mark.parametrize("value", HARMLESS)
def test_an_option_without_a_secret_is_taken(value: str) -> None:
    assert f"--export={value}" in options(f"--export={value}")


@pytest.mark.parametrize(
    "settings",
    [
        PROFILE + "sbatch.export = 'ALL,WANDB_API_KEY=abc123'",
        PROFILE + "sbatch.comment = 'WANDB_API_KEY=abc123'",
        "[clusters.a]\nroot = '/r'\nsbatch.export = 'HF_TOKEN=abc123'",
        "[clusters.a]\nroot = '/r'\ngpus.a40.sbatch.export = 'HF_TOKEN=abc123'",
        "[clusters.a]\nroot = '/r'\nprelude = ['module load x', 'export HF_TOKEN=abc123']",
    ],
)
def test_the_settings_refuse_it_with_their_line(place: Place, settings: str) -> None:
    error = fault(place, settings)
    assert "looks like a secret" in error.cause
    assert "abc123" not in f"{error.cause}{error.hint}"


def test_a_prelude_may_look_a_secret_up(place: Place) -> None:
    line = "export HF_TOKEN=$(cat ~/.hf)"
    loaded = place.load(f"[clusters.a]\nroot = '/r'\nprelude = ['{line}']")
    assert loaded.cluster("a").prelude == (line,)


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["env", "WANDB_API_KEY=abc", "python"], "WANDB_API_KEY"),
        (["sh", "-c", "export HF_TOKEN='abc'; python x"], "HF_TOKEN"),
        (["x", "--api-key=abc"], "--api-key"),
        (["x", "--wandb_api_key", "abc"], "--wandb_api_key"),
        (["x", "wandb.password=abc"], "wandb.password"),
        (["x", "--hf-token", "abc"], "--hf-token"),
        (["x", "--secret_key=abc"], "--secret_key"),
        (["sh", "-c", "HF_TOKEN=$'abc' x"], "HF_TOKEN"),
        (["sh", "-c", "HF_TOKEN=''abc x"], "HF_TOKEN"),
        (["sh", "-c", "HF_TOKEN+=abc x"], "HF_TOKEN"),
        (["sh", "-c", "HF_TOKEN='' x"], None),
        (["sh", "-c", 'HF_TOKEN="$A" x'], None),
        (["x", "--use-auth-token", "True"], None),
        (["sh", "-c", "export HF_TOKEN=$(cat ~/.hf)"], None),
        (["x", "--pad-token=abc", "--tokens=5", "eos_token=1"], None),
        (["x", "--api-key", "--seed", "1"], None),
        (["x", "--api-key"], None),
        (["x", "--api-key=$KEY"], None),
        (["x", "note=the-password", "next"], None),
    ],
)
def test_the_arguments_of_a_program(argv: list[str], name: str | None) -> None:
    assert secret_argument(argv) == name
