"""Puts drafted tables into the text of a settings file, and leaves everything else in it as it is. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence

from clusterkit.config.lines import Key, join_key, key_lines, lines_of, table_lines
from clusterkit.errors import ConfigError
from clusterkit.survey.draft import Draft
from clusterkit.survey.tables import Table, render


def merged(text: str, draft: Draft) -> str:
    """The file's text with the draft in it.

    The cluster's own tables are replaced where they stand, with the comments in and right above them; else
    they come at the end. A profile of a name that is there already stays as it is, and so do the project's
    settings.

    Args:
        text: valid TOML; empty for a new file.
        draft: what to put in.

    Raises:
        ConfigError: the cluster is there in a form that cannot be replaced, as an inline table.
    """
    present = key_lines(text)
    cluster = draft.cluster[0].key
    profiles = [table for table in draft.profiles if table.key not in present]
    if not text.strip():
        return render([draft.project, *draft.cluster, *profiles])
    end = "\r\n" if text.count("\r\n") == text.count("\n") else "\n"
    lines = lines_of(text)
    first, rest = _without(lines, cluster, present)
    tables = render(draft.cluster).rstrip("\n").split("\n")
    if first is None:
        rest = [*_stripped(rest), "", *tables]
    else:
        rest[first:first] = [*tables, ""]
    rest = _with_project(rest, draft.project)
    if profiles:
        rest = [*_stripped(rest), "", *render(profiles).rstrip("\n").split("\n")]
    return end.join(_stripped(rest)) + end


def added(text: str, project: Table, tables: Sequence[Table]) -> str:
    """The file's text with those of these settings that it lacks; every existing line stays.

    Args:
        text: valid TOML; empty for a new file.
        project: its table, whose keys are added that the file does not have.
        tables: others; one whose key is there in any form is left out.
    """
    if not text.strip():
        return render([project, *tables])
    present = key_lines(text)
    end = "\r\n" if text.count("\r\n") == text.count("\n") else "\n"
    lines = _with_keys(lines_of(text), project)
    new = [table for table in tables if table.key not in present]
    if new:
        lines = [*_stripped(lines), "", *render(new).rstrip("\n").split("\n")]
    return end.join(_stripped(lines)) + end


def without_key(text: str, key: Key) -> str:
    """The text without a key's line; unchanged where no line below the table's header begins with the key."""
    lines = text.split("\n")
    number = key_lines(text).get(key)
    if number is None or not lines[number - 1].lstrip().startswith(key[-1]):
        return text
    return "\n".join(lines[: number - 1] + lines[number:])


def table_of(text: str, cluster: str) -> dict[str, object]:
    """The cluster's table as it stands in a file's text; empty where it has none."""
    found = tomllib.loads(text).get("clusters", {})
    table = found.get(cluster, {}) if isinstance(found, dict) else {}
    return table if isinstance(table, dict) else {}


def _without(lines: list[str], cluster: Key, present: dict[Key, int]) -> tuple[int | None, list[str]]:
    """The lines without the cluster's tables, and where the first of them stood."""
    headers = table_lines("\n".join(lines))
    owned = [start for start, key in headers if key[: len(cluster)] == cluster]
    if cluster in present and not owned:
        raise ConfigError(
            f"line {present[cluster]}: {join_key(cluster)} has no header of its own, so it stays as it is",
            hint="write it as a table, [clusters.NAME], or give the new one another name with --name",
        )
    starts = [_with_comment(lines, start) for start, _ in headers] + [len(lines)]
    kept, first = lines[: starts[0]], None
    for (start, _), begin, end in zip(headers, starts, starts[1:], strict=False):
        if start not in owned:
            kept += lines[begin:end]
            continue
        first = len(kept) if first is None else first
        kept += _apart(lines[begin:end])
    return first, kept


def _apart(region: Sequence[str]) -> Sequence[str]:
    """Comments behind a table that an empty line parts from it: they are about what follows."""
    last = max(at for at, line in enumerate(region) if line.strip() and not line.lstrip().startswith("#"))
    gap = next((at for at in range(last + 1, len(region)) if not region[at].strip()), len(region))
    return region[gap + 1 :] if any(line.strip() for line in region[gap:]) else ()


def _with_comment(lines: Sequence[str], header: int) -> int:
    """Index of the first of the comment lines right above a header; `header` counts from 1."""
    index = header - 1
    while index > 0 and lines[index - 1].lstrip().startswith("#"):
        index -= 1
    return index


def _with_project(lines: list[str], project: Table) -> list[str]:
    """With the default cluster and profile, where the file says nothing of them."""
    if ("project", "default_cluster") in key_lines("\n".join(lines)):
        return lines
    return _with_keys(lines, project)


def _with_keys(lines: list[str], project: Table) -> list[str]:
    """With those of a table's keys that the file does not have."""
    text = "\n".join(lines)
    present = key_lines(text)
    new = [one for one in project.entries if ("project", one.key) not in present]
    if not new:
        return lines
    added = Table(project.key, tuple(new)).lines()
    header = next((start for start, key in table_lines(text) if key == project.key), None)
    if header is not None:
        return [*lines[:header], *added[1:], *lines[header:]]
    if project.key in present:
        return lines
    return [*added, "", *lines]


def _stripped(lines: list[str]) -> list[str]:
    """Without empty lines at the end."""
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    return lines[:end]
