"""`clusterkit report`."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from clusterkit.cli import options
from clusterkit.cli.ui.console import err, note, out, print_document, printable, say, warn
from clusterkit.cli.ui.lines import best_line, plain_table
from clusterkit.project import load, open_ledger
from clusterkit.units import beside, percents_beside

if TYPE_CHECKING:
    from clusterkit.commands.report import Reported, ReportRow
    from clusterkit.config.settings import Settings
    from clusterkit.report.advice import GroupAdvice
    from clusterkit.report.main_metric import MainResult

_HEADLINES = 4


def report(
    runs: options.Runs = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Folder to write the report to.")
    ] = None,
    metric: options.Metric = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    advice: Annotated[
        bool,
        typer.Option(
            "--advice",
            help="Write nothing; print what the runs requested and used, and what would be faster.",
        ),
    ] = False,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Draw learning curves and write a one-page report.

    Reads synced runs: the last one, or those named. Runs that differ only in their seed are averaged.

    Examples:
      # curves and one HTML page
      clusterkit report last
      # all seeds of a sweep, shown in the browser
      clusterkit report mt10-20260102-030405-k3f9 --open
      # what to request next time
      clusterkit report last --advice

    See also: clusterkit curves, clusterkit diff, report.md
    """
    from datetime import UTC, datetime

    from clusterkit.commands.report import advise_runs, find_pulled, report_folder
    from clusterkit.commands.report import report as command

    settings = load(config)
    results = settings.project.results
    with open_ledger(settings, only_reads=True, of=runs or ()) as ledger:
        folders = find_pulled(results, runs or ["last"], ledger)
    if advice:
        found = advise_runs(folders)
        if as_json:
            print_document({"schema": 1, "advice": [_advice_object(one) for one in found]})
        else:
            show_advice(found)
        return
    folder = out or report_folder(settings.results_to_write(), folders)
    step = settings.project.step
    reported = command(folders, folder, now=datetime.now(UTC), metric=metric, step=step)
    if as_json:
        print_json(reported)
    else:
        show_reported(reported)
        _note_best(settings, folders)
    if show and not webbrowser.open(reported.page.resolve().as_uri()):
        note(f"no browser was found; open {reported.page.resolve()}")


def _note_best(settings: Settings, folders: Sequence[Path]) -> None:
    """Says which trial is the best of a search among the runs."""
    from clusterkit.search.summary import read_bests

    names = {folder.resolve().name for folder in folders}
    for best in read_bests(settings.project_dir / ".clusterkit").values():
        if best.run_id in names and len(names) > 1:
            note(best_line(best))


def print_json(reported: Reported) -> None:
    """Prints one JSON object on standard output; see docs/json.md."""
    print_document(
        {
            "schema": 1,
            "groups": [_group_object(row) for row in reported.rows],
            "files": [str(path) for path in reported.files],
            "left_out": list(reported.left_out),
            "equal": [{"runs": list(one.run_ids), "names": list(one.names)} for one in reported.equal],
            "advice": [_advice_object(one) for one in reported.advice],
        }
    )


def _group_object(row: ReportRow) -> dict[str, Any]:
    found = row.result
    point = found and found.point
    low, high = (point and point.interval) or (None, None)
    return {
        "group": row.group,
        "runs": row.runs,
        "step": row.step,
        "metric": found and found.name,
        "value": point and point.value,
        "low": low,
        "high": high,
        "last_tenth": found.last_tenth if found else False,
        "diverged": len(found.diverged) if found else 0,
    }


def _advice_object(advice: GroupAdvice) -> dict[str, Any]:
    return {
        "group": advice.label,
        "headlines": advice.headlines,
        "needs": [asdict(need) for need in advice.needs],
        "bottleneck": advice.bottleneck and asdict(advice.bottleneck),
        "changes": [asdict(change) for change in advice.changes],
        "checks": [asdict(check) for check in advice.checks],
    }


