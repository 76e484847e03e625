"""A third backend, of `queue_folder.py`: what a stranger would write for a scheduler of their own."""

import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from clusterkit.backends.base import Backend, Capabilities
from clusterkit.backends.jobs import Found, Job, JobState, QueryResult
from clusterkit.errors import SchedulerError
from clusterkit.probes import Probe, sections

STATES = {"waiting": JobState.PENDING, "running": JobState.RUNNING}


class SpoolBackend(Backend):
    """Jobs are files; their ids count up from 1."""

    title = "the spool"
    can = Capabilities(queue=True, arrays=False, steps=False)

    def _argv(self, *words: str) -> list[str]:
        return [sys.executable, str(Path(__file__).with_name("queue_folder.py")), os.environ["SPOOL"], *words]

    def submit_argv(self, script: str, *, run_dir: str, job_name: str, options: Sequence[str]) -> list[str]:
        return self._argv("submit", *options, script, run_dir)

    def accepted(self, answer: str, task: int | None = None) -> str | None:
        found = re.search(r"^(\d+)$" if task is None else rf"^{task} (\d+)$", answer, re.MULTILINE)
        return found[1] if found else None

    def find(self, job_name: str, script: str, since: str) -> Probe[Found]:
        def read(text: str) -> Found:
            rows = _rows(text)
            return Found(tuple(number for number, _, path in rows or () if path == script), rows is not None)

        return Probe(f"find {job_name}", f"ck_part jobs {shlex.join(self._argv('list'))}", read)

    def cancel_argv(self, job_ids: Sequence[str]) -> list[str]:
        return self._argv("cancel", *job_ids)

    def query(self, job_ids: Sequence[str]) -> Probe[QueryResult]:
        def read(text: str) -> QueryResult:
            rows = _rows(text)
            if rows is None:
                raise SchedulerError("the spool gave no answer")
            return QueryResult({number: Job(number, STATES[state], state) for number, state, _ in rows})

        return Probe("query", f"ck_part jobs {shlex.join(self._argv('list'))}", read)


def _rows(text: str) -> list[list[str]] | None:
    told = next(
        (section for section in sections(text) if section.name == "jobs" and section.status == 0), None
    )
    return None if told is None else [line.split(" ", 2) for line in told.lines]


BACKEND = SpoolBackend()
