"""The package as a user gets it: a light import, and its data found in a checkout and in a wheel."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import clusterkit
from clusterkit.cli.catalogue import SHORT, children
from clusterkit.resources import page
from tests import forked

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("paramiko", "jinja2", "torch", "pydantic", "numpy", "matplotlib", "wandb", "sqlite3", "tomlkit")

LIST_DATA = """
from clusterkit.resources import CONTAINERS, DOCS, NODE_PROGRAMS, TEMPLATES
from trainer import recipe
print(TEMPLATES / "job.sh.j2")
print(sorted(p.name for p in (TEMPLATES / "profiles").iterdir()))
print(sorted(p.name for p in CONTAINERS.iterdir() if p.name != "__pycache__"))
print(recipe.names())
print(len((NODE_PROGRAMS / "launch.py").read_bytes()))
print(sorted(p.name for p in DOCS.glob("*.md")))
print(len((DOCS / "clusterkit.schema.json").read_bytes()))
package = NODE_PROGRAMS.parent
print(sorted(p.name for p in package.iterdir() if p.suffix in (".pyi", ".typed")))
"""


def python(code: str, **more: object) -> str:
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        **more,  # type: ignore[call-overload]
    )
    assert run.returncode == 0, run.stderr
    return str(run.stdout)


@pytest.mark.slow
def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom clusterkit.cli.app import app\n"
        "try: app(['--help'], standalone_mode=False)\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    assert python(code).splitlines()[-1] == "[]"


def test_importing_the_package_imports_nothing_else_and_finds_what_its_types_say() -> None:
    code = (
        "import sys\nbefore = set(sys.modules)\nimport clusterkit\nprint(sorted(set(sys.modules) - before))"
    )
    assert python(code) == "['clusterkit']\n"
    stub = ast.parse((ROOT / "clusterkit" / "__init__.pyi").read_text())
    typed = {
        name.asname: (node.module, name.name)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    assert typed == clusterkit._HOMES
    assert all(callable(getattr(clusterkit, str(name))) for name in typed)
    assert {*typed, "__version__"} == set(clusterkit.__all__) <= set(dir(clusterkit))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        clusterkit.nothing  # noqa: B018


@pytest.mark.slow
def test_completing_options_imports_nothing_heavy() -> None:
    code = (
        "import sys, typer\nfrom clusterkit.cli.app import app\n"
        "from clusterkit.cli.completion import answer\n"
        f"for name in {[name for name in commands() if name != 'config']!r}:  # which reads settings\n"
        "    print(answer(typer.main.get_command(app), f'clusterkit {name} --', 'bash').splitlines()[0])\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    *kinds, heavy = python(code).splitlines()
    assert (set(kinds), heavy) == ({"words"}, "['sqlite3']")  # of the ledger


def test_no_garbage_is_sought_during_a_commands_imports(tmp_path: Path) -> None:
    """Of some 70,000 objects that all stay."""
    code = (
        "import gc, sys\nphases = []\ngc.callbacks.append(lambda phase, _: phases.append(phase))\n"
        "from clusterkit.cli.edge import run\nbefore = len(phases)\n"
        "from clusterkit.__main__ import _command\nsys.argv[1:] = ['profiles']\n"
        "def command():\n    _command()\n    print('pydantic' in sys.modules, len(phases) - before)\n"
        "run(command)"
    )
    (tmp_path / "clusterkit.toml").touch()
    assert python(code, cwd=tmp_path).splitlines()[-1] == "True 0"


def commands() -> list[str]:
    return list(SHORT)


def test_the_list_of_commands_keeps_to_forty_columns_and_is_not_cut() -> None:
    text = forked.run(["--help"], folder=ROOT, env={**os.environ, "COLUMNS": "40"}).stdout
    assert "..." not in text.replace("[ARGS]...", "")
    assert max(map(len, text.splitlines())) <= 40


def test_the_commands_stand_in_the_documentation_in_the_order_of_the_help() -> None:
    text = (ROOT / "docs" / "commands.md").read_text()
    headings = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    sections = [line.split(", ") for line in headings[:-1]]
    named = [name for section in sections for name in section]
    assert sorted(named) == sorted(name for name in commands() if not children(name))
    sections = [section for section in sections if not section[0].startswith("storage ")]
    helped = list(SHORT)
    firsts = [section[0] for section in sections]
    assert firsts == [name for name in helped if name in firsts]


@pytest.mark.slow
def test_an_unknown_command_is_a_usage_error() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "clusterkit", "sumbit"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
    assert "submit" in run.stderr


def test_a_command_that_was_removed_names_what_to_use_instead() -> None:
    run = forked.run(["work", "push"], folder=ROOT, env=dict(os.environ))
    assert run.returncode == 2
    assert run.stderr.endswith("next:  `clusterkit ssh-config`, then rsync, sftp or an editor\n")


@pytest.mark.slow
def test_the_wheel_holds_what_the_checkout_holds(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", site, wheel], check=True
    )
    checkout = python(LIST_DATA, cwd=tmp_path).splitlines()
    installed = python(LIST_DATA, cwd=tmp_path, env={"PYTHONPATH": str(site), "PATH": ""}).splitlines()
    assert installed[0] == str(site / "clusterkit" / "_data" / "templates" / "job.sh.j2")
    assert checkout[0] == str(ROOT / "templates" / "job.sh.j2")
    assert installed[1:] == checkout[1:]
    launcher = (site / "hydra_plugins" / "clusterkit_launcher.py").read_text()
    assert launcher == (ROOT / "clusterkit" / "cli" / "hydra_launcher.py").read_text()


@pytest.mark.slow
def test_every_page_that_is_named_is_in_the_wheel() -> None:
    """A hint or help text names the command that shows a page, and the wheel holds the page."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"]["docs"] == "clusterkit/_data/docs"
    found = set()
    for file in [*(ROOT / "clusterkit").rglob("*.py"), *(ROOT / "trainer").rglob("*.py")]:
        for text, documented in _texts(file):
            if not documented and re.search(r"\bdocs/\w|\w\.md\b", text):
                assert re.fullmatch(r"[a-z-]+\.md", text), f"{file} names {text!r}: `page` says where it is"
                found.add(text)
    assert found
    for name in found:
        assert page(name) == f"clusterkit docs {Path(name).stem}"
        assert (ROOT / "docs" / name).is_file()
    for template in (ROOT / "templates").rglob("*"):
        if template.is_file():
            lines = template.read_text(encoding="utf-8").splitlines()
            assert not [line for line in lines if "docs/" in line and not re.match(r" *(#|\{#)", line)], (
                template
            )


def _texts(file: Path) -> Iterator[tuple[str, bool]]:
    """Every text in a module, and whether it is documentation of the code."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, id(node) in documentation
