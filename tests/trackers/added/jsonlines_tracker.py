"""A third tracker, of JSON lines: what a stranger would write for a store of their own.

A place is `LAYOUT:FOLDER`. With the layout `long`, a line is one number; with `wide`, it is one step.
"""

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from clusterkit.trackers.base import MetricPoint, TrackedRows, TrackedRun, Tracker


def long(points: Iterator[MetricPoint]) -> Iterator[dict[str, object]]:
    return ({"step": point.step, "name": point.name, "value": point.value} for point in points)


def wide(points: Iterator[MetricPoint]) -> Iterator[dict[str, object]]:
    for step, together in groupby(points, key=lambda point: point.step):
        yield {"step": step, **{point.name: point.value for point in together}}


LAYOUTS = {"long": long, "wide": wide}


class JsonLines(Tracker):
    """A file for each run, written anew when the run has new rows."""

    title = "JSON lines"

    @classmethod
    def place(cls, text: str, folder: Path) -> str:
        layout, colon, rest = text.partition(":")
        if layout not in LAYOUTS or not colon:
            raise ValueError(f"write LAYOUT:FOLDER; layouts are {', '.join(LAYOUTS)}")
        return f"{layout}:{super().place(rest, folder)}"

    @classmethod
    def folder(cls, place: str) -> Path:
        return Path(place.partition(":")[2])

    def log(self, run: TrackedRun, rows: TrackedRows) -> bool:
        file = self.folder(self._place) / f"{run.run_id}.jsonl"
        head = json.dumps({"status": run.status, "size": rows.size, "seed": run.parameters.get("seed")})
        if file.exists() and file.read_text().partition("\n")[0] == head:
            return False
        layout = LAYOUTS[self._place.partition(":")[0]]
        lines = [head, *(json.dumps(line) for line in layout(rows.points(None)))]
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(".draft")
        draft.write_text("\n".join(lines) + "\n")
        draft.replace(file)
        return True


TRACKER = JsonLines
