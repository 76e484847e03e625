"""Logs pulled runs to MLflow through its own client, each step once.

MLflow can only add numbers. So each run there has a tag that says how much of its metrics.jsonl has arrived;
what is in doubt after a crash is read back first.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.errors import TrackerError, TrackerUnusableError, last_words
from clusterkit.folders import make_ignored
from clusterkit.trackers.described import DescribedRun, RunStatus
from clusterkit.trackers.mlflow_folder import repair
from clusterkit.trackers.mlflow_names import LOGGED_TAG, RUN_TAG, file_name, mlflow_name
from clusterkit.trackers.points import MetricPoint, points
from clusterkit.untrusted import open_regular, ordinal, whole_text
from clusterkit_rl.distribution import install_command

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_UNFINISHED = "unfinished"
_SQLITE = "sqlite:///"
_PAGE = _BATCH = 1000
_PARAMETERS = 100
"""The most that MLflow takes at once."""
_TOLD = 100
"""Batches between two lines for the user; they take some seconds."""
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ALLOW_FILE_STORE": "true",  # newer releases refuse a folder without it
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}


class MlflowRuns:
    """The runs of one experiment. Only one process may log to the same runs at a time.

    Args:
        uri: an absolute folder, `sqlite:///` with an absolute path, or an http(s) address.
        experiment: its name; it is created if missing.
        tell: called with a line while many numbers of a run are logged.

    Raises:
        TrackerUnusableError: the client is missing, or MLflow cannot be reached or opened.
    """

    def __init__(self, uri: str, experiment: str, *, tell: Callable[[str], None] = lambda _: None) -> None:
        self._uri, self._is_folder, self._tell = uri, uri.startswith("/"), tell
        with self._explained(TrackerUnusableError):
            self._client = self._open()
            self._experiment = self._experiment_id(experiment)
            if self._is_folder:
                repair(Path(uri) / self._experiment)
            self._there = {run.data.tags[RUN_TAG]: run for run in self._search()}

    def log(self, run: DescribedRun, metrics: Path) -> bool:
        """Bring one run up to date; returns whether anything has changed. Safe to interrupt and to repeat.

        A run that was deleted in MLflow stays deleted.

        Args:
            run: as MLflow should show it.
            metrics: its metrics.jsonl.

        Raises:
            TrackerUnusableError: MLflow cannot be reached.
            TrackerError: it refuses something of this run.
        """
        try:
            return self._log(run, metrics)
        except TrackerError:
            with self._explained(TrackerUnusableError):
                self._client.get_experiment(self._experiment)
            raise

    def _log(self, run: DescribedRun, metrics: Path) -> bool:
        there = self._there.get(run.run_id)
        if there is not None and there.info.lifecycle_stage != "active":
            return False
        with self._explained(TrackerError), open_regular(metrics) as file:
            size = os.fstat(file.fileno()).st_size
            logged = ordinal(there.data.tags.get(LOGGED_TAG, "")) if there is not None else None
            known = logged if logged is not None and logged <= size else None
            if there is None:
                there = self._create(run)
            if known != size:
                self._client.set_tag(there.info.run_id, LOGGED_TAG, _UNFINISHED)
                if known is None:
                    self._log_parameters(there, run)
                self._log_points(there, points(file, known or 0), in_doubt=known is None)
                self._client.set_tag(there.info.run_id, LOGGED_TAG, str(size))
            return self._end(there, run) or known != size

    def _open(self) -> MlflowClient:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            from mlflow import MlflowClient

            if self._uri.startswith(_SQLITE):
                import alembic  # noqa: F401
                import sqlalchemy  # noqa: F401
        except ImportError as error:
            package = (error.name or "").partition(".")[0]
            raise TrackerUnusableError(
                f"the package {package} is not installed here, so nothing is logged to MLflow",
                hint=install_command(extra="trackers"),
            ) from None
        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.ERROR)
        if self._is_folder:
            make_ignored(Path(self._uri).parent)
            return MlflowClient(tracking_uri=Path(self._uri).as_uri())
        if self._uri.startswith(_SQLITE):
            make_ignored(Path(self._uri.removeprefix(_SQLITE)).parent)
        return MlflowClient(tracking_uri=self._uri)

    def _experiment_id(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        # By default, artifacts would go where this process happens to work.
        beside = Path(self._uri.removeprefix(_SQLITE)).parent / "mlartifacts"
        place = beside.as_uri() if self._uri.startswith(_SQLITE) else None
        return str(self._client.create_experiment(name, artifact_location=place))

    def _search(self) -> Iterator[Run]:
        from mlflow.entities import ViewType

        token = None
        while True:
            page = self._client.search_runs(
                [self._experiment], run_view_type=ViewType.ALL, max_results=_PAGE, page_token=token
            )
            yield from (run for run in page if RUN_TAG in run.data.tags)
            token = page.token
            if not token:
                return

    def _create(self, run: DescribedRun) -> Run:
        created: Run = self._client.create_run(
            self._experiment,
            start_time=_milliseconds(run.started),
            tags={RUN_TAG: run.run_id, **run.tags},
            run_name=run.run_id,
        )
        self._there[run.run_id] = created
        return created

    def _log_parameters(self, there: Run, run: DescribedRun) -> None:
        from mlflow.entities import Param

        there_already = there.data.params  # MLflow refuses another value
        names = _Names(there_already, are_files=self._is_folder)
        wanted = [(names[name], whole_text(value)) for name, value in run.parameters.items()]
        new = iter([Param(name, value) for name, value in wanted if name not in there_already])
        while some := list(islice(new, _PARAMETERS)):
            self._client.log_batch(there.info.run_id, params=some, synchronous=True)

    def _log_points(self, there: Run, found: Iterator[MetricPoint], *, in_doubt: bool) -> None:
        """Log the points, except those that MLflow has if that is in doubt."""
        from mlflow.entities import Metric

        run_id, names = there.info.run_id, _Names(there.data.metrics, are_files=self._is_folder)
        steps = {
            key: {one.step for one in self._client.get_metric_history(run_id, key)}
            for key in (there.data.metrics if in_doubt else ())
        }
        new = (one for one in found if one.step not in steps.get(names[one.name], ()))
        for count in itertools.count(1):
            some = list(islice(new, _BATCH))
            if not some:
                return
            batch = [Metric(names[one.name], one.value, int(one.time * 1000), one.step) for one in some]
            self._client.log_batch(run_id, batch, synchronous=True)
            if count % _TOLD == 0:
                self._tell(f"MLflow: {count * _BATCH:,} numbers of {there.info.run_name} logged so far")

    def _end(self, there: Run, run: DescribedRun) -> bool:
        """Record the run's state and end; returns whether they have changed."""
        end = _milliseconds(run.ended)
        if there.info.status == run.status and (end is None or there.info.end_time == end):
            return False
        if run.status is RunStatus.RUNNING:
            self._client.update_run(there.info.run_id, status=run.status)
        else:
            self._client.set_terminated(there.info.run_id, status=run.status, end_time=end)
        return True

    @contextmanager
    def _explained(self, kind: type[TrackerError]) -> Iterator[None]:
        try:
            yield
        except TrackerError:
            raise
        except Exception as error:  # of the client, its database, or its network
            raise kind(f"MLflow at {self._uri}: {last_words(str(error))}") from error


class _Names(dict[str, str]):
    """MLflow's names of a run's metrics or parameters, by ours.

    Args:
        there: those that the run has.
        are_files: whether they are paths, of the file store.
    """

    def __init__(self, there: Iterable[str], *, are_files: bool) -> None:
        self._there, self._are_files = set(there), are_files

    def __missing__(self, name: str) -> str:
        self[name] = file_name(name, self._there) if self._are_files else mlflow_name(name)
        self._there.add(self[name])
        return self[name]


def _milliseconds(time: float | None) -> int | None:
    return None if time is None else int(time * 1000)
