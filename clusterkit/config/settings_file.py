"""A proposed settings file: its changes, its settings, and how it is saved."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from clusterkit.config.layers import (
    PROJECT_FILE,
    Layer,
    built_in_layer,
    display_path,
    find_project_file,
    home_folder,
    read_layer,
    user_file,
    user_path,
)
from clusterkit.config.settings import Settings, settings_from
from clusterkit.errors import ConfigError
from clusterkit.folders import replace_file
from clusterkit.resources import TEMPLATES


@dataclass(frozen=True)
class Proposal:
    """A proposed settings file, not written yet."""

    file: Path
    old: str | None
    """None if there is no file."""
    new: str

    @property
    def changes(self) -> list[str]:
        """Lines of a unified diff; empty without changes."""
        before, after = (self.old or "").splitlines(), self.new.splitlines()
        name = display_path(self.file)
        return list(unified_diff(before, after, name, f"{name} (new)", lineterm=""))

    @property
    def only_adds(self) -> bool:
        """Whether every existing line stays."""
        return not any(line.startswith("-") for line in self.changes[2:])


def target(config: Path | None, *, user: bool) -> Path:
    """The file to write: the one named, the user's own, or the project's, which may not exist yet.

    Raises:
        ConfigError: the user's own file is requested without a home folder; or the whole home would become
            one project.
    """
    if config is not None:
        return config.resolve()
    if not user:
        found = find_project_file(Path.cwd())
        if found is None and Path.cwd() == home_folder():
            raise ConfigError(
                "this is your home folder: a clusterkit.toml here would turn all of it into one project",
                hint="go to your project's folder first, or write your own file with --user",
            )
        return found or Path.cwd() / PROJECT_FILE
    own = user_path()
    if own is None:
        raise ConfigError("there is no home folder to write to", hint="name the file with --config FILE")
    return own


def examples() -> dict[str, str]:
    """The ready-made site descriptions, by name."""
    files = sorted((TEMPLATES / "clusters").glob("*.toml"))
    return {file.stem: file.read_text(encoding="utf-8").lstrip("# ").partition(", as")[0] for file in files}


def from_example(name: str, file: Path) -> Proposal:
    """A ready-made site description, as a whole file.

    Raises:
        ConfigError: the name is unknown.
    """
    known = examples()
    if name not in known:
        raise ConfigError(f"there is no example {name!r}", hint=f"available: {', '.join(known)}")
    text = (TEMPLATES / "clusters" / f"{name}.toml").read_text(encoding="utf-8")
    return Proposal(file, read(file), text)


def save(proposal: Proposal) -> None:
    """Write the file atomically; what a new file, or one that was allowed, names for this machine is allowed.

    Raises:
        ConfigError: it cannot be written, or has changed in the meantime.
    """
    file, name = proposal.file.resolve(), display_path(proposal.file)  # a link stays one
    is_own = _is_own(proposal)
    try:
        now = file.read_bytes() if file.exists() else None
        if _text(now) != proposal.old:
            raise ConfigError(
                f"{name} was changed in the meantime; nothing was written", hint="repeat the command"
            )
        file.parent.mkdir(parents=True, exist_ok=True)
        mode = file.stat().st_mode & 0o777 if file.exists() else 0o644
        replace_file(file, proposal.new.encode(), mode=mode)
    except OSError as error:
        raise ConfigError(
            f"{name} cannot be written: {error.strerror}",
            hint="check the folder's permissions and its free space",
        ) from None
    if is_own:
        checked(proposal.file, proposal.new).permission.allow(interpreters=proposal.old is None)


def _is_own(proposal: Proposal) -> bool:
    """Whether the file is the user's own work: new, or what it names for this machine is allowed."""
    if proposal.old is None:
        return True
    try:
        return checked(proposal.file, proposal.old).permission.is_users
    except (ConfigError, tomllib.TOMLDecodeError):
        return False


def _text(data: bytes | None) -> str | None:
    """Decodes a file's bytes for `read`."""
    return None if data is None else data.decode("utf-8-sig", "replace")


def read(file: Path) -> str | None:
    """A file's text; None if missing."""
    if not file.exists():
        return None
    return read_layer(file).text


def checked(file: Path, text: str) -> Settings:
    """The settings with this text in the file.

    Raises:
        ConfigError: a key or value is wrong.
    """
    layer = Layer(display_path(file), tomllib.loads(text), file, text)
    layers, files = [built_in_layer(file.parent)], [file]
    own = user_file()
    if own is not None and own != file:
        layers.append(read_layer(own))
        files.insert(0, own)
    return settings_from((*layers, layer), file.parent, tuple(files))
