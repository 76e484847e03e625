"""Puts drafted tables into the text of a settings file, and leaves everything else in it as it is. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clusterkit.config.edit import Editor
from clusterkit.config.lines import Key
from clusterkit.config.tables import Table

_HINT = "write to another file with --config FILE, and take from there what you want"


@dataclass(frozen=True, kw_only=True)
class SettingsDraft:
    """The settings of one cluster."""

    cluster: tuple[Table, ...]
    """`[clusters.NAME]` and the tables below it; what else is there stays."""
    gone: tuple[Key, ...]
    """Keys and tables of the cluster that were there before and no longer hold."""
    profiles: tuple[Table, ...]
    project: Table


def merged(text: str, draft: SettingsDraft) -> str:
    """The file's text with the draft in it.

    Of a cluster that is there, only what the draft says otherwise changes, where it stands. A profile of a
    name that is there already stays as it is, and so do the project's settings. New tables of the cluster
    come behind its last one, and all other new ones at the end.

    Args:
        text: valid TOML; empty for a new file.
        draft: what to put in.

    Raises:
        ConfigError: the file is written in a way that cannot be changed.
    """
    editor = Editor(text, draft.cluster[0].key, hint=_HINT)
    for key in draft.gone:
        editor.remove(key)
    if editor.value(("project", "default_cluster")) is None:
        editor.add_missing(draft.project)
    for table in draft.cluster:
        editor.update(table)
    for table in draft.profiles:
        if editor.value(table.key) is None:
            editor.insert(table)
    return editor.text()


def added(text: str, project: Table, tables: Sequence[Table], *, without: Key | None = None) -> str:
    """The file's text with those of these settings that it lacks; every existing line stays.

    Args:
        text: valid TOML; empty for a new file.
        project: its table, whose keys are added that the file does not have.
        tables: others; one whose key is there in any form is left out.
        without: a key that the file has and that goes first.

    Raises:
        ConfigError: the file is written in a way that cannot be changed.
    """
    editor = Editor(text, project.key, hint=_HINT)
    if without is not None:
        editor.remove(without)
    editor.add_missing(project)
    for table in tables:
        if editor.value(table.key) is None:
            editor.insert(table)
    return editor.text()
