"""`clusterkit diff`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from clusterkit.cli import options
from clusterkit.cli.ui.console import note, out, print_document, printable
from clusterkit.errors import RunError
from clusterkit.project import load, open_ledger
from clusterkit.results.logs.run_logs import read_run
from clusterkit.results.metrics import meant, no_such_metric
from clusterkit.site import connected
from clusterkit.units import beside, format_bytes, format_seconds, percents_beside, plural

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from clusterkit.runs.ledger import Ledger
    from clusterkit.sharing.comparison import Changed, ComparedCode, Comparison
    from clusterkit.sharing.description import DescribedRate, Description
    from clusterkit.transport.base import Transport


def diff(
    a: Annotated[
        str | None,
        typer.Argument(metavar="A", help="A run, or a folder with one; the last two runs if left out."),
    ] = None,
    b: Annotated[
        str | None,
        typer.Argument(metavar="B", help="Another one; if left out, A and the run before it are compared."),
    ] = None,
    metric: options.Metric = None,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Show the differences between two runs.

    Compares recipe, profile, arguments, code, image, versions and results; without the results if a run was
    not synced.

    Examples:
      # the last two runs
      clusterkit diff
      # a run and the one submitted before it
      clusterkit diff mt10-20260102
      # a folder and a run
      clusterkit diff results/mine last --json

    See also: clusterkit report, sharing.md
    """
    settings = load(config)
    named = [name for name in (a, b) if name is not None]
    with open_ledger(settings, only_reads=True, of=named) as ledger:
        comparison = compare_runs(settings, ledger, *pair(ledger, named), metric)
    (print_json if as_json else show_diff)(comparison)


def pair(ledger: Ledger, named: Sequence[str]) -> tuple[str, str]:
    """Completes the names of the two runs to compare: the earlier one first.

    Args:
        ledger: knows the order in which runs were submitted.
        named: two names; one, to compare that run with the one before it; or none, for the last two.

    Raises:
        RunError: the run is unknown, or no run was submitted before it.
    """
    if len(named) == 2:
        return named[0], named[1]
    known = ledger.runs()
    if len(known) < 2:
        raise RunError(
            f"there is nothing to compare: this project has {len(known) or 'no'} run{'s' * (not known)}",
            hint="`clusterkit submit` starts one",
        )
    later = ledger.find_one(named[0]) if named else known[-1]
    place = known.index(later)
    if place == 0:
        raise RunError(
            f"no run was submitted before {later.run_id}",
            hint=f"name the run to compare it with: `clusterkit diff {later.run_id} RUN`",
        )
    return known[place - 1].run_id, later.run_id


def compare_runs(settings: Settings, ledger: Ledger, a: str, b: str, metric: str | None = None) -> Comparison:
    """Compares two runs.

    Args:
        settings: of the project.
        ledger: finds runs that were not synced.
        a: a run, or the path of a run directory.
        b: likewise.
        metric: the only one to compare; None compares the main ones.

    Raises:
        RunError: a run is unknown, or cannot be read; or none logs the metric.
        TransportError: a run has no local copy and its cluster cannot be reached.
    """
    from clusterkit.sharing.comparison import compare

    with ExitStack() as stack:
        transport_to = cache(lambda name: stack.enter_context(connected(settings.cluster(name))))
        old, new = (_describe(settings, ledger, name, transport_to, metric) for name in (a, b))
    if metric is not None and not old.logged | new.logged >= {meant(metric, old.logged | new.logged)}:
        raise no_such_metric(metric, old.logged | new.logged)
    return compare(old, new, _code(settings, old, new))


def _describe(
    settings: Settings,
    ledger: Ledger,
    name: str,
    transport_to: Callable[[str], Transport],
    metric: str | None,
) -> Description:
    from clusterkit.results.pulled import read_recorded
    from clusterkit.runs.run_dir import read_run_dir, table
    from clusterkit.sharing.description import describe

    found = read_recorded(settings.project.results, ledger, name, transport_to)
    if found.folder is None:
        assert found.run is not None, "else it is not known where it lies"
        where = f"{found.run.cluster}:{found.run.run_dir}"
        return describe(found.document, where, request=found.request)
    logs = read_run(found.folder, own=not table(found.document, "recipe"), step=settings.project.step)
    where, attempts = str(found.folder), read_run_dir(found.folder).attempts
    return describe(found.document, where, found.request, logs.rows, attempts, metric)


def _code(settings: Settings, a: Description, b: Description) -> ComparedCode:
    """Returns the code differences, without files such as results, which may be in git but are not code."""
    from clusterkit.sharing.comparison import Changed, ComparedCode, changed_in
    from clusterkit.snapshots import git
    from clusterkit.snapshots.collect import left_out
    from clusterkit.submit.materials import excluded

    project = settings.project_dir
    elsewhere = left_out(project, excluded(settings))
    old, new = a.snapshot, b.snapshot
    if old.get("id") == new.get("id"):
        return ComparedCode()
    between: tuple[Changed, ...] | None = ()
    commits = str(old.get("git_commit") or ""), str(new.get("git_commit") or "")
    if commits[0] != commits[1]:
        files = git.between(project, *commits) if all(commits) else None
        between = (
            None if files is None else tuple(Changed(*each) for each in files if not elsewhere.match(each[0]))
        )
    return ComparedCode(between, *(changed_in(str(one.get("diff") or "")) for one in (old, new)))


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
    from clusterkit.sharing.comparison import as_json

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
    from clusterkit.sharing.description import DescribedRate

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
