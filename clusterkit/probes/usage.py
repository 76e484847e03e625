"""Asks a running program's node what it uses, and reads the answer. Pure.

The script, templates/usage.sh, prints raw facts; shares and rates are computed here, from two samples that
follow each other.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clusterkit.errors import RunError, last_words
from clusterkit.probes import MARK
from clusterkit.resources import shell_script
from clusterkit.units import CLOCKS_DIFFER
from clusterkit.untrusted import RECORD_BYTES, decimal, ordinal, parse_object
from clusterkit.untrusted import number as finite

GPU_FIELDS = "index,name,utilization.gpu,memory.used,memory.total,power.draw,temperature.gpu"
_MIB = 1 << 20
_CSV_NUMBER = re.compile(r"-?[0-9]{1,15}(?![0-9])(\.[0-9]+)?")
_END = f"{MARK} end\n".encode()
_MOST_BYTES = 8 << 20
"""Of one sample; ps prints some hundred for each process."""
_QUOTED = 200


@dataclass(frozen=True)
class Gpu:
    """One GPU of the job; None for what it does not tell."""

    index: int
    name: str
    utilization: float | None
    """Share of the time a kernel ran, 0..1."""
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    power_watts: float | None
    temperature_celsius: float | None


@dataclass(frozen=True)
class Process:
    """One process of the run."""

    pid: int
    cpu: float | None
    """Processors it used since the last sample; over its life in the first one."""
    rss_bytes: int
    command: str


@dataclass(frozen=True)
class Usage:
    """What the run uses at one moment."""

    time: float
    """Unix seconds of the node's clock."""
    node: str
    gpus: tuple[Gpu, ...]
    gpu_problem: str | None
    """Why there is nothing about GPUs."""
    cpus: int | None
    """Processors of the job."""
    cpu: float | None
    """Processors its program used since the last sample; None in the first one."""
    memory_bytes: int | None
    """Of the job's control group without cached files; else the sum over its processes."""
    memory_limit_bytes: int | None
    processes: tuple[Process, ...]
    """Those that use most of the processors first."""
    heartbeat: Mapping[str, Any] | None
    heartbeat_age: float | None = None
    """Seconds since it was written, by the clock of the files where that says less; None without one."""


def usage_argv(
    run_dir: str,
    attempt: int,
    *,
    seconds: float,
    count: int | None,
    group: int | None = None,
    allocated: tuple[str, str] = ("", ""),
) -> list[str]:
    """Returns what to run on the node of a run.

    Args:
        run_dir: of the run.
        attempt: the one that runs; it ends with that.
        seconds: between two samples.
        count: of samples; None for as many as there are.
        group: process group of a local job.
        allocated: environment variables of its job that tell its processors and its memory in MiB, if any.
    """
    script = shell_script("usage.sh", mark=MARK, GPU_FIELDS=GPU_FIELDS, RECORD_BYTES=RECORD_BYTES)
    arguments = [run_dir, str(attempt), f"{seconds:g}", str(count or ""), str(group or ""), *allocated]
    return ["sh", "-c", script, "sh", *arguments]


@dataclass
class UsageReader:
    """Reads the script's output as it comes in."""

    _rest: bytearray = field(default_factory=bytearray, repr=False)
    _ticks: float = 100.0
    _cpus: int | None = None
    _node: str = ""
    _before: tuple[float, Mapping[int, float]] | None = None

    def feed(self, data: bytes) -> Iterator[Usage]:
        """Yields the samples that these bytes complete.

        Raises:
            RunError: there is no end of a sample.
        """
        self._rest += data
        while _END in self._rest:
            sample, _, self._rest = self._rest.partition(_END)
            if (usage := self._sample(sample.decode("utf-8", "replace"))) is not None:
                yield usage
        if len(self._rest) > _MOST_BYTES:
            words = last_words(self._rest[:_QUOTED].decode("utf-8", "replace"))
            raise RunError(f"the node prints without end what tells nothing about the run: {words}")

    def _sample(self, text: str) -> Usage | None:
        sections: dict[str, tuple[list[str], list[str]]] = {}
        for chunk in text.split(f"{MARK} ")[1:]:
            head, _, body = chunk.partition("\n")
            name, *words = head.split() or [""]
            sections[name] = words, [line for line in body.split("\n") if line.strip()]
        if "begin" in sections:
            self._begin(sections["begin"][0])
        moment = _number((sections.get("sample", ([], []))[0] or [""])[0])
        if moment is None:
            return None
        gpus, problem = _gpus(*sections.get("gpu", ([], [])))
        used = _ticks(sections.get("stat", ([], []))[1])
        before, self._before = self._before, (moment, used)
        rates = _rates(used, moment, before, self._ticks) if before else {}
        processes = _processes(sections.get("processes", ([], []))[1], rates)
        memory, limit = _memory(*sections.get("memory", ([], [])))
        words, lines = sections.get("heartbeat", ([], []))
        beat = parse_object("\n".join(lines))
        return Usage(
            time=moment,
            node=self._node,
            gpus=gpus,
            gpu_problem=problem,
            cpus=self._cpus,
            cpu=sum(rates.values()) if before and used else None,
            memory_bytes=sum(process.rss_bytes for process in processes) if memory is None else memory,
            memory_limit_bytes=limit,
            processes=processes,
            heartbeat=beat,
            heartbeat_age=_age(moment, beat, words),
        )

    def _begin(self, words: Sequence[str]) -> None:
        if len(words) == 4:
            self._ticks = _number(words[0]) or self._ticks
            self._cpus = ordinal(words[2])
            self._node = words[3]


