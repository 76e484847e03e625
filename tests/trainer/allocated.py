"""What PyTorch allocates, to be compared with what is forecast."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from trainer import recipe as recipes
from trainer.envs.spaces import ActionSpace, unit_box
from trainer.machine.device import autocast
from trainer.recipe.sizes import Sizes
from trainer.recipe.spaces import Spaces
from trainer.replay import Batch

CPU = torch.device("cpu")


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


def made(sizes: Sizes, micro_batches: int = 1, device: torch.device = CPU) -> Any:
    """Returns the learner of a recipe, as its entry makes it."""
    spaces, entry = sizes.spaces, sizes.recipe.entry
    actions = unit_box(spaces.action)
    if spaces.choices:
        actions = ActionSpace("discrete", nvec=spaces.choices, start=(0,) * spaces.action)
    common = sizes.recipe.values, spaces.observation, actions, sizes.tasks, device
    how = partial(autocast, device, sizes.precision)
    if entry.loop == "on-policy":
        return entry.agent(*common, sizes.environments, how)
    return entry.agent(*common, how, micro_batches=micro_batches)


def off_policy_learner(
    name: str, precision: str = "fp32", micro_batches: int = 1, given: Spaces | None = None, **changes: str
) -> tuple[Any, Sizes]:
    """The learner of a recipe, and the sizes that its memory is forecast by."""
    sizes = Sizes(recipes.load(name).override(changes, changes), precision=precision, given=given)
    return made(sizes, micro_batches), sizes


def batch_for(sizes: Sizes) -> Batch:
    """A batch of the size that a recipe learns from."""
    rows, spaces = sizes.own_batch, sizes.spaces
    seen, following = torch.randn(2, rows, spaces.observation)
    action = torch.zeros(rows, 1) if spaces.choices else torch.rand(rows, spaces.action)
    goes_on = None if sizes.recipe.algorithm == "sac" else torch.ones(rows)
    return Batch(seen, action, torch.randn(rows), following, torch.arange(rows) % sizes.tasks, goes_on)
