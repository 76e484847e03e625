"""Start-up of the command line against the libraries it stands on.

`ratio_help`: the time of `python -c "import typer, rich"` over the time of `clusterkit --help`; above
1 we are faster than importing the two alone. Interleaved runs, medians.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from tests.benchmarks._report import arguments, report

OURS = [sys.executable, "-m", "clusterkit", "--help"]
PEER = [sys.executable, "-c", "import typer, rich"]


def seconds(argv: list[str]) -> float:
    """Wall time of one whole process."""
    start = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Run and report."""
    repetitions = 9 if arguments(__doc__).quick else 25
    times: dict[str, list[float]] = {"ours": [], "peer": []}
    for _ in range(repetitions + 1):  # the first pair warms the file cache
        times["ours"].append(seconds(OURS))
        times["peer"].append(seconds(PEER))
    ours, peer = (statistics.median(times[side][1:]) for side in ("ours", "peer"))
    report(
        "cli",
        [("start-up", "clusterkit --help", ours, "import typer, rich", peer, "s")],
        {"help_s": ours, "import_s": peer, "ratio_help": peer / ours},
    )


if __name__ == "__main__":
    main()