def _gpus(words: Sequence[str], lines: Sequence[str]) -> tuple[tuple[Gpu, ...], str | None]:
    status = words[0] if words else "127"
    if status == "127":
        return (), "there is no nvidia-smi and no rocm-smi on the node"
    head = next((at for at, line in enumerate(lines) if line.startswith("device,")), None)
    if head is not None:
        return tuple(_amd(csv.DictReader(lines[head:]))), None
    gpus = []
    for row in csv.reader(lines, skipinitialspace=True):
        index = ordinal(row[0]) if row else None
        if len(row) != len(GPU_FIELDS.split(",")) or index is None:
            continue
        utilization, used, total, power, temperature = (_number(cell) for cell in row[2:])
        gpus.append(
            Gpu(
                index,
                row[1],
                None if utilization is None else utilization / 100,
                None if used is None else int(used * _MIB),
                None if total is None else int(total * _MIB),
                power,
                temperature,
            )
        )
    if gpus:
        return tuple(gpus), None
    if status == "124":
        return (), "nvidia-smi does not answer"
    return (), f"nvidia-smi says: {lines[0].strip()}" if lines else "nvidia-smi printed nothing"


def _amd(rows: Iterable[Mapping[str, str]]) -> Iterator[Gpu]:
    """Yields the GPUs in a table of rocm-smi (github.com/ROCm/rocm_smi_lib, python_smi_tools/rocm_smi.py).

    Names of columns differ between its versions. It tells a GPU that shares its board's power sensor, as the
    second die of an MI250X does, no power.
    """
    for row in rows:
        index = ordinal(_cell(row, "^device$").removeprefix("card"))
        if index is None:
            continue
        numbers = ("^GPU use", "VRAM.*used", "VRAM total memory", "package power", "sensor (edge|junction)")
        busy, used, total, power, temperature = (_number(_cell(row, name)) for name in numbers)
        yield Gpu(
            index,
            _cell(row, "^card (series|model)") or "AMD GPU",
            None if busy is None else busy / 100,
            None if used is None else int(used),
            None if total is None else int(total),
            power,
            temperature,
        )


def _cell(row: Mapping[str, str], column: str) -> str:
    """Returns what a row tells in the first column with such a name that tells anything."""
    named = (str(text) for name, text in row.items() if re.search(column, str(name), re.IGNORECASE))
    return next((text for text in named if text not in ("", "N/A")), "")


def _ticks(lines: Sequence[str]) -> dict[int, float]:
    """Processor time by pid in clock ticks: fields 14 and 15 of /proc/<pid>/stat (man 5 proc)."""
    times = {}
    for line in lines:
        pid = ordinal(line.partition(" ")[0])
        fields = line.rpartition(") ")[2].split()  # the name, field 2, may itself hold blanks and brackets
        ticks = [_number(word) for word in fields[11:13]]
        if pid is not None and len(ticks) == 2:
            times[pid] = sum(filter(None, ticks))
    return times


def _rates(
    used: Mapping[int, float], moment: float, before: tuple[float, Mapping[int, float]], ticks: float
) -> dict[int, float]:
    """Processors used since the sample before, by pid; a process that is new counts with all it used."""
    then, earlier = before
    seconds = max(moment - then, 1e-3)
    return {pid: max(0.0, value - earlier.get(pid, 0.0)) / ticks / seconds for pid, value in used.items()}


def _processes(lines: Sequence[str], rates: Mapping[int, float]) -> tuple[Process, ...]:
    processes = []
    for line in lines:
        words = line.split(None, 3)
        pid, kilobytes = [*map(ordinal, words[:2]), None, None][:2]
        if len(words) < 4 or pid is None or kilobytes is None:
            continue
        lifetime = _number(words[2])
        cpu = rates.get(pid, None if lifetime is None else lifetime / 100)
        processes.append(Process(pid, cpu, kilobytes * 1024, words[3]))
    return tuple(sorted(processes, key=lambda process: (-(process.cpu or 0.0), -process.rss_bytes)))


def _memory(words: Sequence[str], lines: Sequence[str]) -> tuple[int | None, int | None]:
    """Bytes used and allowed; the request, in MiB, is the limit where no control group has one."""
    mebibytes = ordinal(words[0]) if words else None
    asked = None if mebibytes is None else mebibytes * _MIB
    numbers = [ordinal(line.strip()) for line in lines]  # not "max", nor version 1's largest number
    if not numbers or numbers[0] is None:
        return None, asked
    limit = numbers[1] if len(numbers) > 1 else None
    if limit is None:
        limit = asked
    cached = numbers[2] if len(numbers) > 2 and numbers[2] is not None else 0
    return max(0, numbers[0] - cached), limit


def _age(now: float, beat: Mapping[str, Any] | None, written: Sequence[str]) -> float | None:
    """Seconds since a heartbeat, by its own time or its file's: what lies in the future tells nothing."""
    beat_time = (beat or {}).get("time")
    times = [*(filter(None, [finite(beat_time)])), *filter(None, map(_number, written))]
    ages = [now - moment for moment in times]
    return max(0.0, min((age for age in ages if age > -CLOCKS_DIFFER), default=0.0)) if times else None


def _number(text: str) -> float | None:
    """Returns a number, also one that nvidia-smi puts a blank around; None for `[N/A]` and the like."""
    match = _CSV_NUMBER.match(text.strip())
    return decimal(match[0]) if match else None
