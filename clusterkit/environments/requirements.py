"""Reads requirements for pip: a requirements.txt with what it includes, or a project's pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterkit.errors import ConfigError

_INCLUDE = re.compile(r"(?P<kind>-r|--requirement|-c|--constraint)(?:\s*=?\s*)(?P<file>\S.*)")
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s*=?\s*)(?P<what>\S.*)")
_ADDRESS = re.compile(r"[\w.-]+\s*(?:\[[^\]]*\])?\s*@\s*(.*)")
_LINKS = re.compile(r"(?:-f|--find-links)[\s=]*")
_PIN = re.compile(r"[\w.-]+(?:\[[^\]]*\])?\s*==\s*[^\s*;]+(?:\s*;.*?)?\s+--hash=")


@dataclass(frozen=True)
class Requirements:
    """What pip is to install."""

    lines: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    requires_python: str = ""
    paths: tuple[str, ...] = ()
    """Folders of the project's own packages."""
    count: int = 0
    """Packages that are named."""
    unhashed: tuple[str, ...] = ()
    """Packages of a lock that have no hash, such as a commit; pip takes them only apart from the others."""

    @property
    def locked(self) -> bool:
        """Whether every line has a version and a hash: then pip adds no package."""
        packages = [line for line in self.lines if not line.startswith("-")]
        return bool(packages) and all(map(_PIN.match, packages))

    @property
    def files(self) -> dict[str, str]:
        """The files for pip."""
        options = tuple(line for line in self.lines if line.startswith("-"))
        unhashed = (*options, *self.unhashed) if self.unhashed else ()
        texts = {
            "requirements.txt": self.lines,
            "constraints.txt": self.constraints,
            "unhashed.txt": unhashed,
        }
        return {name: "".join(f"{line}\n" for line in lines) for name, lines in texts.items() if lines}


def not_portable(requirement: str) -> bool:
    """Returns whether a requirement is a path or file of this machine."""
    target = address[1] if (address := _ADDRESS.match(requirement)) else requirement
    links = _LINKS.match(target)
    first = re.split(r"[\s;]", target[links.end() :] if links else target, maxsplit=1)[0].strip("\"'")
    path = links is not None or first.endswith((".whl", ".tar.gz", ".zip"))
    return first.startswith((".", "/", "~", "file:")) or (path and "://" not in first)


def read_requirements(project: Path, file: Path) -> Requirements:
    """Reads a requirements file, with the files that it includes written into it.

    Raises:
        ConfigError: a line names what other machines do not have, or an included file is outside the project.
        OSError, UnicodeDecodeError: a file cannot be read.
    """
    return parsed(project, file, file.read_text(encoding="utf-8-sig"))


def parsed(project: Path, file: Path, text: str) -> Requirements:
    """Reads the text of a requirements file; as `read_requirements`."""
    lines = list(_expanded(project, file, text, (), "-r"))
    wanted = []
    for kind, line in lines:
        what = match["what"] if (match := _EDITABLE.fullmatch(line)) else line
        if not_portable(what):
            raise ConfigError(
                f"{file.name}: `{line}` is of this machine and does not travel",
                hint="code of the project travels with each run: leave it out, and name what it needs",
            )
        wanted += [what] if kind == "-r" else []
    return Requirements(
        lines=tuple(wanted),
        constraints=tuple(line for kind, line in lines if kind == "-c"),
        count=sum(not line.startswith("-") for line in wanted),
    )


def _expanded(
    project: Path, file: Path, text: str, above: tuple[Path, ...], kind: str
) -> Iterator[tuple[str, str]]:
    """Yields the lines of a file and of what it includes, each with the option that included it."""
    for line in re.sub(r"\\\s*\n", " ", text).splitlines():
        line = " ".join(re.sub(r"(^|\s)#.*$", "", line).split())
        if match := _INCLUDE.fullmatch(line):
            inner = (file.parent / match["file"]).resolve()
            if not inner.is_relative_to(project.resolve()) or inner in (*above, file.resolve()):
                raise ConfigError(
                    f"{file.name} includes {match['file']}, which is itself, or outside the project",
                    hint="copy what is needed of it into the project",
                )
            option = "-c" if match["kind"] in ("-c", "--constraint") else kind
            content = inner.read_text(encoding="utf-8-sig")
            yield from _expanded(project, inner, content, (*above, file.resolve()), option)
        elif line:
            yield kind, line


def has_address(requirement: str) -> bool:
    """Returns whether a package is fetched from its own address instead of an index."""
    return not requirement.startswith("-") and "://" in requirement


def project_requirements(project: Path, file: Path, text: str) -> Requirements:
    """Reads the dependencies in a pyproject.toml.

    Raises:
        ConfigError: it does not list them.
        TOMLDecodeError: it is not TOML.
    """
    document = tomllib.loads(text)
    table: dict[str, Any] = document.get("project", {})
    if "dependencies" not in table or "dependencies" in table.get("dynamic", ()):
        raise ConfigError(
            f"{file.name} has no list `dependencies` in [project]",
            hint="write them to requirements.txt, e.g. with `poetry export`, and name that file instead",
        )
    lines = "".join(f"{' '.join(line.split())}\n" for line in table["dependencies"])
    found = parsed(project, file, lines)
    paths = package_folders(project, file.parent) if "build-system" in document else ()
    return Requirements(found.lines, (), table.get("requires-python", ""), paths, found.count)


def package_folders(project: Path, folder: Path) -> tuple[str, ...]:
    """Returns where in a project a folder's own packages are imported from, in the two usual layouts."""
    source = folder / "src" if (folder / "src").is_dir() else folder
    return (source.resolve().relative_to(project.resolve()).as_posix(),)
