"""Reading a large metrics.jsonl for reports and curves, against a list of all its rows.

Two gigabytes (`--quick`: 200 MB) of training rows with an evaluation after every hundredth. `memory_mb` is
the peak of a process that reads them with `read_run`; `ratio_memory`: the peak of one that keeps every parsed
line, over it. The full size is read by ours alone. `seconds` is the reading's time.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks._report import arguments, report

_OURS = """
from clusterkit.results.logs.run_logs import read_run
kept = read_run(Path(sys.argv[1]).parent, own=False).rows
"""
_ALL = "kept = [json.loads(line) for line in open(sys.argv[1])]"
_MEASURE = """
import json, resource, sys, time
from pathlib import Path
began = time.perf_counter()
{work}
seconds = time.perf_counter() - began
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, len(kept)]))
"""


def write(path: Path, size: int) -> None:
    """Write about so many bytes of rows."""
    row = {"kind": "train", "step": 0, "time": 1.7e9, "attempt": 0}
    row |= {f"loss/{name}": 0.123456789 for name in ("critic", "actor", "alpha", "q", "entropy")}
    with path.open("w") as file:
        step = 0
        while file.tell() < size:
            lines = []
            for _ in range(100):
                step += 40
                lines.append(json.dumps(row | {"step": step}))
            lines.append(json.dumps({"kind": "eval", "step": step, "success/mean": 0.5}))
            file.write("\n".join(lines) + "\n")


def measure(work: str, path: Path) -> tuple[float, float, int]:
    """Seconds, peak memory (MB) and rows kept by a process of its own."""
    argv = [sys.executable, "-c", _MEASURE.format(work=work), str(path)]
    seconds, memory, kept = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
    return seconds, memory, kept


def main() -> None:
    """Measure and print."""
    quick = arguments(__doc__).quick
    size = 200 << 20 if quick else 2 << 30
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.jsonl"
        write(path, size)
        ours = measure(_OURS, path)
        peer = measure(_ALL, path) if quick else (math.nan, math.nan, 0)
    rows = [
        ("memory", "rows kept in bounds", ours[1], "all lines parsed", peer[1], "MB"),
        ("time", "rows kept in bounds", ours[0], "all lines parsed", peer[0], "s"),
        ("rows", "rows kept in bounds", ours[2], "all lines parsed", peer[2], ""),
    ]
    metrics = {"memory_mb": ours[1], "seconds": ours[0]}
    report("metrics", rows, metrics | ({"ratio_memory": peer[1] / ours[1]} if quick else {}))


if __name__ == "__main__":
    main()
