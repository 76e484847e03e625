"""Tells of runs that have ended, for every command that finds it out."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from clusterkit.backends.jobs import JobState
from clusterkit.errors import ClusterkitError

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings
    from clusterkit.notices import FailureCause, Notice
    from clusterkit.runs.ledger import Ledger, LedgerRun
    from clusterkit.runs.status import StatusRow
    from clusterkit.transport.base import Transport

_CAUSES = 3
"""Most runs of one look whose cause is collected, one round trip each; of others the state is told."""
_SECONDS = 20.0
"""Of waiting for one cause."""


class Notifier:
    """Tells of ended runs as the settings ask; what goes wrong becomes a line in `faults`, never an error."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self.faults: list[str] = []
        """Why notices did not arrive; they are not sent again."""
        self._notify, self._ledger, self._step = settings.notify, ledger, settings.project.step
        self._silent = False
        """Whether the cluster has not given the evidence of a cause at this look."""

    def tell(self, cluster: Cluster, transport: Transport, ended: Sequence[StatusRow]) -> None:
        """Sends one notice of the runs of a cluster that were found to have ended, unless they were told of.

        Args:
            cluster: of the runs.
            transport: open, for their causes.
            ended: runs with the rows that the ledger had before, and their new states.
        """
        from clusterkit.notices import as_one, failed, of_group, of_run, send

        if not ended or not self._notify.from_here or not self._ledger.lasting:
            return
        try:
            runs, groups = self._claimed(ended)
        except sqlite3.DatabaseError as error:
            self.faults.append(f"no notice of {_names(ended)}: the ledger: {error}")
            return
        self._silent = False
        notices: list[Notice] = []
        for number, row in enumerate(sorted(runs, key=failed, reverse=True)):
            looked = number < _CAUSES
            cause = self._cause(cluster, transport, row) if looked else None
            headline = self._headline(transport, row.run) if looked and not failed(row) else None
            notices.append(of_run(row, cause, headline))
        for rows in groups[:_CAUSES]:
            bad = [row for row in rows if failed(row) and row.run.cluster == cluster.name]
            notices.append(of_group(rows, self._cause(cluster, transport, bad[-1]) if bad else None))
        notices += [of_group(rows) for rows in groups[_CAUSES:]]
        if notices:
            notice = as_one(notices)
            for place, fault in send(self._notify, notice):
                if fault:
                    self.faults.append(f'no notice "{notice.title}" by {place}: {fault}')

    def foot(self) -> str:
        """Returns the newest fault, for a live view; empty without one."""
        return self.faults[-1] if self.faults else ""

    def _claimed(self, ended: Sequence[StatusRow]) -> tuple[list[StatusRow], list[list[StatusRow]]]:
        """Returns the runs, and the groups with all of their runs, that this process is to tell of."""
        from clusterkit.notices import claim, failed

        connection, on = self._ledger.connection, self._notify.on
        groups = []
        for group in dict.fromkeys(row.run.group for row in ended if row.run.group):
            rows = self._whole(group, ended) if "group" in on else []
            if rows and claim(connection, "group", group, sum(map(_number, rows))):
                groups.append(rows)
        over = {rows[0].run.group for rows in groups}
        runs = []
        for row in ended:
            event, group = "failed" if failed(row) else "ended", row.run.group
            if event not in on or _was_seen(row.run) or (group and event == "ended"):
                continue
            # Of a group only the first failure: an error in the program fails all of its runs.
            mine = claim(connection, event, group or row.run.run_id, _number(row))
            if mine and group not in over and not row.state.told:
                runs.append(row)
        return runs, groups

    def _whole(self, group: str, ended: Sequence[StatusRow]) -> list[StatusRow]:
        """Returns all runs of a group that has ended otherwise than by a cancel; none while it goes on."""
        from clusterkit.runs.selection import known_state, settled
        from clusterkit.runs.status import StatusRow

        now = {row.run.run_id: row for row in ended}
        rows = []
        for run in self._ledger.runs():
            if run.group != group:
                continue
            if run.run_id not in now and not settled(run):
                return []
            rows.append(now.get(run.run_id) or StatusRow(run, known_state(run)))
        cancelled = all(row.state.state is JobState.CANCELLED for row in rows)
        return [] if cancelled else rows

    def _headline(self, transport: Transport, run: LedgerRun) -> str | None:
        """Returns what the main metric of an own program came to; None of others, and if logs do not come."""
        from clusterkit.results.growing import GrowingRun, read_logs
        from clusterkit.results.logs.run_logs import RunLogs
        from clusterkit.results.series import headline

        if run.recipe:
            return None
        logs = RunLogs(self._step)
        with suppress(ClusterkitError):
            read_logs(transport, [GrowingRun(run.run_dir, logs, own=True)], find=True)
        return headline(logs.rows)

    def _cause(self, cluster: Cluster, transport: Transport, row: StatusRow) -> FailureCause | None:
        """Returns why a run failed; its state's reason if the evidence says less or does not come."""
        from clusterkit.notices import FailureCause, failed

        said = row.state.why
        if failed(row) and not self._silent:
            from clusterkit.commands.why import ask
            from clusterkit.diagnosis import UNKNOWN, Sure, diagnose, parse_evidence

            try:
                (text,) = ask(cluster, transport, self._ledger, [row.run], seconds=_SECONDS)
                finding = diagnose(parse_evidence(text)).finding
            except ClusterkitError:
                self._silent = True
            else:
                failed_state = row.state.state is JobState.FAILED
                vague = finding.sure is Sure.GENERAL and (finding.cause is UNKNOWN or not failed_state)
                said = said if said and vague else finding.sentence
        return FailureCause(row.run.run_id, said) if said else None


def _was_seen(run: LedgerRun) -> bool:
    """Returns whether a command that the user watched has noted the end: `cancel`, `dev` or `rehearse`."""
    from clusterkit.runs.state import remembered

    last = remembered(run.last)
    return not JobState(run.state).active and (last is None or last.state != run.state)


def _number(row: StatusRow) -> int:
    """Returns the number of the submission that ended."""
    return max(row.run.submission, row.state.submission or 0)


def _names(rows: Sequence[StatusRow]) -> str:
    return rows[0].run.run_id + (f" and {len(rows) - 1} more" if len(rows) > 1 else "")
