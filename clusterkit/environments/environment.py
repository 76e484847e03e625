"""A project's Python environment: what its file asks for, and the digest that names it."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clusterkit.environments.requirements import (
    Requirements,
    not_portable,
    package_folders,
    parsed,
    project_requirements,
    read_requirements,
)
from clusterkit.errors import ConfigError, last_words

FILES = ("uv.lock", "requirements.txt", "environment.yml", "pyproject.toml")
"""What `init` looks for, the most exact first."""
_SHOWN = re.compile(r"(?:\w+\+)?https?://[^\s/@]+@|://[^\s/@:]+:[^\s/@]+@|\$\{\w+\}", re.IGNORECASE)
_CONDA = (".yml", ".yaml")
_INCLUDED = re.compile(r"[\"']?(?:-[rce]|--requirement|--constraint|--editable)\b(?!.*://)")
_PYPI = "https://pypi.org/simple"
_FORM = "1"
"""Raised where the same file is built in another way."""


@dataclass(frozen=True)
class Environment:
    """An environment by what it is made of."""

    digest: str
    """SHA-256, 32 hexadecimal digits of it."""
    file: str
    """The project's file, relative to the project."""
    packages: int
    """Packages that the file names."""
    paths: tuple[str, ...] = ()
    """Folders of the project's own packages, which programs import from their copy of the code."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Its files on the cluster; empty for one that only a run's record names."""
    locked: bool = False
    """Whether the inputs name every package with its version and hash, so that nothing is resolved."""

    @property
    def facts(self) -> dict[str, Any]:
        """Its description in run.json, without its path."""
        return {
            "digest": self.digest,
            "file": self.file,
            "packages": self.packages,
            "paths": list(self.paths),
        }

    @classmethod
    def recorded(cls, facts: Mapping[str, Any]) -> Environment:
        """Returns the environment of a recorded run."""
        return cls(facts["digest"], facts["file"], int(facts["packages"]), tuple(facts["paths"]))


def find_file(project: Path) -> str | None:
    """Returns the file that says most exactly which packages a project needs; None without any."""
    for name in FILES:
        file = project / name
        if file.is_file() and (name != FILES[-1] or "\ndependencies" in file.read_text(errors="replace")):
            return name
    return None


def read_environment(project: Path, file: Path, image: str) -> Environment:
    """Reads a project's file.

    Args:
        project: the project's folder.
        file: its file.
        image: what identifies the image that the environment lies on top of; empty without a container.

    Raises:
        ConfigError: the file is missing, or asks for what cannot travel; the hint says what to write.
    """
    name = _inside(project, file)
    try:
        text = file.read_text(encoding="utf-8-sig")
        found = _read(project, file, text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            f"{name} cannot be read: {error}", hint="correct it, or `environment` in [project]"
        ) from None
    texts = {"environment.yml": text} if file.suffix in _CONDA else found.files
    for shown in texts.values():
        if match := _SHOWN.search(shown):
            raise ConfigError(
                f"{name} names an address with a password or a variable, {match[0].rpartition('//')[0]}//...",
                hint="take it out: pip's own configuration on the cluster can name the index, with its login",
            )
    about = f"on_image {'yes' if image else 'no'}\npython {found.requires_python}\n"
    about += f"options {'--no-deps --require-hashes' if found.locked else ''}\n"
    parts = [_FORM, about, *(part for item in sorted(texts.items()) for part in item), image]
    identity = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    inputs = {"about": f"{about}file {name}\n", **texts}
    return Environment(identity, name, found.count, found.paths, inputs, found.locked)


def _read(project: Path, file: Path, text: str) -> Requirements:
    if file.name == "uv.lock":
        return _exported(project, file)
    if file.suffix in _CONDA:
        lines = re.findall(r"^\s*- (.*[^:\s])\s*$", text, re.MULTILINE)
        if wrong := next((line for line in lines if not_portable(line) or _INCLUDED.match(line)), None):
            raise ConfigError(f"{file.name}: {wrong} is a file of this machine", hint="name packages instead")
        return Requirements(count=len(lines))
    if file.name == "pyproject.toml":
        return project_requirements(project, file, text)
    if file.suffix in (".txt", ".in"):
        return read_requirements(project, file)
    raise ConfigError(
        f'environment = "{file.name}" is none of the files that clusterkit can read',
        hint=f"it reads {', '.join(FILES)}, or files like them",
    )


def _exported(project: Path, file: Path) -> Requirements:
    """Returns what uv has locked, as uv itself writes it; it starts nothing of the project."""
    uv = shutil.which("uv")
    if uv is None:
        raise ConfigError(
            f"{file.name} is read by uv, which is not on PATH here",
            hint="install uv; or name what `uv export --frozen -o requirements.txt` has written instead",
        )
    argv = [uv, "export", "--frozen", "--offline", "--no-emit-local", "--no-header", "--no-annotate"]
    done = subprocess.run([*argv, "--quiet"], cwd=file.parent, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = last_words(done.stderr)
        hint = "`uv lock` writes it anew; `uv self update` brings a uv that knows these options"
        raise ConfigError(f"uv cannot read {file.name}: {words}", hint=hint)
    settings = file.with_name("pyproject.toml")
    own = tomllib.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else {}
    lock = tomllib.loads(file.read_text(encoding="utf-8"))
    found = parsed(project, file, _other_indexes(lock) + done.stdout)
    plain = tuple(line for line in found.lines if not line.startswith("-") and "--hash=" not in line)
    return replace(
        found,
        lines=tuple(line for line in found.lines if line not in plain),
        unhashed=plain,
        requires_python=lock.get("requires-python", ""),
        paths=package_folders(project, file.parent) if "build-system" in own else (),
    )


def _other_indexes(lock: Mapping[str, Any]) -> str:
    """Returns pip's options for the indexes that a lock names beside PyPI; `uv export` leaves them out."""
    sources = [package.get("source", {}).get("registry", "") for package in lock.get("package", ())]
    others = sorted({url.rstrip("/") for url in sources if url.startswith("http")} - {_PYPI})
    return "".join(f"--extra-index-url {url}\n" for url in others)


def _inside(project: Path, file: Path) -> str:
    try:
        name = file.resolve().relative_to(project.resolve()).as_posix()
    except ValueError:
        name = ""
    if not name or not file.is_file():
        raise ConfigError(
            f"environment: {file} is not a file of the project",
            hint="`environment` in [project] names a file in the project's folder, e.g. requirements.txt",
        )
    return name
