"""Runs the parts of `gpu.sh`, each in a process of its own with a limit, and writes findings as JSON."""

from __future__ import annotations

import argparse
import difflib
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.benchmarks.gpu_parts import CALLS, OPTIONAL, WHOLE, Part, Parts, missing
from tests.benchmarks.gpu_predicted import OF_PARTS
from tests.benchmarks.gpu_process import GRACE
from trainer.files import atomic_write_bytes

_MINUTES = 8.7
_BESIDE = 2
"""Parts of a dry run at the same time."""
_LEAST = 2 * GRACE
"""Seconds without which a part is not begun."""
_ONE, _SEVERAL = "mt10", ("together", "pack", "mps")
"""A run of guide-mt10, and the ways to have several of them on one GPU."""


def chosen(parts: dict[str, Part], only: Sequence[str]) -> dict[str, Part]:
    """Returns the parts named, or all, in their order.

    Raises:
        SystemExit: one of them does not exist.
    """
    wanted = [name for word in only for name in word.split(",") if name]
    for name in wanted:
        if name not in parts:
            close = difflib.get_close_matches(name, parts, 1)
            meant = f"; did you mean {close[0]}?" if close else ""
            raise SystemExit(f"gpu.sh: there is no part {name!r}{meant} The parts are {', '.join(parts)}")
    return {name: part for name, part in parts.items() if not wanted or name in wanted}


def find(part: Part, left: float) -> dict[str, Any]:
    """Carries out a part, or says why not."""
    if absent := missing(part.needs):
        return {"skipped": f"needs {', '.join(absent)}"}
    if left < _LEAST:
        return {"skipped": f"only {left:.0f} s were left"}
    try:
        return part.find()
    except Exception as error:  # whatever it is, the other parts are still worth their time
        return {"error": f"{type(error).__name__}: {error}"}


def over_one(found: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Returns the steps a second of several runs on one GPU, added up, over those of one; for each way.

    Args:
        found: by the parts of one call, for a machine is not the same in the next one.
    """
    rates = {name: _steps_per_second(found.get(name, {})) for name in (_ONE, *_SEVERAL)}
    one = rates.pop(_ONE)
    return {name: round(rate / one, 2) for name, rate in rates.items() if rate} if one else {}


def _steps_per_second(part: Mapping[str, Any]) -> float:
    return (part.get("findings") or [part])[-1].get("steps_per_second") or 0.0


def read(path: Path) -> dict[str, Any]:
    """Returns what a result file holds.

    Raises:
        SystemExit: it cannot be read, or is something else.
    """
    try:
        result = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"gpu.sh: {path} cannot be read as a result: {error}") from error
    if not isinstance(result, dict) or "dry_run" not in result:
        raise SystemExit(f"gpu.sh: {path} is no result of gpu.sh")
    return result


def write(path: Path, result: Mapping[str, Any]) -> None:
    """Replaces a result file.

    Raises:
        SystemExit: it cannot be written.
    """
    try:
        atomic_write_bytes(path, json.dumps(result, indent=1).encode() + b"\n")
    except OSError as error:
        raise SystemExit(f"gpu.sh: {path} cannot be written: {error.strerror}") from error


def begin(path: Path, *, dry: bool) -> dict[str, Any]:
    """Returns what is to be added to, once it is known that it can be written.

    Raises:
        SystemExit: it cannot, or what is there is of a dry run and this one is not, or the other way round.
    """
    result = read(path) if path.exists() else {"dry_run": dry}
    if result["dry_run"] != dry:
        kind = "a dry run" if result["dry_run"] else "a GPU"
        raise SystemExit(f"gpu.sh: {path} holds what {kind} found; name another file")
    result["begun"] = time.strftime("%FT%TZ", time.gmtime())
    write(path, result)
    return result


def main() -> None:
    """Run the parts that are left time for."""
    parser = argparse.ArgumentParser(prog="gpu.sh", description="Everything that needs a GPU, as JSON.")
    default = Path(f"gpu-{time.strftime('%Y%m%d-%H%M%S')}.json")
    parser.add_argument("result", nargs="?", type=Path, default=default, help="where to write")
    parser.add_argument("--minutes", type=float, help=f"for all parts together ({_MINUTES})")
    parser.add_argument("--only", action="append", default=[], metavar="PART,PART", help="these parts alone")
    parser.add_argument("--call", choices=CALLS, help="the parts and minutes of this call, see --list")
    parser.add_argument("--base", type=Path, help="another checkout, whose speeds are measured in turn")
    parser.add_argument("--list", action="store_true", help="name the parts, and how long each takes")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, with tiny numbers")
    given = parser.parse_args()
    call = CALLS.get(given.call)
    minutes = given.minutes or (call.minutes if call else _MINUTES)
    only = [*given.only, *(call.parts if call else ())]
    begun = time.monotonic()
    ends = begun + 60 * minutes
    every = Parts(dry=given.dry_run, ends=ends).all()
    if given.list:
        print_list(every)
        return
    parts = chosen(every, only)
    others = Parts(dry=given.dry_run, ends=ends, root=given.base.resolve()).all() if given.base else {}
    result = begin(given.result, dry=given.dry_run)
    if absent := missing((*WHOLE, *OPTIONAL)):
        without = [name for name, part in parts.items() if missing(part.needs)]
        lost = f"; left out: {', '.join(without)}" if without else ""
        print(f"not installed: {', '.join(absent)}{lost}", flush=True)

    def measure(name: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
        found = find(parts[name], ends - time.monotonic())
        compared = given.base and parts[name].compares
        return found, find(others[name], ends - time.monotonic()) if compared else None

    measured: dict[str, dict[str, Any]] = {}
    with ThreadPoolExecutor(_BESIDE) as pool:  # parts that are only tried may run beside each other
        way = pool.map if given.dry_run else map
        for name, (found, base) in zip(parts, way(measure, parts), strict=True):
            result[name] = measured[name] = found
            if ratios := over_one(measured):
                result["over_one"] = ratios
            if base is not None:
                result.setdefault("base", {})[name] = base
            result["seconds"] = round(time.monotonic() - begun, 1)
            write(given.result, result)
            print(f"{result['seconds']:6.1f} s  {name}: {json.dumps(found)[:160]}", flush=True)
            if name in OF_PARTS:
                print(f"          predicted: {OF_PARTS[name]}", flush=True)
    for name, ratio in over_one(measured).items():
        print(f"{name}: {ratio:.2f} times the steps a second of {_ONE}")
    print(f"written to {given.result}")


def print_list(parts: dict[str, Part]) -> None:
    """Names the parts, then the calls."""
    for name, part in parts.items():
        print(f"{name:<20} {part.seconds:5.0f} s  {part.what}")
    for name, call in CALLS.items():
        print(f"--call {name:<13} {call.minutes:5.1f} min  {','.join(call.parts)}")


if __name__ == "__main__":
    main()
