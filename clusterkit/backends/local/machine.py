"""Probes this machine's hardware. Pure."""

from __future__ import annotations

import re

from clusterkit.hardware import Hardware
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
    """A probe for the hardware; it changes nothing.

    Args:
        scratch: the scratch root as one shell word.
    """
    return Probe("machine", f"scratch={scratch}\nck_begin machine\n{_SCRIPT}ck_end 0", parse)


def parse(stdout: str) -> Hardware:
    """The machine's hardware; missing or empty lines leave values unknown."""
    told_all = next((section for section in sections(stdout) if section.name == "machine"), None)
    body = told_all.text if told_all else ""
    lines = [line.split(None, 1) for line in body.splitlines()]
    told: dict[str, list[str]] = {}
    for words in lines:
        if len(words) == 2:
            told.setdefault(words[0], []).append(words[1])
    memory = [size << 10 for size in _numbers(told.get("memory", [])) if size]
    memory += [size for size in _numbers(told.get("limit", [])) if 0 < size < _UNLIMITED]
    total, free = next((_disk(text) for text in told.get("disk", [])), (None, None))
    gpus = [_gpu(text) for text in told.get("gpu", [])]
    return Hardware(
        cpus=next((count for count in _numbers(told.get("cpus", [])) if count), None),
        memory=min(memory, default=None),
        gpus=None if told_all is None or "device" in told else tuple(size for size, _ in gpus),
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
