"""The schema that editors get: it is that of the models, and agrees with them on the files that there are."""

from __future__ import annotations

import ast
import json
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from clusterkit.config.models import Document
from clusterkit.config.settings_file import checked
from clusterkit.config.values import SettingsModel
from clusterkit.errors import ConfigError
from docs.tools import schema
from tests import forked

ROOT = Path(__file__).resolve().parents[2]
TABLES = set(Document.model_fields)


@pytest.fixture(scope="module")
def editor() -> Draft202012Validator:
    """What an editor does with the file."""
    known = json.loads(schema.PATH.read_text())
    Draft202012Validator.check_schema(known)
    return Draft202012Validator(known)


def test_the_file_is_made_from_the_models() -> None:
    assert schema.PATH.read_text() == schema.text(), "python -m docs.tools.schema"


def test_every_key_is_described() -> None:
    known = schema.schema()
    tables = {"Document": known, **known["$defs"]}
    for model in SettingsModel.__subclasses__():
        keys = tables[model.__name__]["properties"]
        own = {"Cluster": {"name"}, "Profile": {"name"}}.get(model.__name__, set())
        assert keys.keys() - {"extends"} == model.model_fields.keys() - own
        for name, key in keys.items():
            assert re.search(r"\S\.$", key["description"]), f"{model.__name__}.{name}"
            assert not re.search(r"\bNone\b|seconds\b(?! have)", key["description"]), key["description"]


def test_a_command_prints_it_without_a_project(tmp_path: Path) -> None:
    done = forked.run(["config", "--schema"], folder=tmp_path, env=dict(os.environ))
    assert (done.returncode, done.stdout) == (0, schema.PATH.read_text())


def files() -> Iterator[tuple[str, str]]:
    """The settings that the project shows and ships: where each is, and its text."""
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for block in re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.M | re.S):
            if tomllib.loads(block).keys() <= TABLES:
                yield page.name, block
    for file in (ROOT / "templates/clusters").glob("*.toml"):
        yield file.name, file.read_text()
    for file in (ROOT / "templates/profiles").glob("*.toml"):
        yield file.name, f"[profiles.{file.stem}]\n{file.read_text()}"
    for file in (ROOT / "docs/examples").rglob("clusterkit.toml"):
        yield str(file), file.read_text()


def settings_in_tests() -> Iterator[tuple[str, str]]:
    """The texts in the tests that are settings: where each is, and what it says."""
    for file in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "=" in node.value:
                try:
                    table = tomllib.loads(node.value)
                except tomllib.TOMLDecodeError:
                    continue
                if table and table.keys() <= TABLES:
                    yield f"{file}:{node.lineno}", node.value


def faults(editor: Draft202012Validator, text: str) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in editor.iter_errors(tomllib.loads(text))]


def loads(text: str) -> bool:
    try:
        checked(ROOT / "clusterkit.toml", text)
    except ConfigError:
        return False
    return True


def test_what_is_shown_and_shipped_has_no_faults(editor: Draft202012Validator) -> None:
    shown = list(files())
    assert len(shown) > 50
    assert {where: found for where, text in shown if (found := faults(editor, text))} == {}


@pytest.mark.slow
def test_what_the_tests_load_has_no_faults(
    editor: Draft202012Validator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
    good = [(where, text) for where, text in settings_in_tests() if loads(text)]
    assert len(good) > 50
    assert {where: found for where, text in good if (found := faults(editor, text))} == {}


WRONG: dict[str, Any] = {
    "table": "[cluster.a]\nroot = '/x'",
    "key": "[project]\nprogramme = ['a']",
    "key of a profile": "[profiles.a]\ntime = '1h'\ngpu_count = 2",
    "name": "[profiles.a]\ntime = '1h'\nname = 'a'",
    "name of a table": "[profiles.'a b']\ntime = '1h'",
    "text for a list": "[project]\nprogram = 'python train.py'",
    "number for text": "[clusters.a]\nroot = '/x'\npartition = 3",
    "text for a number": "[profiles.a]\ntime = '1h'\ncpus = '4'",
    "too small": "[profiles.a]\ntime = '1h'\ncpus = 0",
    "too large": "[project.retry]\nnode_failures = 9",
    "choice": "[profiles.a]\ntime = '1h'\nprecision = 'fp16'",
    "duration": "[profiles.a]\ntime = '4'",
    "size": "[profiles.a]\ntime = '1h'\nmemory = '64'",
    "size in numbers": "[project]\nmax_file_size = 100",
    "boolean": "[clusters.a]\nroot = '/x'\nmps = 'yes'",
    "variable": "[secrets]\nnames = ['A-B']",
    "event": "[notify]\non = ['begun']",
    "GPU": "[clusters.a]\nroot = '/x'\n[clusters.a.gpus.a40]\ncount = 2",
    "option": "[profiles.a]\ntime = '1h'\nsbatch.mem = ['1G']",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_wrong_in_an_editor_too(editor: Draft202012Validator, wrong: str) -> None:
    assert not loads(WRONG[wrong])
    assert len(faults(editor, WRONG[wrong])) == 1
