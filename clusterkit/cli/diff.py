"""`clusterkit diff`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from clusterkit.cli.common import ConfigOption, JsonOption, load, open_ledger
from clusterkit.cli.ui.console import note, out, print_document, printable
from clusterkit.sharing.comparison import as_json
from clusterkit.sharing.description import DescribedRate
from clusterkit.units import beside, format_bytes, format_seconds, percents_beside, plural

if TYPE_CHECKING:
    from clusterkit.sharing.comparison import Changed, Comparison


def diff(
    a: Annotated[
        str | None,
        typer.Argument(metavar="A", help="A run, or a folder with one; the last two runs if left out."),
    ] = None,
    b: Annotated[
        str | None,
        typer.Argument(metavar="B", help="Another one; if left out, A and the run before it are compared."),
    ] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Show the differences between two runs.

    Compares recipe, profile, arguments, code, image, versions and results; without the results if a run was
    not synced.
    """
    from clusterkit.commands.diff import diff as command
    from clusterkit.commands.diff import pair

    settings = load(config)
    named = [name for name in (a, b) if name is not None]
    with open_ledger(settings, only_reads=True, of=named) as ledger:
        comparison = command(settings, ledger, *pair(ledger, named))
    (print_json if as_json else show_diff)(comparison)


_MOST_FILES = 20


def show_diff(comparison: Comparison) -> None:
    """Prints the two runs, then their differences by section."""
    for letter, run in (("A", comparison.a), ("B", comparison.b)):
        out.print(
            Text.assemble((f"{letter}  ", "bold"), run.run_id, (f"  {printable(run.where)}", "dim")),
            soft_wrap=True,
        )
    out.print()
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("differs", no_wrap=True)
    table.add_column("A", overflow="fold", style="red")
    table.add_column("B", overflow="fold", style="green")
    section = None
    for each in comparison.differences:
        if each.section != section:
            section = each.section
            table.add_row(Text(section, style="bold"))
        cells = map(Text, _pair(each.section, each.name, each.a, each.b))
        table.add_row(Text(f"  {printable(each.name)}"), *cells)
    if comparison.differences:
        out.print(table)
    else:
        out.print("nothing differs")
    _show_code(comparison)
    without = [run.run_id for run in (comparison.a, comparison.b) if not run.has_results]
    if without:
        note(
            f"results were not compared, as they are not here: `clusterkit sync-results {' '.join(without)}`"
        )
    note(f"{comparison.same} other values are the same")


def print_json(comparison: Comparison) -> None:
    """Prints one JSON object on standard output; see docs/json.md."""
    print_document(as_json(comparison))


def _show_code(comparison: Comparison) -> None:
    code = comparison.code
    if code.between is None:
        note("this repository lacks one of the commits, so the changes between them are unknown")
    for title, files in (
        ("changed from A's commit to B's", code.between or ()),
        ("uncommitted in A", code.a),
        ("uncommitted in B", code.b),
    ):
        if files:
            out.print()
            out.print(Text(title, style="bold"))
            out.print(_files(files))
            if len(files) > _MOST_FILES:
                out.print(Text(f"  and {plural(len(files) - _MOST_FILES, 'more file')}", style="dim"))


def _files(files: tuple[Changed, ...]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    table.add_column(justify="right", style="green")
    table.add_column(justify="right", style="red")
    for path, added, removed in files[:_MOST_FILES]:
        counts = (f"+{added}", f"-{removed}")
        if added is None or removed is None:
            counts = ("no text" if added is None else "deleted", "")
        table.add_row(Text(f"  {printable(path)}"), *counts)
    return table


def _pair(section: str, name: str, a: Any, b: Any) -> list[str]:
    """Formats two different values so that their texts differ, too."""
    if isinstance(a, DescribedRate) or isinstance(b, DescribedRate):
        rates = [rate if isinstance(rate, DescribedRate) else None for rate in (a, b)]
        values = percents_beside([rate.value if rate else None for rate in rates])
        return [
            value + _interval(rate) if rate else _shown(section, name, given)
            for value, rate, given in zip(values, rates, (a, b), strict=True)
        ]
    shown = [_shown(section, name, value) for value in (a, b)]
    measured = section == "results" and name != "seconds"
    if shown[0] != shown[1] and not measured:
        return shown
    if all(value is None or isinstance(value, int | float) for value in (a, b)):
        return beside([a, b])
    return shown if shown[0] != shown[1] else [json.dumps(value) for value in (a, b)]


def _interval(rate: DescribedRate | None) -> str:
    return (
        ""
        if rate is None or rate.low is None or rate.high is None
        else f"  ({rate.low:.1%} - {rate.high:.1%})"
    )


def _shown(section: str, name: str, value: Any) -> str:
    if value is None:
        return "-"
    if (section == "results" and name == "seconds") or (section, name) == ("profile", "time"):
        return format_seconds(value)
    if name in ("memory", "scratch", "bytes") and isinstance(value, int):
        return format_bytes(value)
    if name.endswith("unlocked") and isinstance(value, list):
        return " -> ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name in ("commit", "digest"):
        return printable(str(value)[:19])
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
