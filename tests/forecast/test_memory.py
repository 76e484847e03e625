"""Whether a run fits, and what is said where it does not."""

from __future__ import annotations

from dataclasses import replace

from clusterkit.forecast.memory import GPU_RESERVE, Fit, Machine, judge
from trainer import recipe as recipes
from trainer.recipe.memory import CUDA_BYTES
from trainer.recipe.sizes import Sizes

GIB = 2**30
MACHINE = Machine(16, 64 * GIB, "a40", 48 * GIB, "site")
GUIDE = Sizes(recipes.load("guide-mt10"), 32, "tf32")


def huge() -> Sizes:
    """Such a replay that a small GPU has no room for it."""
    recipe = recipes.load("guide-mt10").override({"replay_capacity": "40000000"}, {"replay_capacity"})
    return Sizes(recipe, 32, "tf32")


def test_the_guides_run_fits_an_a40_many_times() -> None:
    memory = judge(GUIDE, MACHINE, None, None)
    assert memory.gpu.fit is memory.host.fit is Fit.FITS
    assert memory.gpu.needed < 2 * GIB, "not the 45 to 50 GB that the lab guides say"
    assert memory.gpu.needed == sum(part.bytes for part in memory.gpu.parts)
    assert memory.gpu.advice == ""


def test_a_replay_that_is_too_large_goes_to_the_host() -> None:
    sizes, machine = huge(), replace(MACHINE, gpu_memory=6 * GIB)
    memory = judge(sizes, machine, None, None)
    assert memory.gpu.fit is Fit.FALLBACK
    assert "6.6 GiB" in memory.gpu.advice
    assert "a GPU with 9 GiB" in memory.gpu.advice
    assert memory.gpu.needed < 2 * GIB
    assert sum(part.bytes for part in memory.host.parts if part.name == "replay") == sizes.layout.nbytes
    larger = judge(sizes, replace(machine, gpu_memory=9 * GIB), None, None)
    assert larger.gpu.fit is Fit.FITS


def test_what_no_fallback_helps_is_said_with_the_gpu_that_would() -> None:
    memory = judge(GUIDE, replace(MACHINE, gpu_memory=CUDA_BYTES), None, None)
    assert memory.gpu.fit is Fit.TOO_LARGE
    assert "choose a GPU with at least 2 GiB (3 GiB for the replay too)" in memory.gpu.advice


def test_the_size_on_the_box_is_not_all_usable() -> None:
    memory = judge(GUIDE, MACHINE, None, None)
    assert memory.gpu.reserve == round(48 * GIB * GPU_RESERVE)
    assert 48 * GIB - memory.gpu.reserve < 45 * GIB, "what an A40 shows"


def test_a_gpu_of_unknown_size_is_no_verdict() -> None:
    memory = judge(GUIDE, replace(MACHINE, gpu="h100-4.7", gpu_memory=None), None, None)
    assert memory.gpu.fit is Fit.UNKNOWN
    assert 'set `memory = "...G"` in [clusters.site.gpus."h100-4.7"]' in memory.gpu.advice
    assert "3 GiB would be enough" in memory.gpu.advice


def test_what_fits_the_smallest_of_its_name_fits() -> None:
    unsure = replace(MACHINE, gpu="a100", gpu_memory=None, gpu_memory_least=40 * GIB)
    memory = judge(GUIDE, unsure, None, None)
    assert (memory.gpu.fit, memory.gpu.available) == (Fit.FITS, 40 * GIB)
    assert memory.gpu.advice == "assuming the smallest a100"
    small = judge(GUIDE, replace(unsure, gpu_memory_least=CUDA_BYTES), None, None)
    assert small.gpu.fit is Fit.UNKNOWN


def test_the_node_s_memory_has_a_setting_for_a_cure() -> None:
    short = judge(GUIDE, replace(MACHINE, host_memory=4 * GIB), None, None).host
    assert short.fit is Fit.TOO_LARGE
    assert '`memory = "10G"`' in short.advice
    cured = judge(GUIDE, replace(MACHINE, host_memory=10 * GIB), None, None).host
    assert cured.fit is Fit.FITS
    silent = judge(GUIDE, replace(MACHINE, host_memory=None), None, None).host
    assert silent.fit is Fit.UNKNOWN
    assert '`memory = "10G"`' in silent.advice


def test_without_a_gpu_everything_is_the_node_s() -> None:
    sizes = replace(GUIDE, on_gpu=False)
    memory = judge(sizes, replace(MACHINE, gpu=None, gpu_memory=None), None, None)
    assert memory.gpu is None
    names = {part.name for part in memory.host.parts}
    assert {"learner", "environments", "evaluation", "replay", "networks", "optimiser"} <= names
    assert not {"CUDA", "acting", "replay index"} & names


def test_a_rollout_has_no_memory_fallback() -> None:
    sizes = Sizes(recipes.load("guide-ppo-beast"), 64, "tf32")
    small = judge(sizes, replace(MACHINE, gpu_memory=GIB), None, None).gpu
    assert small.fit is Fit.TOO_LARGE
    assert small.advice == "choose a GPU with at least 3 GiB, or a smaller recipe"


def test_ranks_share_the_node_and_have_a_gpu_each() -> None:
    alone, shared = (judge(replace(GUIDE, ranks=ranks), MACHINE, None, None) for ranks in (1, 4))
    assert shared.gpu is not None
    replays = [part.bytes for each in (alone.gpu, shared.gpu) for part in each.parts if part.name == "replay"]
    assert replays[1] < replays[0] / 3.5
    assert shared.host.needed > alone.host.needed
    on_cpu = judge(replace(GUIDE, ranks=2, on_gpu=False), replace(MACHINE, gpu=None), None, None).host
    optimisers = [part.bytes for part in on_cpu.parts if part.name == "optimiser"]
    assert optimisers == [2 * part.bytes for part in alone.gpu.parts if part.name == "optimiser"]
