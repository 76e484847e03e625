"""demo: submit, watch, sync and report a run on this machine, in one go."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from clusterkit.backends.jobs import JobState
from clusterkit.commands.logs import logs
from clusterkit.commands.report import Reported, report
from clusterkit.commands.sync import Synced, SyncRequest, sync_results
from clusterkit.errors import ConfigError, RunError
from clusterkit.report.groups import group_runs, load_runs
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.log_source import Wanted
from clusterkit.runs.program import trains
from clusterkit.runs.status import StatusRow
from clusterkit.runs.watching import watch
from clusterkit.submit.pipeline import Submitted, resolve, submit
from clusterkit.submit.request import SubmitRequest
from clusterkit.transport.base import Bar

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings

_LAST_LINES = 15


@dataclass(frozen=True)
class Demonstrated:
    """The result of the demo."""

    row: StatusRow
    success: Mapping[str, float]
    """Final success rate by task, 0..1, and `mean`."""
    synced: Synced
    reported: Reported
    seconds: float
    """Time from submission to report."""


def demo(
    settings: Settings,
    ledger: Ledger,
    *,
    profile: str,
    given: tuple[str, ...],
    bar: Bar,
    on_submit: Callable[[Submitted], None],
    on_row: Callable[[StatusRow], None],
) -> Demonstrated:
    """Run a profile on the local cluster, from submission to report.

    Args:
        settings: of the project.
        ledger: of the project.
        profile: the profile's name.
        given: options that changed the profile, as typed.
        bar: opens progress bars.
        on_submit: called once the run is submitted.
        on_row: called every second with the run's status.

    Raises:
        ConfigError: the profile does not run the bundled trainer.
        RunError: the run did not complete; the message includes the end of its log.
    """
    start = time.monotonic()
    request = SubmitRequest(settings.cluster("local"), settings.profile(profile), given=given)
    plan = resolve(settings, request)
    if not trains(plan.runs[0].program.argv):
        raise ConfigError(
            f"the profile {profile} runs a program of this project, and the demo shows the bundled trainer",
            hint="run the demo in another folder; `clusterkit submit` submits this project's program",
        )
    submitted = submit(settings, plan, ledger, bar=bar)
    on_submit(submitted)
    (run,) = submitted.runs
    for watched in watch(settings, ledger, names=[run.run_id]):
        (row,) = watched.report.rows
        on_row(row)
    if row.state.state is not JobState.COMPLETED:
        tail = b"".join(data for _, data in logs(settings, [run], Wanted(lines=_LAST_LINES), bar=bar))
        raise RunError(
            f"{run.run_id} is {row.state.state}: {row.state.why}\n{tail.decode(errors='replace').rstrip()}",
            hint=f"`clusterkit logs {run.run_id}` shows the whole log",
        )
    synced = sync_results(settings, SyncRequest(names=(run.run_id,)), ledger, bar=bar)
    folder = synced.results / run.run_id
    reported = report([folder], folder / "report", now=datetime.now(UTC))
    (group,) = group_runs(load_runs([folder]))
    finals = {task: group.final(f"success/{task}") for task in (*group.tasks, "mean")}
    success = {task: point.value for task, point in finals.items() if point}
    return Demonstrated(row, success, synced, reported, time.monotonic() - start)
