"""What reads a site's and a node's answers takes any text in place of a number."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clusterkit.backends.slurm.parse import parse_query
from clusterkit.backends.slurm.request import node_gpus
from clusterkit.backends.slurm.rows import parse_time
from clusterkit.backends.slurm.tables import Config
from clusterkit.backends.slurm.why.answer import _bytes
from clusterkit.backends.slurm.why.story import _twice
from clusterkit.errors import TransportError
from clusterkit.hardware import slice_memory
from clusterkit.images.inventory import parse_inventory
from clusterkit.probes.space import quota_left
from clusterkit.probes.usage import _gpus, _memory, _processes, _ticks
from tests.backends.slurm.answers import answer
from tests.backends.slurm.survey.test_numbers import EXTREMES

READERS: dict[str, Callable[[str], object]] = {
    "time": parse_time,
    "clock": lambda said: parse_time(f"{said}-{said}:{said}:{said}"),
    "array": lambda said: (
        Config({"MaxArraySize": said, "SchedulerParameters": f"max_array_tasks={said}"}).array_size
    ),
    "gres": lambda said: node_gpus(f"gpu:a40:{said}(S:0-{said})"),
    "slice": lambda said: slice_memory(f"{said}g.{said}gb"),
    "memory": _twice,
    "memory in GiB": lambda said: _twice(f"{said}Gn"),
    "bytes": lambda said: _bytes(f"{said}M"),
    "quota": lambda said: quota_left([said, said, f"{said}*"]),
    "ticks": lambda said: _ticks([f"{said} (x) S" + f" {said}" * 20]),
    "processes": lambda said: _processes([f"{said} {said} {said} python"], {}),
    "use of memory": lambda said: _memory([said], [said, said, said]),
    "gpus": lambda said: _gpus(["0"], [f"{said}, A40, {said}, {said}, {said}, {said}, {said}"]),
    "jobs": lambda said: parse_query(
        answer(
            "123",
            squeue=f"123|{said}|RUNNING|None|gpu|n1|{said}|{said}|{said}|{said}|x",
            sacct=f"{said}|COMPLETED|{said}:{said}|{said}|{said}|{said}|{said}|gpu|n1|x",
        )
    ),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("said", EXTREMES, ids=lambda said: said[:8] or "nothing")
def test_any_text_for_a_number_is_read(reader: str, said: str) -> None:
    READERS[reader](said)


@pytest.mark.parametrize("said", EXTREMES, ids=lambda said: said[:8] or "nothing")
def test_an_unreadable_inventory_is_one_error(said: str) -> None:
    try:
        found = parse_inventory(f"now {said}\nimage {said} {said} sha256-a.sif\nleft {said} image x\nend\n")
    except TransportError as error:
        found = None
        cause = error.cause
    assert found is not None or "no readable number" in cause
