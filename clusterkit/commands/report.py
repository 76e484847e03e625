"""report: draw learning curves and write one page from pulled runs. Reads only the results folder."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import chdir
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from clusterkit.errors import RunError
from clusterkit.folders import make_ignored
from clusterkit.forecast.bench import PROGRAM
from clusterkit.report.advice import GroupAdvice, advise
from clusterkit.report.evidence import read_evidence
from clusterkit.report.facts import EqualRuns, equal_runs
from clusterkit.report.groups import ReportGroup, group_runs, read_runs
from clusterkit.report.main_metric import MainResult, result
from clusterkit.report.main_metric import check as check_metric
from clusterkit.report.measured import measure
from clusterkit.results.pulled import folder_of, group_of, runs_meant
from clusterkit.runs.ledger import Ledger
from clusterkit.untrusted import read_object


@dataclass(frozen=True)
class ReportRow:
    """The result of one group of runs."""

    group: str
    runs: int
    step: int
    result: MainResult | None
    """Its main metric; None if it logged none."""


@dataclass(frozen=True)
class Reported:
    """The contents and files of a report."""

    rows: tuple[ReportRow, ...]
    files: tuple[Path, ...]
    left_out: tuple[str, ...]
    """Runs with nothing to plot, and runs of `tune`."""
    advice: tuple[GroupAdvice, ...]
    """For each group of `rows`, in the same order."""
    equal: tuple[EqualRuns, ...]
    """Runs that are equal in every metric, although their seeds or swept values differ."""

    @property
    def page(self) -> Path:
        """The page, which is the last of the files."""
        return self.files[-1]


def report(
    folders: Sequence[Path], out: Path, *, now: datetime, metric: str | None = None, step: str | None = None
) -> Reported:
    """Write report.html, curves.png, curves.svg, machine.png and machine.svg.

    Args:
        folders: pulled run directories.
        out: folder to write to; created if missing.
        now: the time shown on the page.
        metric: the report's main metric; None for the success rate, or the first logged one, see
            `clusterkit.report.main_metric.result`.
        step: see `read_runs`.

    Raises:
        RunError: a folder is not a run directory, all are runs of `tune`, no run logs the metric, or `out` is
            a file.
    """
    with chdir("/"):  # matplotlib would read the current folder's matplotlibrc
        from clusterkit.report.page import render  # loads matplotlib, which advice does not need
        from clusterkit.report.pictures import write_curves, write_machine

    trained = _trained(folders)
    runs = read_runs(trained, step)
    drawn = [run for run in runs if run.drawable] or runs
    groups = group_runs(drawn)
    if metric:
        check_metric(groups, metric)
    if out.exists() and not out.is_dir():
        raise RunError(
            f"{out}: is a file, and a report is a folder of files", hint="name a folder: --out FOLDER"
        )
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    page = out / "report.html"
    advice = _advice(groups)
    equal = equal_runs(runs)
    text = render(groups, advice, now=now, metric=metric, equal=equal, folder=out)
    page.write_text(text, encoding="utf-8", errors="backslashreplace")
    pictures = write_curves(groups, out, metric)
    pictures += write_machine(groups, advice, out)
    left_out = [run.directory.run_id for run in runs if not run.drawable and drawn is not runs]
    left_out += [folder.name for folder in folders if folder not in trained]
    rows = tuple(_row(group, metric) for group in groups)
    return Reported(rows, (*pictures, page), tuple(left_out), tuple(advice), tuple(equal))


def advise_runs(folders: Sequence[Path]) -> list[GroupAdvice]:
    """Advice for the next run from pulled runs, evaluated or not; writes nothing.

    Raises:
        RunError: a folder is not a run directory, or all are runs of `tune`.
    """
    return _advice(group_runs(read_runs(_trained(folders))))


def find_pulled(results: Path, names: Sequence[str], ledger: Ledger) -> list[Path]:
    """Local run directories by path or by any name of runs; for a group, those that were synced.

    Raises:
        RunError: as `clusterkit.runs.names.find`; or none of a name's runs was synced.
    """
    return list(dict.fromkeys(folder for name in names for folder in _find(results, name, ledger)))


def report_folder(results: Path, folders: Sequence[Path]) -> Path:
    """The default folder of a report: in the run directory for one run, else named after the runs' group.

    The results folder is created, ignored by git, if missing.
    """
    if len(folders) == 1:
        return folders[0] / "report"
    groups = {group_of(folder) for folder in folders}
    name = groups.pop() if len(groups) == 1 else ""
    make_ignored(results)
    return results / "reports" / (name or f"{folders[0].resolve().name}-and-{len(folders) - 1}-more")


def _trained(folders: Sequence[Path]) -> list[Path]:
    """The runs except those of `tune`, which learn nothing and spend most of their time starting up."""
    found = [folder for folder in folders if not _measures(folder)]
    if folders and not found:
        name = folders[0].resolve().name
        raise RunError(
            f"{name} measured settings for `tune` and has trained nothing: there is nothing to report",
            hint=f"`clusterkit tune {name}` shows what it measured",
        )
    return found


def _measures(folder: Path) -> bool:
    argv = (read_object(folder / "run.json") or {}).get("argv")
    return isinstance(argv, list) and tuple(argv[: len(PROGRAM)]) == PROGRAM


def _find(results: Path, name: str, ledger: Ledger) -> list[Path]:
    if (folder := folder_of(name)) is not None:
        return [folder]
    meant = runs_meant(results, name, ledger)
    folders = [results / run.run_id for run in meant if (results / run.run_id / "run.json").is_file()]
    if not folders:
        wanted = meant[0].run_id if len(meant) == 1 else meant[0].group
        raise RunError(
            f"{wanted} is not in {results}", hint=f"`clusterkit sync-results {wanted}` brings it home"
        )
    return folders


def _advice(groups: Sequence[ReportGroup]) -> list[GroupAdvice]:
    return advise({group.label: [measure(read_evidence(run)) for run in group.runs] for group in groups})


def _row(group: ReportGroup, metric: str | None) -> ReportRow:
    found = result(group, metric)
    step = found.last_step if found else max(run.last_step for run in group.runs)
    return ReportRow(group.label, len(group.runs), step, found)
