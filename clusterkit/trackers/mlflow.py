"""Logs pulled runs to MLflow through its own client, each step once.

MLflow can only add numbers. So each run there has a tag that says how many bytes of its logs have arrived;
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
from clusterkit.folders import local_path, make_ignored
from clusterkit.trackers.base import MetricPoint, RunStatus, TrackedRows, TrackedRun, Tracker
from clusterkit.trackers.mlflow_store import LOGGED_TAG, RUN_TAG, file_name, mlflow_name, repair
from clusterkit.untrusted import ordinal, whole_text
from clusterkit_rl.distribution import install_command

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_UNFINISHED = "unfinished"
_SQLITE = "sqlite:///"
_PAGE = _BATCH = 1000
_TAGS = {"git_commit": "mlflow.source.git.commit", "git_branch": "mlflow.source.git.branch"}
"""Tags of a run to which MLflow gives a meaning; the others are `clusterkit.NAME`."""
_PARAMETERS = 100
"""The most that MLflow takes at once."""
_TELL_EVERY = 100
"""Batches between two lines for the user; they take some seconds."""
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ALLOW_FILE_STORE": "true",  # newer releases refuse a folder without it
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}


class Mlflow(Tracker):
    """The runs of one experiment, which has the project's name; it is created if missing."""

    title = "MLflow"
    metavar = "URI"
    help = "Log to MLflow: a folder, sqlite:///FILE, or a server's address."

    def __init__(self, place: str, project: str, tell: Callable[[str], None]) -> None:
        super().__init__(place, project, tell)
        self._is_folder = place.startswith("/")
        with self._explained(TrackerUnusableError):
            self._client = self._open()
            self._experiment = self._experiment_id()
            if self._is_folder:
                repair(Path(place) / self._experiment)
            self._there = {run.data.tags[RUN_TAG]: run for run in self._search()}

    @classmethod
    def place(cls, text: str, folder: Path) -> str:
        """Returns an address as MLflow's client takes it, or an absolute folder.

        >>> Mlflow.place("sqlite:///results/mlflow.db", Path("/home/you/mine"))
        'sqlite:////home/you/mine/results/mlflow.db'

        Args:
            text: a folder, `sqlite:///FILE`, or an http(s) address.
            folder: absolute; where relative paths start.

        Raises:
            ValueError: it is none of these, names a user, or has an unknown variable or home folder.
        """
        scheme, address, rest = text.partition("://")
        if not address:
            scheme, rest = "", text
        if scheme in ("http", "https") and rest:
            if "@" in rest.partition("/")[0]:
                raise ValueError(
                    "the address names a user; "
                    "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead"
                )
            return text
        path = rest.removeprefix("/") if scheme == "sqlite" else rest
        if scheme not in ("", "sqlite") or not path or (scheme == "sqlite" and path == rest):
            raise ValueError('this is no place of MLflow; write a folder, "sqlite:///FILE" or "https://HOST"')
        absolute = local_path(path, folder)
        return f"{_SQLITE}{absolute}" if scheme else str(absolute)

    @classmethod
    def folder(cls, place: str) -> Path | None:
        """Returns the folder or file of a store; None for a server, which gets the user's token."""
        path = Path(place.removeprefix(_SQLITE))
        return path if path.is_absolute() else None

    def log(self, run: TrackedRun, rows: TrackedRows) -> bool:
        """Brings a run up to date, see `Tracker.log`. A run that was deleted in MLflow stays deleted."""
        try:
            return self._log(run, rows)
        except TrackerError:
            with self._explained(TrackerUnusableError):
                self._client.get_experiment(self._experiment)
            raise

    def _log(self, run: TrackedRun, rows: TrackedRows) -> bool:
        there = self._there.get(run.run_id)
        if there is not None and there.info.lifecycle_stage != "active":
            return False
        with self._explained(TrackerError):
            logged = ordinal(there.data.tags.get(LOGGED_TAG, "")) if there is not None else None
            known = logged is not None and logged <= rows.size and rows.grows
            if there is None:
                there = self._create(run)
            if logged != rows.size:
                self._client.set_tag(there.info.run_id, LOGGED_TAG, _UNFINISHED)
                if logged is None:
                    self._log_parameters(there, run)
                self._log_points(there, rows.points((known and logged) or 0), in_doubt=not known)
                self._client.set_tag(there.info.run_id, LOGGED_TAG, str(rows.size))
            return self._end(there, run) or logged != rows.size

    def _open(self) -> MlflowClient:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            from mlflow import MlflowClient

            if self._place.startswith(_SQLITE):
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
            make_ignored(Path(self._place).parent)
            return MlflowClient(tracking_uri=Path(self._place).as_uri())
        if self._place.startswith(_SQLITE):
            make_ignored(Path(self._place.removeprefix(_SQLITE)).parent)
        return MlflowClient(tracking_uri=self._place)

    def _experiment_id(self) -> str:
        experiment = self._client.get_experiment_by_name(self._project)
        if experiment is not None:
            return str(experiment.experiment_id)
        # By default, artifacts would go where this process happens to work.
        beside = Path(self._place.removeprefix(_SQLITE)).parent / "mlartifacts"
        place = beside.as_uri() if self._place.startswith(_SQLITE) else None
        return str(self._client.create_experiment(self._project, artifact_location=place))

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

    def _create(self, run: TrackedRun) -> Run:
        created: Run = self._client.create_run(
            self._experiment,
            start_time=_milliseconds(run.started),
            tags={
                RUN_TAG: run.run_id,
                **{_TAGS.get(name, f"clusterkit.{name}"): text for name, text in run.tags.items()},
            },
            run_name=run.run_id,
        )
        self._there[run.run_id] = created
        return created

    def _log_parameters(self, there: Run, run: TrackedRun) -> None:
        from mlflow.entities import Param

        there_already = there.data.params  # MLflow refuses another value
        names = _Names(there_already, are_files=self._is_folder)
        wanted = [(names[name], whole_text(value)) for name, value in run.parameters.items()]
        new = iter([Param(name, value) for name, value in wanted if name not in there_already])
        while some := list(islice(new, _PARAMETERS)):
            self._client.log_batch(there.info.run_id, params=some, synchronous=True)

    def _log_points(self, there: Run, points: Iterator[MetricPoint], *, in_doubt: bool) -> None:
        """Logs the points, except those that MLflow has if that is in doubt."""
        from mlflow.entities import Metric

        run_id, names = there.info.run_id, _Names(there.data.metrics, are_files=self._is_folder)
        steps = {
            key: {metric.step for metric in self._client.get_metric_history(run_id, key)}
            for key in (there.data.metrics if in_doubt else ())
        }
        new = (point for point in points if point.step not in steps.get(names[point.name], ()))
        for count in itertools.count(1):
            some = list(islice(new, _BATCH))
            if not some:
                return
            batch = [
                Metric(names[point.name], point.value, int(point.time * 1000), point.step) for point in some
            ]
            self._client.log_batch(run_id, batch, synchronous=True)
            if count % _TELL_EVERY == 0:
                self._tell(f"MLflow: {count * _BATCH:,} numbers of {there.info.run_name} logged so far")

    def _end(self, there: Run, run: TrackedRun) -> bool:
        """Records the run's state and end; returns whether they have changed."""
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
            raise kind(f"MLflow at {self._place}: {last_words(str(error))}") from error


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


TRACKER = Mlflow
