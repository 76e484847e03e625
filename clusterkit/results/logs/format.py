"""What a format of log files must do, and how the values that a program logged become a row."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from clusterkit.results.metrics import LOG, LONGEST_LINE, NO_LINE_BYTES, MetricRow
from clusterkit.untrusted import can_be_shown, number

MOST_COLUMNS = 1000
"""Most names of a row."""
_LONGEST_NAME = 200
_STEPS = (
    *("global_step", "global_steps", "total_timesteps", "num_timesteps", "timesteps_total", "total_steps"),
    *("total_env_steps", "env_steps", "env_step", "environment_steps", "timesteps", "timestep", "num_steps"),
    *("frames", "frame", "step", "steps", "_step", "iteration", "iterations", "iter", "iters", "update"),
    *("updates", "n_updates", "epoch", "epochs", "episode", "episodes", "generation", "round"),
)
"""Names of steps, the most telling first. Of a path such as `time/total_timesteps` the last part counts."""
_TIME = re.compile(r"(unix|wall)?[ _]?time(stamp)?|_timestamp", re.IGNORECASE)
_UNIX = 1e9, 1e11
"""Times of this century in seconds."""


class UnreadableLogError(Exception):
    """The rest of a file is not read; its text says why, and is empty where the file is none of metrics."""


class LogFormat(ABC):
    """Reads one file, piece by piece.

    Args:
        path: of the file, inside the run.
        step: the name of the steps; None finds it.
    """

    def __init__(self, path: str, step: str | None = None) -> None:
        self.path, self.step = path, step
        self.row_bytes = 0
        """Bytes of the row that came last."""

    @classmethod
    def source(cls, path: str) -> str:
        """Returns what files that continue each other share."""
        return path

    @abstractmethod
    def feed(self, data: bytes) -> Iterable[MetricRow]:
        """Yields the rows that end in the next bytes.

        Raises:
            UnreadableLogError: the rest of the file cannot be read.
        """


class TextFormat(LogFormat):
    """Reads a file of lines; one that is too long comes without its end, which makes it no row."""

    def __init__(self, path: str, step: str | None = None) -> None:
        super().__init__(path, step)
        self._rest = b""
        """The line that is not ended."""
        self._without_end = 0
        """Bytes since the last line end."""

    def feed(self, data: bytes) -> Iterator[MetricRow]:
        """Yields the rows that end in the next bytes, see `LogFormat.feed`."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._without_end = len(self._rest) if lines else self._without_end + len(data)
        if len(self._rest) > LONGEST_LINE:
            self._rest = self._rest[:1]
        for line in lines:
            self.row_bytes = len(line)
            if len(line) <= LONGEST_LINE:
                yield from self.parse(line)
        if self._without_end >= NO_LINE_BYTES:
            raise UnreadableLogError("it has no line ends")

    @abstractmethod
    def parse(self, line: bytes) -> Iterator[MetricRow]:
        """Yields the row of a line, if it is one."""


def row_of(values: Mapping[str, float], count: int | None, step: str | None = None) -> MetricRow | None:
    """Returns the row that some values make; None if its step is no number.

    Args:
        values: by name.
        count: number of rows before it, which is its step if no name is that of a step; None for no row then.
        step: the name of the step.
    """
    name, times, others = _columns(tuple(values), step)
    at = number(count if name is None else values.get(name))
    if at is None:
        return None
    time = next((values[other] for other in times if _UNIX[0] < values[other] < _UNIX[1]), 0.0)
    return MetricRow(LOG, math.floor(at), time, 0, {other: values[other] for other in others})


@lru_cache(maxsize=256)
def _columns(names: tuple[str, ...], step: str | None) -> tuple[str | None, list[str], list[str]]:
    """Returns the name of the steps, those that may be of times, and those of metrics."""
    step = step or step_name(names)
    times = [name for name in names if _TIME.fullmatch(name)]
    return step, times, [name for name in names if name != step and is_name(name)]


def step_name(names: Iterable[str]) -> str | None:
    """Returns which name is that of the steps; None if none is.

    >>> step_name(("time/fps", "time/iterations", "time/total_timesteps"))
    'time/total_timesteps'
    """
    plain = {name.rpartition("/")[2].strip().lower().replace(" ", "_"): name for name in reversed([*names])}
    return next((plain[name] for name in _STEPS if name in plain), None)


def is_name(name: str) -> bool:
    """Whether a text may be the name of a metric."""
    return 0 < len(name) <= _LONGEST_NAME and can_be_shown(name)
