"""Repairs runs in MLflow's file store that a killed sync left half written: it then reads no run at all."""

from __future__ import annotations

import re
from pathlib import Path

from clusterkit.trackers.mlflow_names import LOGGED_TAG
from clusterkit.untrusted import ordinal

_WHOLE = re.compile(rb"-?[0-9]+ \S+( -?[0-9]+)?( \S+ \S+)?\n")


def repair(experiment: Path) -> None:
    """Drops torn lines and empty files of our unfinished runs; the next sync logs them again.

    Args:
        experiment: folder of the experiment in the store, which only this process may be writing to.

    Raises:
        OSError: a file cannot be read or written.
    """
    for tag in experiment.glob(f"*/tags/{LOGGED_TAG}"):
        if ordinal(tag.read_text("utf-8", "replace")) is None:
            run = tag.parents[1]
            for file in filter(Path.is_file, run.glob("metrics/**/*")):
                _drop_torn_lines(file)
            for file in filter(Path.is_file, run.glob("params/**/*")):
                if not file.stat().st_size:
                    file.unlink()


def _drop_torn_lines(file: Path) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    whole = [line for line in lines if _WHOLE.fullmatch(line)]
    if not whole:
        file.unlink()
    elif len(whole) < len(lines):
        file.write_bytes(b"".join(whole))
