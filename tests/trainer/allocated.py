"""What PyTorch allocates, to be held against what is reckoned."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch


def stored_bytes(tensors: Sequence[torch.Tensor]) -> int:
    """Bytes of storages, each once."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def peak_bytes(work: Callable[[], object], folder: Path) -> int:
    """The most bytes that lie there at once in the work's second time, beside those that lay there before."""
    work()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        kept = work()
    profile.export_chrome_trace(str(folder / "trace.json"))
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    moves = sorted((one["ts"], one["args"]) for one in events if one.get("name") == "[memory]")
    del kept
    # The profiler's own totals count what is freed at an address where an earlier profile saw something lie.
    here: dict[int, int] = {}
    peak = now = 0
    for _, move in moves:
        if move["Bytes"] > 0:
            here[move["Addr"]] = move["Bytes"]
            now += move["Bytes"]
            peak = max(peak, now)
        else:
            now -= here.pop(move["Addr"], 0)
    return peak
