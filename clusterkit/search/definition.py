"""What a search was asked to do, kept in its folder, `.clusterkit/searches/NAME/`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from clusterkit.environments.environment import Environment
from clusterkit.errors import ConfigError, RunError
from clusterkit.folders import locked, make_private, replace_file
from clusterkit.images.image import Image
from clusterkit.submit.group import member_id
from clusterkit.submit.materials import Materials

SCHEMA = 1
TRIALS, AT_ONCE = 24, 4
_FILE = "search.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
_MAY_CHANGE = ("trials", "at_once")


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A search. All but `trials`, `at_once` and `materials` is fixed when it begins."""

    name: str
    group: str
    """Id of the group of its runs."""
    created: str
    """UTC, ISO 8601."""
    size: int
    """Number of trials asked for at first, which sets the length of the run ids."""
    space: Mapping[str, str]
    """Parameter -> its values, as `clusterkit.search.space.parse` reads them."""
    metric: str
    """As the program logs it."""
    direction: str
    """`maximize` or `minimize`."""
    sampler: str
    """`tpe` or `random`."""
    prune: str
    """`asha` or `none`."""
    cluster: str
    profile: str
    trials: int = TRIALS
    at_once: int = AT_ONCE
    """Maximum number of trials under way."""
    time: str | None = None
    total_steps: int | None = None
    overrides: tuple[str, ...] = ()
    """Recipe values, `name=value`."""
    unlock: tuple[str, ...] = ()
    native: tuple[str, ...] = ()
    """Scheduler options."""
    arguments: tuple[str, ...] = ()
    """Arguments after `--`."""
    materials: Mapping[str, Any] | None = None
    """The code and the image of all trials; None before the first."""

    def run_id(self, number: int) -> str:
        """Returns the id of a trial's run, which is always the same: no trial can have two."""
        return member_id(self.group, number, self.size)

    def changed(self, given: Mapping[str, Any]) -> Definition:
        """Returns the search with what a later command asks for.

        Args:
            given: the command's options by field; None for one that was left out.

        Raises:
            ConfigError: it asks for another search.
        """
        asked = {name: value for name, value in given.items() if value is not None}
        for name, value in asked.items():
            if name not in _MAY_CHANGE and getattr(self, name) != value:
                raise ConfigError(
                    f"search {self.name} has begun with another {name.replace('_', ' ')}",
                    hint=f"`clusterkit search {self.name}` goes on with it; "
                    "a search of another name can have another",
                )
        return replace(self, **asked)

    def with_materials(self, materials: Materials) -> Definition:
        """Returns the search with the code and the image of its trials."""
        return replace(self, materials=asdict(materials))

    def recorded_materials(self) -> Materials | None:
        """Returns the code and the image of its trials; None before the first."""
        if self.materials is None:
            return None
        image, environment = self.materials["image"], self.materials.get("environment")
        parts = {
            "image": Image.recorded(image) if image else None,
            "environment": Environment(**environment) if environment else None,
        }
        return Materials(**{**self.materials, **parts})

    def write(self, folder: Path) -> None:
        """Writes the search into its folder, created if missing."""
        make_private(folder)
        text = json.dumps({"schema": SCHEMA, **asdict(self)}, indent=2)
        replace_file(folder / _FILE, text.encode("utf-8", "surrogateescape"), mode=0o600)


@contextmanager
def held(folder: Path, name: str) -> Iterator[None]:
    """Keeps other processes from driving the same search.

    Raises:
        RunError: another one does.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder))
        except BlockingIOError:
            raise RunError(
                f"another process drives search {name}", hint=f"`clusterkit search {name} --best` shows it"
            ) from None
        yield


def folder_of(home: Path, name: str) -> Path:
    """Returns the folder of a search, in the project's private folder.

    Raises:
        ConfigError: the name cannot be that of a folder.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a search",
            hint="use letters, digits, dots, hyphens and underscores, at most 40, first a letter or digit",
        )
    return home / "searches" / name


def read_definition(folder: Path) -> Definition | None:
    """Reads a search from its folder; None if there is none.

    Raises:
        RunError: the file is damaged.
    """
    file = folder / _FILE
    try:
        document = json.loads(file.read_bytes())
        known = {field.name: document[field.name] for field in fields(Definition)}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{file}: not a readable search: {error}", hint="use another name") from error
    values: dict[str, Any] = {
        name: tuple(one) if isinstance(one, list) else one for name, one in known.items()
    }
    return Definition(**values)
