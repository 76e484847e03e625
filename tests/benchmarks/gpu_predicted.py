"""What is predicted of an H200 with 16 processors, and what it is compared with, for docs/gpu.md.

Predictions were made by arithmetic before any GPU was at hand.
"""

from __future__ import annotations

from typing import NamedTuple


class Update(NamedTuple):
    """What is predicted of updates: of a recipe in a precision, how many a second."""

    recipe: str
    precision: str
    by_autograd: str
    by_kernels: str


class Steps(NamedTuple):
    """What is predicted of a whole run: steps a second."""

    recipe: str
    environments: int
    part: str
    by_autograd: str
    by_kernels: str


UPDATES = (
    Update("guide-mt10", "fp32", "750-850", "1,000"),
    Update("guide-mt10", "tf32", "1,300-1,600", "2,000"),
    Update("mclean2025-mt10", "fp32", "350-400", "340"),
    Update("mclean2025-mt10", "tf32", "900-1,100", "1,090"),
)
STEPS = (
    Steps("guide-mt10", 10, "mt10", "7,500-9,500", "11,100"),
    Steps("guide-mt10", 30, "mt10_30", "12,000-15,000", "18,500"),
    Steps("mclean2025-mt10", 10, "paper_mt10", "6,500-8,500", "9,500"),
    Steps("mclean2025-mt10", 30, "paper_mt10_30", "9,000-11,000", "9,500"),
)
OF_PARTS = {
    "tests": "all pass",
    "speed": "guide-mt10, 512 transitions, tf32: 2,000 updates/s by kernels, 1,275 by autograd",
    "paper": "tf32: 1,090 updates/s by kernels, 730 by autograd",
    "micro": "two members, 512 transitions: nn 18, tn 13.5, nt 16.5 us. One product of all four networks "
    "pays if four take much less than twice as long, transposed weights if tn is below nn by more than 2 us, "
    "streams if beside is below in_a_row. Adam, norm and average: 140 us, in pieces 60",
    "profile": "75 launches or fewer in 480 us, by autograd 206 in 789",
    "run_profile": "540 us an update, of which drawing and copies 60",
    "reference": "1,611 updates/s compiled and captured, at 512 transitions",
    "sb3": "50 updates/s",
    "environments": "22,700 steps/s of 10, 35,400 of 30",
    "together": "6,000 steps/s",
    "pack": "2.5 times mt10",
    "mps": "2.5 times mt10",
    "two_million": "110 s of training at 18,500 steps/s, 240 s at 9,900",
    "two_million_resumed": "the sha256 of two_million",
    **{each.part: f"{each.by_kernels} steps/s, by autograd {each.by_autograd}" for each in STEPS},
}
"""What is predicted of parts in words, printed beside what they find."""
PEERS = (
    ("trainer, CUDA graph", "speed", "captured"),
    ("trainer, by autograd, CUDA graph", "speed", "captured_by_autograd"),
    ("trainer, eager", "speed", "eager"),
    ("plain PyTorch, eager", "speed", "plain"),
    ("plain PyTorch, its networks through torch.compile", "compiled", "plain_compiled"),
    ("Stable-Baselines3", "sb3", "sb3"),
    ("LeanRL-like file, eager", "reference", "reference_eager"),
    ("LeanRL-like file, CUDA graph", "reference", "reference"),
    ("LeanRL-like file, torch.compile", "reference", "reference_compiled_eager"),
    ("LeanRL-like file, torch.compile and CUDA graph", "reference", "reference_compiled"),
)
"""Whoever is compared, with the part that measures it and the number's name there."""
FOUR = (
    ("one run", "mt10"),
    ("`--in-one`", "together"),
    ("`--pack`", "pack"),
    ("`--pack`, NVIDIA MPS", "mps"),
)
"""Ways of several seeds on one GPU, and the part that measures each."""
