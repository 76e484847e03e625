"""Reads one metric of several runs from their metrics.jsonl on a cluster, as it grows, in one round trip."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from clusterkit.results.metrics import LONGEST_LINE, MetricRow, each
from clusterkit.results.series import Series, series
from clusterkit.transport.base import Transport

_PIECE = 1 << 22
"""Most bytes of a run at one look."""
_SECONDS = 300.0

# $1 the file, $2 its first new byte, counted from 1
_READ = f"""
ck_read() {{
  printf '%s\\n' "$mark"
  test -f "$1" && tail -c "+$2" -- "$1" | head -c {_PIECE}
}}
"""


@dataclass
class _Tail:
    """What has been read of one run."""

    offset: int = 0
    rest: bytes = b""
    """The beginning of a line whose end is not written yet."""
    rows: list[MetricRow] = field(default_factory=list)
    names: dict[str, None] = field(default_factory=dict)
    """The numbers that the run logs."""

    def add(self, data: bytes, metric: str) -> None:
        self.offset += len(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        if len(self.rest) > LONGEST_LINE:
            self.rest = self.rest[:1]  # too long for a row: skip to the end of the line
        for row in each(lines):
            if row.kind in ("train", "eval"):
                self.names |= dict.fromkeys(name for name in row.values if row.logged(name) is not None)
                if metric in row.values:
                    self.rows.append(replace(row, values={metric: row.values[metric]}))


class MetricReader:
    """Reads a metric of runs on one cluster, each byte once."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._tails: dict[str, _Tail] = {}

    def read(self, transport: Transport, run_dirs: Iterable[str]) -> None:
        """Reads what was appended to the metrics of some runs since the last call.

        Raises:
            TransportError: the connection failed.
        """
        going = list(run_dirs)
        while going:
            mark = f"\x1e{secrets.token_hex(16)}"
            lines = [f"mark={shlex.quote(mark)}", _READ]
            for run_dir in going:
                offset = self._tail(run_dir).offset
                lines.append(f"ck_read {shlex.quote(f'{run_dir}/metrics.jsonl')} {offset + 1}")
            script = "\n".join([*lines, ":", ""]).encode("utf-8", "surrogateescape")
            _, *parts = transport.run(["sh"], stdin=script, timeout=_SECONDS).stdout.split(
                f"{mark}\n".encode()
            )
            for run_dir, data in zip(going, parts, strict=True):
                self._tail(run_dir).add(data, self._metric)
            going = [one for one, data in zip(going, parts, strict=True) if len(data) == _PIECE]

    def series(self, run_dir: str) -> Series:
        """Returns a run's values of the metric so far."""
        return series(self._tail(run_dir).rows, self._metric)

    def names(self, run_dir: str) -> list[str]:
        """Returns the numbers that a run has logged so far."""
        return sorted(self._tail(run_dir).names)

    def _tail(self, run_dir: str) -> _Tail:
        return self._tails.setdefault(run_dir, _Tail())
