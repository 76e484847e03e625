"""All settings of one invocation, checked, each value with its origin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from clusterkit.config.layers import (
    COMMAND_LINE,
    DEFAULT,
    Layer,
    Merged,
    Origin,
    built_in_layer,
    find_project_file,
    is_users,
    merge,
    nearest,
    read_layer,
    refuse_foreign,
    shipped_layer,
    shipped_profiles,
    user_file,
    user_path,
)
from clusterkit.config.lines import Key, join_key, split_key
from clusterkit.config.models import TRAINER_ONLY, Cluster, Document, Profile, ProjectTable, SecretsTable
from clusterkit.config.notify import Notify, refuse_shared_webhook, without_secret
from clusterkit.config.permission import RESULTS, Permission
from clusterkit.config.values import written
from clusterkit.errors import ConfigError

_LIST_ALL = "`clusterkit config --all` lists all settings"


_Named = TypeVar("_Named", Cluster, Profile)


class Setting(NamedTuple):
    """A value as written in a file: "64G" and not its bytes."""

    key: Key
    value: object
    origin: Origin


class Profiles(Mapping[str, Profile]):
    """All profiles by name. A shipped profile is read when it is first used."""

    def __init__(self, checked: Mapping[str, Profile], check: Callable[[str], Profile]) -> None:
        """Hold the profiles read so far.

        Args:
            checked: profiles that a settings file names or extends.
            check: reads one more.
        """
        self._checked, self._check = dict(checked), check
        self._names = dict.fromkeys([*shipped_profiles(), *checked])

    def __getitem__(self, name: str) -> Profile:
        """Raises KeyError for an unknown name."""
        if name not in self._checked and name in self._names:
            self._checked[name] = self._check(name)
        return self._checked[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True)
class Settings:
    """Checked settings. Made by `load_settings`; never changed, only derived from.

    Attributes:
        clusters: by name; always holds `local`.
        profiles: by name, the shipped ones included.
        project: the user's project.
        secrets: those that programs get.
        notify: notices of ended runs.
        project_dir: absolute folder of clusterkit.toml, or the current one without such a file.
        files: the user's settings files that were read, weakest first.
        permission: whether the project may start what it names for this machine.
    """

    clusters: Mapping[str, Cluster]
    profiles: Mapping[str, Profile]
    project: ProjectTable
    secrets: SecretsTable
    notify: Notify
    project_dir: Path
    files: tuple[Path, ...]
    layers: tuple[Layer, ...]
    merged: Merged
    permission: Permission

    @property
    def of_project(self) -> bool:
        """Whether a project's own settings were read, not only the user's."""
        return bool(set(self.files) - {user_file()})

    def results_to_write(self) -> Path:
        """The folder of results, for what writes to it.

        Raises:
            NotAllowedError: the project names one elsewhere, and the user has not allowed it.
        """
        self.permission.require([RESULTS])
        return self.project.results

    def cluster(self, name: str | None = None) -> Cluster:
        """A cluster; None is the project's default.

        Raises:
            ConfigError: the name is unknown; the hint names the nearest and lists all.
        """
        return self._named("cluster", self.clusters, name, "default_cluster")

    def profile(self, name: str | None = None) -> Profile:
        """A profile; None is the project's default.

        Raises:
            ConfigError: the name is unknown; the hint names the nearest and lists all.
        """
        return self._named("profile", self.profiles, name, "default_profile", self.offered_profiles)

    @property
    def offered_profiles(self) -> tuple[str, ...]:
        """Names of profiles without the bundled trainer's where the project's program is another."""
        if self.project.program is None:
            return tuple(self.profiles)
        tables = (layer.data.get("profiles") for layer in self.layers)
        named = {name for table in tables if isinstance(table, Mapping) for name in table}
        if self._origin(("project", "default_profile")) != DEFAULT:
            named.add(self.project.default_profile)
        return tuple(name for name in self.profiles if name in named)

    def profile_to_run(self, name: str | None = None) -> Profile:
        """A profile as `profile` returns it, for a run whose program a setting or the command line names.

        Raises:
            ConfigError: as `profile`; or nothing names a program: the bundled trainer would start unasked.
        """
        default = ("project", "default_profile")
        if name is None and self.project.program is None and self._origin(default) == DEFAULT:
            raise ConfigError(
                "nothing says what to run: [project] sets neither `program` nor `default_profile`, and "
                "--profile is not given",
                hint="`clusterkit init --local` finds your program; `clusterkit profiles` lists the profiles",
            )
        return self.profile(name)

    def unread(self, profile: Profile) -> tuple[str, ...]:
        """Keys of a profile that the user's files set, but that no program of the user's own can get."""
        if not (profile.program or self.project.program):
            return ()
        sources = {key: self.merged.sources.get(("profiles", profile.name, key)) for key in TRAINER_ONLY}
        return tuple(key for key, source in sources.items() if source and source.layer.file in self.files)

    def with_values(self, values: Mapping[str, object]) -> Settings:
        """These settings overridden by values of the command line.

        Example: ``settings.with_values({"profiles": {"a40-2m": {"time": "2h"}}})``. Checked like a file.

        Raises:
            ConfigError: a key or value is wrong.
        """
        layers = (*self.layers, Layer(COMMAND_LINE, values))
        return settings_from(layers, self.project_dir, self.files)

    def whole(self) -> Settings:
        """The same settings with all shipped profiles merged in."""
        return settings_from(self.layers, self.project_dir, self.files, also=shipped_profiles())

    def origin(self, dotted: str) -> Origin:
        """Where the value of a dotted key was written.

        Raises:
            ConfigError: there is no such key.
        """
        key, whole = _parsed(dotted), self.whole()
        if not any(known[: len(key)] == key for known, _ in whole._leaves()):
            raise ConfigError(f"there is no setting {dotted}", hint=_LIST_ALL)
        return whole._origin(key)

    def values(self, under: str = "") -> list[Setting]:
        """Every setting that has a value, below the dotted key `under` if given.

        Raises:
            ConfigError: there is nothing below `under`.
        """
        prefix, whole = _parsed(under) if under else (), self.whole()
        found = [
            Setting(key, value, whole._origin(key))
            for key, value in whole._leaves()
            if key[: len(prefix)] == prefix
        ]
        if not found:
            raise ConfigError(f"there is no setting {under}", hint=_LIST_ALL)
        return found

    def _origin(self, key: Key) -> Origin:
        source = self.merged.sources.get(key)
        return source.origin if source else DEFAULT

    def _leaves(self) -> Iterator[tuple[Key, object]]:
        data = self.merged.data
        yield from _walk(self.project, data.get("project", {}), ("project",))
        yield from _walk(self.secrets, data.get("secrets", {}), ("secrets",))
        for name, cluster in self.clusters.items():
            yield from _walk(cluster, data["clusters"][name], ("clusters", name))
        for name, profile in self.profiles.items():
            yield from _walk(profile, data["profiles"][name], ("profiles", name))
        notify = dict(data.get("notify", {}))
        if self.notify.webhook:
            notify["webhook"] = without_secret(self.notify.webhook)
        yield from _walk(self.notify, notify, ("notify",))

    def _named(
        self,
        kind: str,
        known: Mapping[str, _Named],
        name: str | None,
        default: str,
        offered: Sequence[str] | None = None,
    ) -> _Named:
        wanted = name if name is not None else getattr(self.project, default)
        if wanted in known:
            return known[wanted]
        where = "" if name is not None else f"{self._origin(('project', default))}: project.{default}: "
        raise ConfigError(
            f"{where}there is no {kind} {wanted!r}", hint=nearest(wanted, offered or list(known))
        )


def settings_from(
    layers: tuple[Layer, ...], project_dir: Path, files: tuple[Path, ...], *, also: Iterable[str] = ()
) -> Settings:
    """Merges and checks layers.

    Args:
        layers: the built-in one and those of settings files, weakest first.
        project_dir: absolute folder of clusterkit.toml.
        files: that were read.
        also: shipped profiles to check besides those that the layers name or extend.

    Raises:
        ConfigError: a key or value is wrong; one line per fault.
    """
    shipped = shipped_profiles()
    merged = merge((*_shipped_layers(layers, shipped, also), *layers), shipped)
    refuse_shared_webhook(merged, user_path())
    of_project = files[-1] if files and not is_users(files[-1]) else None
    permission = Permission(of_project, project_dir, merged)
    try:
        document = Document.model_validate(
            written(_with_names(merged), permission), context={"project_dir": project_dir, "of_files": True}
        )
    except ValidationError as error:
        from clusterkit.config.problems import config_error

        raise config_error(error, merged, Document) from None

    def checked(name: str) -> Profile:
        return settings_from(layers, project_dir, files, also=(name,)).profiles[name]

    return Settings(
        clusters=document.clusters,
        profiles=Profiles(document.profiles, checked),
        project=document.project,
        secrets=document.secrets,
        notify=document.notify,
        project_dir=project_dir,
        files=files,
        layers=layers,
        merged=merged,
        permission=permission,
    )


def _shipped_layers(
    layers: Sequence[Layer], shipped: Mapping[str, Path], also: Iterable[str]
) -> Iterator[Layer]:
    """The requested or changed shipped profiles, and those they extend."""
    wanted, seen = set(also), set[str]()
    for layer in layers:
        tables = layer.data.get("profiles")
        for name, table in tables.items() if isinstance(tables, Mapping) else ():
            wanted |= {name, _base(table)}
    while names := sorted(name for name in shipped if name in wanted and name not in seen):
        for name in names:
            layer = shipped_layer(shipped[name])
            wanted.add(_base(layer.data["profiles"][name]))
            seen.add(name)
            yield layer


def _base(table: object) -> str:
    """The profile that a profile's table extends; empty for none."""
    base = table.get("extends") if isinstance(table, Mapping) else None
    return base if isinstance(base, str) else ""


