"""What `clusterkit top` draws."""

import pytest
from rich.console import Console

from clusterkit.backends.jobs import JobState
from clusterkit.cli.top import view
from clusterkit.interactive.inside import Inside
from clusterkit.probes.usage import Process, Usage
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.state import RunState

RUN = LedgerRun("demo-1", "uni", "n", "p", "r", 1, "7", "2026-01-01T00:00:00Z", "/runs/demo-1", 9, "RUNNING")
USAGE = Usage(
    time=1.0,
    node="n1",
    gpus=(),
    gpu_problem="none",
    cpus=2,
    cpu=0.4,
    memory_bytes=1,
    memory_limit_bytes=None,
    processes=(
        Process(4711, 1.25, 2**30, "/opt/venv/bin/python -m trainer train " + "--option value " * 20),
    ),
    heartbeat=None,
)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_a_long_command_line_takes_no_room_from_the_numbers(width: int) -> None:
    place = Inside(RUN, RunState(JobState.RUNNING), None, None)  # type: ignore[arg-type]
    console = Console(width=width)
    with console.capture() as capture:
        console.print(view(place, USAGE, processes=5))
    line = next(line for line in capture.get().splitlines() if "4711" in line)
    assert line.split()[:5] == ["4711", "1.25", "1.0", "GiB", "/opt/venv/bin/python"]
    assert line.rstrip().endswith("…")
