"""Runs the parts of `gpu.sh`, each in a process of its own with a limit, and writes findings as JSON."""

from __future__ import annotations

import argparse
import difflib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.gpu_parts import OPTIONAL, WHOLE, Part, Parts, missing
from tests.benchmarks.gpu_process import GRACE

_LEAST = 2 * GRACE
"""Seconds without which a part is not begun."""


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


def main() -> None:
    """Run the parts that are left time for."""
    parser = argparse.ArgumentParser(prog="gpu.sh", description="Everything that needs a GPU, as JSON.")
    default = Path(f"gpu-{time.strftime('%Y%m%d-%H%M%S')}.json")
    parser.add_argument("result", nargs="?", type=Path, default=default, help="where to write")
    parser.add_argument("--minutes", type=float, default=8.7, help="for all parts together (8.7)")
    parser.add_argument("--only", action="append", default=[], metavar="PART,PART", help="these parts alone")
    parser.add_argument("--list", action="store_true", help="name the parts, and how long each takes")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, with tiny numbers")
    given = parser.parse_args()
    begun = time.monotonic()
    ends = begun + 60 * given.minutes
    every = Parts(dry=given.dry_run, ends=ends).all()
    if given.list:
        for name, part in every.items():
            print(f"{name:<14} {part.seconds:5.0f} s  {part.what}")
        return
    parts = chosen(every, given.only)
    result: dict[str, Any] = json.loads(given.result.read_text()) if given.result.exists() else {}
    result |= {"dry_run": given.dry_run, "begun": time.strftime("%FT%TZ", time.gmtime())}
    if absent := missing((*WHOLE, *OPTIONAL)):
        without = [name for name, part in parts.items() if missing(part.needs)]
        lost = f"; left out: {', '.join(without)}" if without else ""
        print(f"not installed: {', '.join(absent)}{lost}", flush=True)
    for name, part in parts.items():
        result[name] = find(part, ends - time.monotonic())
        result["seconds"] = round(time.monotonic() - begun, 1)
        given.result.write_text(json.dumps(result, indent=1) + "\n")
        print(f"{result['seconds']:6.1f} s  {name}: {json.dumps(result[name])[:160]}", flush=True)
    print(f"written to {given.result}")


if __name__ == "__main__":
    main()
