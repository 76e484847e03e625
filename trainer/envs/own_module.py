"""Finds out whose code an environment's `module:EnvId` would run, without importing anything.

The name may come from someone else's model, and importing a module runs it. So the module must be an
installed package, a file that git tracks here, or one the user names, and never code that came with results.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from trainer.arguments import Parser
from trainer.errors import UsageError
from trainer.recipe.environments import split_environment

_PACKAGES = ("site-packages", "dist-packages")
_GIT = ("git", "-c", "core.fsmonitor=false", "ls-files", "--error-unmatch", "--")
_GIT_SECONDS = 20.0
_PLAIN = re.compile(r"[\w +,-]*")
"""An argument that is neither a path nor the name of a module."""


def add_whose_code(parser: Parser) -> None:
    """Adds the options that name trusted code."""
    parser.add_argument(
        "--environment",
        metavar="MODULE:ID",
        help="the model's environment, where its module is yours but neither installed nor tracked by git",
    )
    parser.add_argument(
        "--pulled",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="never run code that lies here; may be repeated",
    )


def refuse_foreign(
    model: Path, values: Mapping[str, Any], *, named: str | None, pulled: Sequence[Path]
) -> None:
    """Refuses an environment of a model whose module is not the user's own.

    A module of the working directory can be imported afterwards, also where Python itself leaves that out.

    Args:
        model: the file or checkpoint; code inside its run is never executed either.
        values: of the recipe that the model was trained with, as the model has them.
        named: the environment that the user named, whose module is then trusted.
        pulled: folders with other people's files; code there is never executed.

    Raises:
        UsageError: the module is neither installed, nor tracked by git here, nor named; or it lies in
            `pulled`; or the model was trained in another environment than the one that was named; or the
            environment was not named and has an argument that may name code or a file.
    """
    environment = values.get("environment", "")
    if not isinstance(environment, str):
        raise UsageError(f"the model's environment is not a name: {str(environment)[:80]!r}")
    if named is not None and named != environment:
        raise UsageError(f"the model was trained in {environment or 'Meta-World'}, not in {named}")
    identity, arguments = split_environment(environment)
    if named is None and (
        odd := next((text for text in _texts(arguments) if not _PLAIN.fullmatch(text)), None)
    ):
        raise UsageError(
            f"the model's environment {environment!r} has an argument that may name code or a file: {odd!r}",
            hint=f"only if you trust it: --environment {shlex.quote(environment)}",
        )
    module, colon, _ = identity.partition(":")
    if not colon:
        return  # one that is registered already
    if "__main__" in module.split("."):
        raise UsageError(f"the model's environment {environment!r} is a program, which is not run")
    spec = _find(module)
    own = model.resolve().parent
    own = own.parent if own.parent.name == "checkpoints" else own  # a file of a checkpoint
    own = own.parent if own.name == "checkpoints" else own
    inside = Path.cwd().is_relative_to(own)  # then a repository here may have come with the model
    folders = [folder.resolve() for folder in pulled] + ([] if inside else [own])
    for place in spec.places:
        if any(place.is_relative_to(folder) for folder in folders):
            raise UsageError(
                f"the model's environment {environment!r} is code that came with results: {place}",
                hint="it is not run from there: read it first, then install it or add it to your project",
            )
    files = () if spec.installed or named is not None else spec.files
    unknown = next((file for file in files if inside or not _tracked(file)), None)
    if unknown is not None:
        raise UsageError(
            f"the model's environment {environment!r} would run {unknown}, "
            "which is neither installed nor tracked by git in a project of yours",
            hint=f"only if you trust that code: --environment {shlex.quote(environment)}",
        )
    if spec.places and not spec.installed and (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for part in (
        [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from _texts(part)


@dataclass(frozen=True)
class _FoundModule:
    """Where a module comes from: real paths."""

    installed: bool
    files: tuple[Path, ...]
    """What importing it runs, its packages first."""
    places: tuple[Path, ...]
    """The same, and the folders of packages without code of their own."""


def _find(module: str) -> _FoundModule:
    """Looks as an import would, as far as it can be seen without running a package's own code."""
    first, *rest = module.split(".")
    specs: list[ModuleSpec] = []
    spec = _first(first)
    while spec is not None:
        specs.append(spec)
        inside = list(spec.submodule_search_locations or ())
        # by its last name alone: a package that has not been imported cannot be asked for its path
        spec = PathFinder.find_spec(rest.pop(0), inside) if rest else None
    files = [Path(spec.origin) for spec in specs if spec.has_location and spec.origin]
    folders = [Path(folder) for spec in specs for folder in spec.submodule_search_locations or ()]
    own = _own_folders()
    packages = [Path(folder) for spec in specs[:1] for folder in spec.submodule_search_locations or ()]
    return _FoundModule(
        installed=not any(path.parent.resolve() in own for path in packages or files[:1]),
        files=tuple(file.resolve() for file in files),
        places=tuple(place.resolve() for place in (*files, *folders)),
    )


def _first(name: str) -> ModuleSpec | None:
    """Where a module or package of the first level is, once the working directory can be imported from."""
    for finder in sys.meta_path:
        spec = finder.find_spec(name, None) if hasattr(finder, "find_spec") else None
        if spec is not None and (spec.has_location or spec.submodule_search_locations is None):
            return spec
    # folders of one name without code of their own are one package, that of the working directory among them
    return PathFinder.find_spec(name, [*sys.path, str(Path.cwd())])


def _own_folders() -> set[Path]:
    """Folders that Python imports from without anything being installed there."""
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    listed = [
        folder for folder in named if not (Path(folder).is_absolute() and Path(folder).name in _PACKAGES)
    ]
    return {Path.cwd(), *(Path(folder).resolve() for folder in listed)}


def _tracked(file: Path) -> bool:
    """Whether it belongs to the git repository of the working directory."""
    try:
        process = subprocess.run(
            [*_GIT, str(file)],
            env={**os.environ, "GIT_LITERAL_PATHSPECS": "1", "GIT_NO_LAZY_FETCH": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return process.returncode == 0
