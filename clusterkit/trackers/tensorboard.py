"""Writes runs' TensorBoard event files. Needs the package `tensorboard`, not TensorFlow.

Event files are derived data, so a changed one is written anew. A file's name has the size of the
logs that it was made from: this says whether it is up to date, and makes each file the next one of
its folder, which is how a running TensorBoard finds it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterkit.errors import TrackerUnusableError
from clusterkit.folders import make_ignored, make_private
from clusterkit.trackers.base import MetricPoint, TrackedRows, TrackedRun, Tracker
from clusterkit_rl.distribution import install_command

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event

_FILES = "events.out.tfevents.*.clusterkit"
_UNFINISHED = ".unfinished"


class TensorBoard(Tracker):
    """The log folder that TensorBoard is started with, which has a folder of each run; created if missing."""

    title = "TensorBoard"
    help = "Write TensorBoard event files to this folder."

    def log(self, run: TrackedRun, rows: TrackedRows) -> bool:
        """Brings a run's event file up to date, see `Tracker.log`."""
        folder = Path(self._place)
        own = folder / run.run_id
        name = f"events.out.tfevents.{rows.size:012d}.clusterkit"
        there = sorted(own.glob(_FILES))
        if [path.name for path in there if path.stat().st_size] == [name]:
            return False
        points = rows.points(None)
        first = next(points, None)
        if first is None:
            return False
        record_writer = _record_writer()  # before anything is made
        make_ignored(folder)
        make_private(own)
        part = own / _UNFINISHED
        with part.open("wb") as out:
            writer = record_writer(out)
            for event in _events(first, points):
                writer.write(event.SerializeToString())
            out.flush()
            os.fsync(out.fileno())
        part.replace(own / name)
        _retire([path for path in there if path.name != name])
        return True


def _retire(files: list[Path]) -> None:
    """Removes earlier event files; the newest is only emptied, because a TensorBoard may be reading it."""
    for path in files[:-1]:
        path.unlink(missing_ok=True)
    for path in files[-1:]:
        os.truncate(path, 0)  # without the data server, TensorBoard never gets past a file that is gone


def _record_writer() -> Any:
    """Returns the class of the package that frames records of a file."""
    try:
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError:
        raise TrackerUnusableError(
            "the package tensorboard is not installed here, so no event files are written",
            hint=install_command(extra="trackers"),
        ) from None
    return RecordWriter


def _events(first: MetricPoint, others: Iterator[MetricPoint]) -> Iterator[Event]:
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.compat.proto.summary_pb2 import Summary

    yield Event(wall_time=first.time, file_version="brain.Event:2")
    # A TensorBoard that has read an earlier file of this run drops what it has from this step on.
    start = SessionLog(status=SessionLog.START)
    yield Event(wall_time=first.time, step=first.step, session_log=start)
    for (step, time), together in groupby(chain([first], others), key=lambda point: (point.step, point.time)):
        values = [Summary.Value(tag=point.name, simple_value=point.value) for point in together]
        yield Event(step=step, wall_time=time, summary=Summary(value=values))


TRACKER = TensorBoard
