"""Merges drafted tables into a settings file's text, leaving everything else unchanged. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clusterkit.config.edit import Editor
from clusterkit.config.lines import Key, WrittenTable

_HINT = "write to another file with --config FILE, and copy what you want from there"


@dataclass(frozen=True, kw_only=True)
class SettingsDraft:
    """The drafted settings of one cluster."""

    cluster: tuple[WrittenTable, ...]
    """`[clusters.NAME]` and its subtables; other existing ones stay."""
    gone: tuple[Key, ...]
    """Existing keys and tables of the cluster to remove."""
    profiles: tuple[WrittenTable, ...]
    project: WrittenTable


def merged(text: str, draft: SettingsDraft) -> str:
    """Merges the draft into the file's text.

    In an existing cluster only differing values change, in place. Existing profiles and the project's
    settings stay. New tables of the cluster follow its last one; all other new tables go to the end.

    Args:
        text: valid TOML; empty for a new file.
        draft: the draft.

    Raises:
        ConfigError: the file's form cannot be changed.
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


def added(
    text: str, project: WrittenTable, tables: Sequence[WrittenTable], *, without: Key | None = None
) -> str:
    """Adds missing settings to the file's text; every existing line stays.

    Args:
        text: valid TOML; empty for a new file.
        project: the project's table, whose missing keys are added.
        tables: other tables; existing ones are skipped.
        without: an existing key to remove first.

    Raises:
        ConfigError: the file's form cannot be changed.
    """
    editor = Editor(text, project.key, hint=_HINT)
    if without is not None:
        editor.remove(without)
    editor.add_missing(project)
    for table in tables:
        if editor.value(table.key) is None:
            editor.insert(table)
    return editor.text()