def _with_names(merged: Merged) -> dict[str, Any]:
    """The document with every cluster's and profile's name filled in, which files may not set."""
    document = dict(merged.data)
    for group in ("clusters", "profiles"):
        members = document.get(group)
        if not isinstance(members, dict):
            continue
        for name, member in members.items():
            if isinstance(member, dict) and "name" in member:
                key = (group, name, "name")
                raise ConfigError(
                    f"{merged.origin(key)}: {join_key(key)}: unknown key; the table itself has the name",
                    hint=f"rename the table: [{group}.{member['name']}]",
                )
        document[group] = {
            name: {**member, "name": name} if isinstance(member, dict) else member
            for name, member in members.items()
        }
    return document


def _parsed(dotted: str) -> Key:
    try:
        return split_key(dotted)
    except ValueError as error:
        raise ConfigError(str(error), hint="write e.g. profiles.a40-2m.time") from None


def _walk(model: BaseModel, raw: Mapping[str, Any], key: Key) -> Iterator[tuple[Key, object]]:
    """Every value below a model, as written if a layer gives it."""
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if value is None or (name == "name" and key[0] != "project"):
            continue
        if isinstance(value, BaseModel):
            yield from _walk(value, raw.get(name, {}), (*key, name))
        elif isinstance(value, Mapping):
            for entry, inner in value.items():
                if isinstance(inner, BaseModel):
                    yield from _walk(inner, raw[name][entry], (*key, name, entry))
                else:
                    yield (*key, name, entry), raw.get(name, {}).get(entry, inner)
        elif name in raw or field.is_required():
            yield (*key, name), raw.get(name, value)
        else:
            derived = name in model.model_fields_set
            yield (*key, name), value if derived else field.default


def load_settings(*, config: Path | None = None, start: Path | None = None) -> Settings:
    """Reads and checks all settings of files: built-in < user file < project file.

    Args:
        config: the project's file (`--config`); None looks for clusterkit.toml from `start` upwards.
        start: a folder; None is the current one.

    Raises:
        ConfigError: the file found belongs to another user or came with results, or a file cannot be
            read, is not TOML, or has a wrong key or value; then one line per fault.
    """
    begin = start.resolve() if start else Path.cwd()
    found = config.resolve() if config else find_project_file(begin)
    if found and not config:
        refuse_foreign(found, begin)
    project_dir = found.parent if found else begin
    files = tuple(file for file in (user_file(), found) if file)
    layers = (built_in_layer(project_dir), *map(read_layer, files))
    return settings_from(layers, project_dir, files)
