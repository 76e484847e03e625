"""What the page says in words."""

NOTES = {
    "ours": "`python -m trainer train` without evaluations; chooses its own workers; on MT10, hidden "
    "biases and last layers start at or near zero, as in the paper's code",
    "sb3": "its own vector environments; PyTorch's initial weights for SAC, TD3 and DQN",
    "single-file": "like CleanRL and, for SAC, LeanRL (compiled and captured on a GPU only); PPO and A2C "
    "treat a time limit as termination, as CleanRL does",
    "skrl": "its examples' models; PyTorch's initial weights; A2C uses Adam and no value coefficient; SAC's "
    "Gaussian is clipped, not squashed; DQN uses squared errors and no gradient clipping",
    "rsl_rl": "clips gradients of policy and values separately; Adam epsilon 1e-8; PyTorch's initial weights",
    "rl_games": "orthogonal last layers; `torch_compile` on a GPU only; SAC clips no gradients and updates "
    "the actor once for each critic",
}
"""What a side has of its own where the values are equal."""

MEASURES = {
    "steps_per_second": "steps per second",
    "steps_per_cpu_second": "steps per CPU second",
    "peak_bytes": "memory in MB",
}
SAME = 0.03
"""Medians this near to one another are called equal."""
LOST = f"""Here a side is better if its median is by more than {SAME:.0%},
or, for returns, if the whole of its 95% interval is above the whole of ours.
[On a GPU](gpu.md), one single file, compiled and captured, updates 1.39 times as fast as ours."""

HEAD = """# Comparison with other trainers

The trainer's SAC, TD3, DQN, PPO and A2C are compared with Stable-Baselines3, skrl, rsl_rl, rl_games and
single files like CleanRL's and LeanRL's: same environments, networks, batches, updates and seeds, one
process after the other on one machine. `{command}` repeats the comparison and writes this page from its
[findings](comparison.jsonl).
"""

LOADED = (
    "**Other programs were running: wall-clock rates are too low on all sides. Compare steps per CPU second "
    "only.**"
)

READING = """## How to read the figures

- Speed is the median over seeds after the warm-up or first rollouts, of whole runs. CPU seconds and memory
  (peak proportional set size) count all processes.
- Returns are those of the final greedy policy in {episodes} episodes. {overlap}
  So few steps show how fast learning begins, not where it ends.
- Each peer uses its faster vector environment and its fastest number of PyTorch threads; for PPO and A2C,
  all use one thread.
"""

EQUAL = """## What is equal

All use the values of these recipes in `trainer/recipes/`:
"""
