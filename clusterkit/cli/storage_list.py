"""`clusterkit storage list`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

from clusterkit.cli import options
from clusterkit.cli.ui.console import note, out, print_document, transfer_bar
from clusterkit.cli.ui.lines import plain_table
from clusterkit.project import load, open_ledger
from clusterkit.units import format_bytes, plural

if TYPE_CHECKING:
    from clusterkit.commands.storage import EnvironmentRow, ImageRow


def storage_list(
    cluster: options.Cluster = None,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """List the images and Python environments on a cluster.

    Shows the size of each, when it was last used and the runs that use it; * marks the image that this
    project deploys.

    Examples:
      clusterkit storage list
      clusterkit storage list --cluster uni --json  # for scripts

    See also: clusterkit storage prune, clusterkit deploy, images.md
    """
    from clusterkit.commands.storage import list_stores

    settings = load(config)
    where = settings.cluster(cluster)
    with open_ledger(settings, only_reads=True) as ledger:
        images, environments = list_stores(where, ledger, bar=transfer_bar)
    if as_json:
        print_json(where.name, images, environments)
        return
    show_images(where.name, images)
    show_environments(environments)


_NAMED = 5
"""The maximum number of runs to name."""


def show_images(cluster: str, rows: Sequence[ImageRow]) -> None:
    """Prints one line per image, the most recently used first."""
    if not rows:
        note(f"no images on {cluster}; `clusterkit deploy` sends one")
        return
    table = plain_table("", "image", "size", "last used", "runs", right=("size",), fold=("runs",))
    for row in rows:
        table.add_row(
            "*" if row.ours else "",
            row.image.digest[:12],
            format_bytes(row.image.bytes),
            f"{datetime.fromtimestamp(row.image.used):%Y-%m-%d %H:%M}",
            "damaged" if row.image.damaged else _runs(row, shared=row.image.shared),
        )
    out.print(table)
    note(f"{format_bytes(sum(row.image.bytes for row in rows))} on {cluster}; this project deploys *")


def show_environments(rows: Sequence[EnvironmentRow]) -> None:
    """Prints one line per environment, the most recently used first; nothing without any."""
    if not rows:
        return
    table = plain_table("environment", "size", "last used", "runs", right=("size",), fold=("runs",))
    for row in rows:
        size = format_bytes(row.bytes) if row.bytes else "not built"
        table.add_row(row.digest[:12], size, f"{datetime.fromtimestamp(row.used):%Y-%m-%d %H:%M}", _runs(row))
    out.print(table)


def _runs(row: ImageRow | EnvironmentRow, *, shared: bool = False) -> str:
    if not row.runs:
        return "none of yours; others may use it" if shared else "none"
    count = plural(len(row.runs), "run")
    if not row.unfinished:
        return f"{count}, all ended"
    names = ", ".join(row.unfinished[:_NAMED]) + (", ..." if len(row.unfinished) > _NAMED else "")
    return f"{count}, not ended: {names}"


def print_json(cluster: str, rows: Sequence[ImageRow], environments: Sequence[EnvironmentRow]) -> None:
    """Prints one JSON object on standard output; see docs/json.md."""
    images = [
        {
            "digest": row.image.digest,
            "bytes": row.image.bytes,
            "used": row.image.used,
            "damaged": row.image.damaged,
            "ours": row.ours,
            "shared": row.image.shared,
            "runs": row.runs,
            "unfinished": row.unfinished,
        }
        for row in rows
    ]
    built = [asdict(row) for row in environments]
    print_document({"schema": 1, "cluster": cluster, "images": images, "environments": built})
