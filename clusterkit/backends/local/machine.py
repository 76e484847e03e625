"""Probes this machine's hardware, and drafts settings for it, each key with its reason. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from clusterkit.config.lines import Entry, Table
from clusterkit.hardware import Hardware, recognise
from clusterkit.probes import Probe
from clusterkit.probes.framing import sections

_UNLIMITED = 1 << 60
"""Bytes; a cgroup without a limit reports more."""

# $scratch is a folder that may not exist yet. A container's own limit of memory counts where it is lower.
# GPUs of other makers than NVIDIA, and those under WSL, leave the count open.
_SCRIPT = r"""
unset OMP_NUM_THREADS OMP_THREAD_LIMIT  # nproc would tell these
echo "cpus $(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null)"
sed -n 's/^MemTotal: *\([0-9]*\) kB$/memory \1/p' /proc/meminfo 2>/dev/null
[ -e /proc/meminfo ] || echo "memory $(($(sysctl -n hw.memsize 2>/dev/null || echo 0) / 1024))"
for limit in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
  [ ! -r "$limit" ] || echo "limit $(cat "$limit")"
done
near=$scratch
while [ ! -e "$near" ] && [ -n "$near" ]; do near=${near%/*}; done
df -Pk "${near:-/}" 2>/dev/null | awk 'NR == 2 { print "disk", $2, $4 }'
limited=
command -v timeout >/dev/null 2>&1 && limited='timeout 20'
if $limited nvidia-smi --query-gpu=memory.total,name --format=csv,noheader,nounits >/dev/null 2>&1; then
  $limited nvidia-smi --query-gpu=memory.total,name --format=csv,noheader,nounits | sed 's/^/gpu /'
else
  for device in /dev/nvidia[0-9]* /dev/kfd /dev/dxg; do [ ! -e "$device" ] || echo "device $device"; done
fi
"""


def probe(scratch: str) -> Probe[Hardware]:
    """Returns a probe for the hardware; it changes nothing.

    Args:
        scratch: the scratch root as one shell word.
    """
    return Probe("machine", f"scratch={scratch}\nck_begin machine\n{_SCRIPT}ck_end 0", parse)


def parse(stdout: str) -> Hardware:
    """Returns the machine's hardware; missing or empty lines leave values unknown."""
    section = next((part for part in sections(stdout) if part.name == "machine"), None)
    body = section.text if section else ""
    lines = [line.split(None, 1) for line in body.splitlines()]
    values: dict[str, list[str]] = {}
    for words in lines:
        if len(words) == 2:
            values.setdefault(words[0], []).append(words[1])
    memory = [size << 10 for size in _numbers(values.get("memory", [])) if size]
    memory += [size for size in _numbers(values.get("limit", [])) if 0 < size < _UNLIMITED]
    total, free = next((_disk(text) for text in values.get("disk", [])), (None, None))
    gpus = [_gpu(text) for text in values.get("gpu", [])]
    return Hardware(
        cpus=next((count for count in _numbers(values.get("cpus", [])) if count), None),
        memory=min(memory, default=None),
        gpus=None if section is None or "device" in values else tuple(size for size, _ in gpus),
        gpu_name=gpus[0][1] if gpus else "",
        disk=total,
        disk_free=free,
    )


def _numbers(texts: list[str]) -> list[int]:
    return [int(text) for text in texts if re.fullmatch(r"\d{1,19}", text)]


def _disk(text: str) -> tuple[int | None, int | None]:
    numbers = _numbers(text.split())
    return (numbers[0] << 10, numbers[1] << 10) if len(numbers) == 2 else (None, None)


def _gpu(text: str) -> tuple[int | None, str]:
    size, _, name = text.partition(",")
    return (int(size) << 20 if re.fullmatch(r"\d{1,9}", size.strip()) else None), name.strip()


PROFILE = "here"
DEMO = "local-demo"
"""The shipped profile for the bundled trainer, which the user's own program does not need."""
_ABOUT = "Runs go to this machine: `clusterkit submit`. `clusterkit init HOST` adds a cluster."


@dataclass(frozen=True)
class LocalDraft:
    """The tables for this machine."""

    project: Table
    tables: tuple[Table, ...]


def draft(
    has: Hardware, program: Sequence[str] | None, python: str | None, *, elsewhere: bool = False
) -> LocalDraft:
    """Returns the settings for running a project on this machine.

    Args:
        has: the machine's hardware.
        program: argv of the user's own program; None trains with the bundled trainer.
        python: the interpreter with the program's imports, if not clusterkit's own.
        elsewhere: whether the user's own settings send runs to another machine, which stays so.
    """
    head: tuple[str, ...] = () if elsewhere else (_ABOUT,)
    project = [] if elsewhere else [Entry("default_cluster", "local", "this machine; no login")]
    cluster = []
    if python is not None:
        cluster.append(Entry("python", python, "has what the program imports"))
    tables = [Table(("clusters", "local"), tuple(cluster))] if cluster else []
    if program is None:
        head += ('Your own program instead of the bundled trainer: program = ["python", "train.py"]',)
        project.append(
            Entry("default_profile", DEMO, "shipped: four tasks in minutes; `clusterkit profiles`")
        )
        return LocalDraft(Table(("project",), tuple(project), head), tuple(tables))
    project.append(Entry("default_profile", PROFILE, "what a run requests, below"))
    project.append(Entry("program", list(program), "`submit -- --lr 0.3` adds arguments"))
    cpus = has.cpus or 1
    entries = [
        Entry("cpus", cpus, "all of this machine's" if has.cpus else ""),
        Entry("threads", cpus, "OMP_NUM_THREADS of each run"),
        Entry("time", "4h", "ends the run then; `resume` continues from a checkpoint"),
    ]
    if has.gpus:
        gpu = recognise(has.gpu_name)
        entries.insert(0, Entry("gpu", gpu[0] if gpu else "gpu", has.gpu_name))
    about = f"One run of {' '.join(program)} on this machine ({has.words})."
    if "{seed}" in program:
        advice = "`submit --seed 7` fills in {seed}; `submit --seeds 1..3` runs three seeds."
    else:
        advice = 'If it takes a seed, add "--seed", "{seed}" to `program`; `submit --seeds 1..3` runs three.'
    tables.append(Table(("profiles", PROFILE), tuple(entries), (about, advice)))
    return LocalDraft(Table(("project",), tuple(project), head), tuple(tables))
