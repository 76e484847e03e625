"""What the page says in words."""

GUIDE = {
    "sb3": ("30-50%", "excellent", "moderate"),
    "skrl": ("70-90%", "buggy", "fast"),
    "rsl_rl": ("80-95%", "limited", "very fast"),
    "rl_games": ("75-90%", "good", "fast"),
}
"""What the guides' table of frameworks says: GPU use, discrete actions, speed."""
NOTES = {
    "ours": "as `python -m trainer train` runs it, without evaluations; it chooses its own worker processes; "
    "on MT10 hidden biases start at zero and last layers near it, as in the paper's code",
    "sb3": "`DummyVecEnv` or `SubprocVecEnv`, after the like of it that was faster of Gymnasium's; SAC, "
    "TD3 and DQN have PyTorch's own initial weights",
    "single-file": "written here in the manner of CleanRL and, for SAC, of LeanRL (compiled and captured on "
    "a GPU only); its PPO and A2C take an end by time for an end, as CleanRL's do",
    "skrl": "models as its examples write them, PyTorch's own initial weights; A2C has Adam where the others "
    "have RMSprop, and no weight for the loss of values; SAC's Gaussian is clipped, not squashed; "
    "DQN squares all errors and clips no gradients",
    "rsl_rl": "clips the gradients of policy and values apart; Adam's epsilon 1e-8, PyTorch's own initial "
    "weights",
    "rl_games": "orthogonal weights also in the last layers; `torch_compile` only on a GPU; SAC's gradients "
    "not clipped, an actor update for each of the critics (its default: for every second)",
}
"""What a side has of its own where the values are equal."""

MEASURES = {
    "steps_per_second": "steps a second",
    "steps_per_cpu_second": "steps a processor second",
    "peak_bytes": "memory",
}
SAME = 0.03
"""Medians this near to one another are called equal."""

HEAD = """# Beside other trainers

What our SAC, TD3, DQN, PPO and A2C do beside Stable-Baselines3, skrl, rsl_rl, rl_games and single files in
the manner of CleanRL and LeanRL: the same environments, networks, batches, numbers of updates and seeds, one
process after the other on one machine. This page is made by a script from [its findings](comparison.jsonl);
no figure is typed.

    {command}
"""

LOADED = (
    "**Other programs were running: rates of wall time are too low on all sides, and only those of processor "
    "time compare.**"
)

READING = """## How to read the tables

- **Steps and updates a second** are medians over seeds, counted from when the first rollouts or the warm-up
  are over until the last update: environments, acting, learning and each side's own bookkeeping. **A
  processor second** counts all processes of a side: it tells what a step costs where processors are scarce,
  and is less moved by other programs.
- **Memory** is the greatest proportional set size of all processes of a side: what they share counts once.
- **GPU** is the mean utilisation that NVML tells, and the memory in use at the end; left out without
  a GPU.
- **Return** is of the likeliest actions of the final policy in {episodes} episodes that are the same for all;
  the mean over seeds and Student's 95% interval, which is wide with two or three seeds. Where two of them
  overlap, nothing is said of who is better; so few steps tell how fast learning begins, not where it ends.
- **Ours / it**: our steps a second over the side's. Below 1 we are slower.
- Every peer gets Gymnasium's `SyncVectorEnv` or `AsyncVectorEnv`, whichever steps faster in a short trial
  (Stable-Baselines3 its own two); our environments are the trainer's. PPO and A2C have one thread of PyTorch
  on every side; for SAC, TD3 and DQN each peer gets as many as are fastest for its networks in a short trial.
"""

GUIDES = """The guides rank four frameworks by the share of the GPU that they use, from memory. Measured here:
in PPO on HalfCheetah-v5 (GPU use, steps a second) and on CartPole-v1 (discrete actions: the return). A share
of the GPU says little about speed, for who wastes the GPU's time uses it too.
"""
