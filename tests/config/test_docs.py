"""docs/configuration.md and docs/profiles.md say what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from clusterkit.backends.slurm.options import sbatch_options
from clusterkit.config.models import (
    Cluster,
    GpuTable,
    Interface,
    Profile,
    ProjectTable,
    RemotePath,
    Retry,
    Wandb,
)
from clusterkit.config.notify import MailAddress, Notify, WebhookUrl
from clusterkit.config.options import long_name
from clusterkit.config.values import (
    Duration,
    Line,
    Lines,
    LocalPath,
    Program,
    ProgramHere,
    Size,
    SshConfigHere,
)
from clusterkit.trackers import BUILT_IN
from clusterkit.units import format_duration
from tests.config.conftest import Place

DOCS = Path(__file__).resolve().parents[2] / "docs"
TABLES = [
    ("[project]", ProjectTable, set()),
    ("[project.retry]", Retry, set()),
    ("[project.wandb]", Wandb, set()),
    ("[clusters.NAME]", Cluster, {"name"}),
    ("[clusters.NAME.gpus.TYPE]", GpuTable, set()),
    ("[profiles.NAME]", Profile, {"name"}),
    ("[notify]", Notify, set()),
]


def configuration() -> str:
    return (DOCS / "configuration.md").read_text(encoding="utf-8")


def rows(section: str) -> dict[str, list[str]]:
    """The cells of the table below a heading, by the first of them."""
    text = configuration().split(f"## `{section}`\n", 1)[1].split("\n## ", 1)[0]
    table = [line for line in text.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table]
    return {row[0].strip("`"): row for row in cells}


TYPES = {
    Line: "text",
    MailAddress: "text",
    WebhookUrl: "text",
    Interface: "text",
    Lines: "list",
    Program: "list",
    ProgramHere: "list",
    SshConfigHere: "path",
    LocalPath: "path",
    RemotePath: "path",
    Size: "size",
    Duration: "duration",
    Retry: "table",
    int: "integer",
    float: "number",
    bool: "boolean",
}


def types_of(model: type[BaseModel], name: str) -> tuple[Any, ...]:
    """The types that a key accepts, without None."""
    hint = get_type_hints(model, include_extras=True)[name]
    union = get_origin(hint) is UnionType or get_origin(hint) is Union
    return tuple(one for one in (get_args(hint) if union else (hint,)) if one is not NoneType)


def type_of(model: type[BaseModel], name: str) -> str:
    """The type of a key without a default, as the page should write it."""
    (one,) = types_of(model, name)
    return "*text*" if get_origin(one) is Literal else f"*{TYPES[one]}*"


def default_of(model: type[BaseModel], name: str) -> str | None:
    """The default as the page should write it; None where the page explains it in words."""
    field = model.model_fields[name]
    derived = {(Profile, "device"), (Profile, "precision"), (Profile, "mujoco_gl"), (ProjectTable, "name")}
    if (model, name) in derived:
        return None
    if field.is_required():
        return f"required {type_of(model, name)}"
    default = field.get_default(call_default_factory=True)
    if default is None or default is PydanticUndefined:
        return type_of(model, name)
    return f"`{json.dumps(default)}`"


@pytest.mark.parametrize(("section", "model", "internal"), TABLES, ids=[table[0] for table in TABLES])
def test_every_key_is_documented_with_its_default_or_its_type(
    section: str, model: type[BaseModel], internal: set[str]
) -> None:
    documented = rows(section)
    subtables = {"retry", "wandb", "trackers"} if model is ProjectTable else set()
    assert list(documented) == [key for key in model.model_fields if key not in internal | subtables]
    for name, cells in documented.items():
        expected = default_of(model, name)
        assert expected is None or cells[1] == expected, name
        assert cells[2], name


@pytest.mark.parametrize(("section", "model", "internal"), TABLES, ids=[table[0] for table in TABLES])
def test_every_value_of_a_choice_is_documented(
    section: str, model: type[BaseModel], internal: set[str]
) -> None:
    for name, cells in rows(section).items():
        values = [
            value for one in types_of(model, name) if get_origin(one) is Literal for value in get_args(one)
        ]
        assert [value for value in values if f'`"{value}"`' not in " ".join(cells[1:])] == [], name


def test_every_tracker_is_documented() -> None:
    assert list(rows("[project.trackers]")) == list(BUILT_IN)


def test_the_example_on_the_page_is_valid(place: Place) -> None:
    example = re.search(r"```toml\n(.*?)```", configuration(), re.DOTALL)
    assert example
    settings = place.load(example[1])
    options = sbatch_options(settings.cluster(), settings.profile("mine"))
    assert "--gpus=a40:1" in options
    assert "--partition=GPU-a40" in options
    assert "--mail-user=me@example.org" in options
    assert not any(option.startswith("--mem") for option in options)
    mine = settings.profile("mine")
    assert (mine.total_steps, mine.num_envs, mine.time) == (5_000_000, 40, 6 * 3600)


def test_the_page_lists_the_options_one_cannot_set() -> None:
    text = configuration().split("refuses them:", 1)[1]
    listed = re.findall(r"`([a-z-]+)`", text)
    assert len(listed) == 11
    for name in listed:
        with pytest.raises(ValueError, match="cannot be set"):
            long_name(name)


def test_every_profile_is_listed_as_it_is(place: Place) -> None:
    page = (DOCS / "profiles.md").read_text(encoding="utf-8")
    listed = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    of_profiles = [table_row(profile) for profile in place.load().profiles.values()]
    assert sorted(row[:-2] for row in listed) == sorted(of_profiles), "the last two: docs/tools/presets.py"


def table_row(profile: Profile) -> list[str]:
    def count(value: int | None) -> str:
        return "-" if value is None else f"{value:,}"

    return [
        f"`{profile.name}`",
        profile.gpu or "-",
        str(profile.cpus),
        format_duration(profile.time),
        f"`{profile.recipe}`" if profile.recipe else "-",
        count(profile.total_steps),
        count(profile.num_envs),
        profile.precision,
    ]
