"""Findings as lines of JSON, and what they say together."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trainer.evaluation.result import student
from trainer.machine.processors import processor_name, usable_processors

STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""Quantiles for that many values, of which `student` knows only those of many well."""
Finding = dict[str, Any]


def machine() -> str:
    """Names this machine by what decides its speed."""
    return f"{usable_processors()} x {processor_name()}"


def read(path: Path) -> list[Finding]:
    """Returns all findings of a file; a line that a crash cut short is left out."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def append(path: Path, finding: Finding) -> None:
    """Adds a finding, and waits until it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = not path.exists() or path.read_text()[-1:] in ("", "\n")
    with path.open("a") as file:
        file.write(("" if whole else "\n") + json.dumps(finding) + "\n")
        file.flush()
        os.fsync(file.fileno())


def newest(findings: Iterable[Finding]) -> dict[tuple[str, str, int], Finding]:
    """Returns the last finding of each cell; a failure gives way to a success, before or after it."""
    cells: dict[tuple[str, str, int], Finding] = {}
    for finding in findings:
        cell = finding["case"], finding["side"], finding["seed"]
        if "error" not in finding or "error" in cells.get(cell, finding):
            cells[cell] = finding
    return cells


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Returns Student's 95% interval of the mean, or the value itself if there is only one.

    A bootstrap of two or three values never leaves their range, and two sides that are equal would often be
    told apart.
    """
    if len(values) < 2:
        return values[0], values[0]
    if len(values) not in STUDENT:
        return student(np.asarray(values))
    mean, reach = statistics.mean(values), STUDENT[len(values)] * statistics.stdev(values)
    return mean - reach / len(values) ** 0.5, mean + reach / len(values) ** 0.5


def median(findings: Iterable[Finding], key: str) -> float | None:
    """Returns the median of what was measured; None if nothing was."""
    values = [finding[key] for finding in findings if finding.get(key) is not None]
    return statistics.median(values) if values else None