def show_reported(reported: Reported) -> None:
    """Prints each group's final results, and where the page is."""
    table = plain_table("group", padding=(0, 1))
    table.add_column("runs", justify="right")
    table.add_column("steps", justify="right")
    titles = list(dict.fromkeys(row.result.title for row in reported.rows if row.result))
    for name in (*titles, "95% interval"):
        table.add_column(Text(printable(name)), justify="right", no_wrap=True)
    values = {title: _finals(reported.rows, title) for title in titles}
    for place, row in enumerate(reported.rows):
        finals = [values[title][place] for title in titles]
        steps = row.result.at if row.result else f"{row.step:,}"
        table.add_row(Text(row.group), str(row.runs), steps, *finals, _interval(row.result))
    out.print(table)
    for row in {row.result.meaning: row for row in reported.rows if row.result}.values():
        assert row.result
        note(("mean of the last tenth of the steps; " if row.result.last_tenth else "") + row.result.meaning)
    for equal in reported.equal:
        warn("warning: ", str(equal))
    if not any(row.result for row in reported.rows):
        note("no run has logged a number: the page has their logs, times and machines")
    if reported.left_out:
        note(f"nothing to draw, left out: {', '.join(reported.left_out)}")
    say(str(reported.page))
    if pictures := sorted({path.name for path in reported.files} - {reported.page.name}):
        note(f"beside it: {', '.join(pictures)}")
    show_headlines(reported.advice)


def _finals(rows: Sequence[ReportRow], title: str) -> list[str]:
    """Formats the column of one metric's final values; `-` for groups that report another metric."""
    mine = [row.result if row.result and row.result.title == title else None for row in rows]
    values = [one.point.value if one and one.point else None for one in mine]
    texts = percents_beside(values) if any(one and one.rate for one in mine) else beside(values)
    return ["not finite" if one and not one.point else text for one, text in zip(mine, texts, strict=True)]


def _interval(found: MainResult | None) -> str:
    if found is None or found.point is None or found.point.interval is None:
        return "-"
    low, high = found.point.interval
    first, last = percents_beside([low, high]) if found.rate else beside([low, high])
    return f"{first} to {last}"


def show_headlines(advice: Sequence[GroupAdvice]) -> None:
    """Prints a few lines of advice at the end of another command's output."""
    for one in advice:
        prefix = f"{one.label}: " if len(advice) > 1 else ""
        for line in one.headlines[: max(1, _HEADLINES // len(advice))]:
            err.print(Text(f"{prefix}{line}"))
    if any(one.headlines for one in advice):
        note("more: the page, or `clusterkit report --advice`")


def show_advice(advice: Sequence[GroupAdvice]) -> None:
    """Prints all advice: requested and used resources, bottlenecks, faster options, what went wrong."""
    for number, one in enumerate(advice):
        if number:
            out.print()
        if len(advice) > 1:
            out.print(Text(one.label, style="bold"))
        if one.needs:
            needs = _wrapping_table("resource", "asked for", "used", "enough", "for the profile")
            for need in one.needs:
                used = Text(need.used, style="yellow" if need.too_little else "")
                setting = Text(need.setting or "", style="bold")
                needs.add_row(need.resource, need.requested, used, need.enough, setting)
            out.print(needs)
            out.print()
        if one.bottleneck:
            out.print(Text(one.bottleneck.text))
        changes = Table.grid(padding=(0, 1, 0, 0))
        for change in one.changes:
            words = Text.assemble((change.setting, "bold"), f": {change.gain}; {change.why}")
            changes.add_row(Text("faster", style="green"), words)
        if one.bottleneck or one.changes:
            out.print(changes)
            out.print()
        if one.checks:
            checks = _wrapping_table("rule", "", "measured")
            for check in one.checks:
                verdict = Text(check.verdict, style="yellow" if check.cure else "green")
                cure = (f"; {check.cure}", "bold") if check.cure else ""
                checks.add_row(check.rule, verdict, Text.assemble(check.measured, cure))
            out.print(checks)


def _wrapping_table(*headings: str) -> Table:
    table = plain_table(padding=(0, 1))
    for heading in headings:
        table.add_column(heading)
    return table
