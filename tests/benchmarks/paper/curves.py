"""Learning curves of our trainer, of the paper's own code and of `strong-mt10`, on the same tasks.

    python -m tests.benchmarks.paper.curves run --work FOLDER [--code FOLDER --python INTERPRETER]
        [--seeds 1..5] [--sides ours,theirs,strong] [--at-once 2] [--device cpu|cuda]
    python -m tests.benchmarks.paper.curves page

The authors' code and its interpreter are those of `lockstep`; only `theirs` needs them. A piece is one seed
of one side; docs/paper-curves.json keeps those that were run, and `run` leaves them out, so the experiment
may be cut into pieces. All products are in float32, on a GPU too, where pieces are fastest beside one another
under NVIDIA's MPS daemon.

All sides learn four tasks of MT10 with one environment each, networks of width 128, 128 transitions a task in
each batch, 100,000 a task in the buffer, one update for each vector step after 16,000 steps of warm-up, and
goals drawn with the seed. Everything else is as in `mclean2025-mt10`, and of the side `strong` as in
`strong-mt10`. Every 30,000 steps the deterministic policy plays all 50 training goals of each task, scored by
the same evaluator. The verdicts are about the area under the mean success from 60,000 to 300,000 steps, by
the 90% Welch interval of the difference: ours and theirs are equivalent if it lies within 0.10 of zero;
`strong` is stronger or weaker than ours if it does not contain zero.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.benchmarks.paper.lockstep import RECIPE as PAPER
from tests.benchmarks.paper.page import PICTURES, STYLE, rewrite, save, table
from trainer import arguments, recipe
from trainer.algorithms.sac_config import SACConfig
from trainer.algorithms.sac_learner import SAC
from trainer.envs.metaworld import MetaworldFactory
from trainer.evaluation.evaluator import Evaluator, every_goal
from trainer.files import atomic_write_bytes

TASKS = ("reach", "drawer-close", "window-close", "button-press-topdown")
WIDTH, ROWS, CAPACITY, WARMUP = 128, 128, 100_000, 16_000
STEPS, EVERY, EPISODES = 300_000, 30_000, 50
FIRST, MARGIN, CONFIDENCE, POWER = 60_000, 0.10, 0.90, 0.80
STRONG = "strong-mt10"
SIDES = {"ours": "#1f6fb4", "theirs": "#d1701f", "strong": "#3f9a4a"}
ROOT = Path(__file__).parents[3]
NAME = "paper-curves"
RESULTS = ROOT / "docs" / f"{NAME}.json"
Piece = dict[str, Any]


def values(name: str = PAPER) -> dict[str, Any]:
    """The values of the recipe of that name with those of this experiment."""
    changed = {
        "tasks": list(TASKS),
        "actor_hidden": [WIDTH] * 3,
        "critic_hidden": [WIDTH] * 3,
        "batch_size": ROWS * len(TASKS),
        "replay_capacity": CAPACITY * len(TASKS),
        "env_steps_per_update": float(len(TASKS)),
        "warmup_steps": WARMUP,
        "goals": "seed",
    }
    return {**recipe.load(name).values, **changed}


def ours(recipe_name: str, seed: int, folder: Path, given: argparse.Namespace) -> Piece:
    """A run of our trainer, which evaluates itself; one that was stopped goes on from its checkpoint."""
    shipped = recipe.load(recipe_name).values
    changed = {name: value for name, value in values(recipe_name).items() if value != shipped[name]}
    argv = [sys.executable, "-m", "trainer", "train", "--recipe", recipe_name, "--run-dir", str(folder)]
    for name, value in changed.items():
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        argv += ["--unlock", name, "--set", f"{name}={text}"]
    options = {"total-steps": STEPS, "num-envs": len(TASKS), "seed": seed, "eval-every": EVERY}
    options |= {"eval-episodes": EPISODES, "workers": 0, "threads": 1, "checkpoint-every": EVERY}
    argv += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    if list(folder.glob("checkpoints/step-*")):
        argv.append("--resume")
    argv += ["--precision", "fp32", "--device", given.device, "--wandb", "disabled"]
    if given.device == "cuda":
        argv.append("--lockstep")  # as on a CPU, and as in the authors' code
    run(argv, folder, given.device)
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    found = [row for row in rows if row["kind"] == "eval"]
    names = {task: next(name for name in found[0] if name.startswith(f"success/{task}-")) for task in TASKS}
    return {
        "steps": [row["step"] for row in found],
        "success": {task: [round(row[name], 4) for row in found] for task, name in names.items()},
    }


def theirs(seed: int, folder: Path, given: argparse.Namespace) -> Piece:
    """A run of the authors' code, whose actors our evaluator scores, at once or when it is started again."""
    script = Path(__file__).with_name("theirs_curve.py")
    numbers = (WIDTH, STEPS, EVERY, ROWS * len(TASKS), CAPACITY * len(TASKS), WARMUP)
    argv = [given.python, script, given.code.resolve(), folder, seed, ",".join(TASKS), *numbers]
    if not (folder / "official.json").exists():  # which is written last
        run(list(map(str, argv)), folder, given.device)
    evaluator = Evaluator(MetaworldFactory(tuple(f"{task}-v3" for task in TASKS), seed), EPISODES)
    agent = SAC(SACConfig.from_values(values()), 39, 4, len(TASKS))
    success: dict[str, list[float]] = {task: [] for task in TASKS}
    steps = list(range(EVERY, STEPS + 1, EVERY))
    for step in steps:
        take_over(agent, dict(np.load(folder / f"{step}.npz")))
        found = evaluator.run(partial(agent.policy.act, greedy=True), every_goal(values(), EPISODES))
        assert found is not None
        assert found.success is not None
        for task, row in zip(TASKS, found.success, strict=True):
            success[task].append(round(float(row.mean()), 4))
    evaluator.close()
    official = json.loads((folder / "official.json").read_text())
    return {"steps": steps, "success": success, "official": {task: official[task] for task in TASKS}}


def take_over(agent: SAC, given: dict[str, Any]) -> None:
    """Gives our policy their actor's weights."""
    actor = agent.policy.actor
    with torch.no_grad():
        for kind, mine in (("weight", actor.weights), ("bias", actor.biases)):
            for layer, parameter in enumerate(mine):
                parameter.copy_(torch.from_numpy(given[f"{kind}.{layer}"]).reshape(parameter.shape))


LEARN = {"ours": partial(ours, PAPER), "theirs": theirs, "strong": partial(ours, STRONG)}


def run(argv: Sequence[str], folder: Path, device: str) -> None:
    """Run one side on one thread of the processor; its output goes into a file.

    Raises:
        SystemExit: it failed.
    """
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    env = {**os.environ, "OMP_NUM_THREADS": "1", "XLA_FLAGS": flags, "JAX_PLATFORMS": f"{device},cpu"}
    env |= {"JAX_DEFAULT_MATMUL_PRECISION": "highest", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    with (folder / "output").open("wb") as output:
        done = subprocess.run(argv, cwd=ROOT, env=env, stdout=output, stderr=output, check=False)
    if done.returncode:
        raise SystemExit(f"{argv[:4]} failed: see {folder / 'output'}")


def pieces() -> list[Piece]:
    """The pieces that are there."""
    found: list[Piece] = json.loads(RESULTS.read_text())["pieces"] if RESULTS.exists() else []
    return found


def run_piece(side: str, seed: int, given: argparse.Namespace) -> Piece:
    """Run a piece.

    Raises:
        SystemExit: it failed.
    """
    torch.set_num_threads(1)
    folder = given.work / f"{side}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    began = time.time()
    found = LEARN[side](seed, folder, given)
    minutes = round((time.time() - began) / 60, 1)
    return {"side": side, "seed": seed, "device": given.device, "minutes": minutes, **found}


def run_all(given: argparse.Namespace) -> None:
    """Run the pieces that are missing, the sides in turn; exits with 1 if one failed."""
    there = {(one["side"], one["seed"]) for one in pieces()}
    wanted = [(side, seed) for seed in given.seeds for side in given.sides if (side, seed) not in there]
    with ProcessPoolExecutor(given.at_once, get_context("spawn")) as pool:
        started = [pool.submit(run_piece, side, seed, given) for side, seed in wanted]
        for done in as_completed(started):
            if error := done.exception():
                print(error, file=sys.stderr, flush=True)
                continue
            one = done.result()
            document = {"schema": 1, "pieces": sorted([*pieces(), one], key=lambda p: (p["side"], p["seed"]))}
            atomic_write_bytes(RESULTS, (json.dumps(document, indent=1) + "\n").encode())
            name = f"{one['side']}, seed {one['seed']}"
            print(f"{name}: area {area(one):.3f}, {one['minutes']} min", flush=True)
    sys.exit(any(done.exception() for done in started))


def mean(piece: Piece) -> list[float]:
    """Mean success over the tasks, by evaluation."""
    return [statistics.fmean(row) for row in zip(*piece["success"].values(), strict=True)]


def area(piece: Piece) -> float:
    """Area under the mean success from `FIRST` on, by the trapezoid rule, divided by the steps."""
    kept = [(step, value) for step, value in zip(piece["steps"], mean(piece), strict=True) if step >= FIRST]
    steps, success = zip(*kept, strict=True)
    return float(np.trapezoid(success, steps) / (steps[-1] - steps[0]))


def page() -> None:
    """Draw the curves, and write the table and the verdicts into docs/paper.md."""
    found = pieces()
    draw(found)
    rewrite(NAME, render(found))


def render(found: Sequence[Piece]) -> str:
    """Returns what docs/paper.md says of the pieces."""
    rows = []
    for one in found:
        ends = [f"{one['success'][task][-1]:.2f}" for task in TASKS]
        cells = [one["side"], str(one["seed"]), *ends, f"{area(one):.3f}"]
        cells += [one["device"], f"{one['minutes']:.0f}"]
        rows.append(cells)
    lines = table(["code", "seed", *TASKS, "area", "device", "minutes"], rows)
    areas = {side: [area(one) for one in found if one["side"] == side] for side in SIDES}
    for side, other, verdict in (("ours", "theirs", equivalence), ("strong", "ours", strength)):
        if min(len(areas[side]), len(areas[other])) < 2:
            lines.append(f"\n`{side}` and `{other}`: too few seeds for a verdict.")
            continue
        low, high = interval(areas[side], areas[other])
        means = " and ".join(f"{statistics.fmean(areas[name]):.3f} (`{name}`)" for name in (side, other))
        said = f"90% interval of the difference {low:+.3f} to {high:+.3f}"
        lines.append(f"\nMean areas {means}; {said}: {verdict(areas[side], areas[other])}.")
    apart = [
        abs(one["official"][task] - one["success"][task][-1])
        for one in found
        if "official" in one
        for task in TASKS
    ]
    if apart:
        lines.append(
            f"\nMeta-World's own evaluation of the authors' last actors differs from ours by at most "
            f"{max(apart):.2f} in a task."
        )
    return "\n".join(lines) + "\n"


def interval(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """The 90% Welch interval of the difference of two means."""
    from scipy import stats  # takes seconds, which the tests of other parts need not wait for

    low, high = stats.ttest_ind(one, other, equal_var=False).confidence_interval(CONFIDENCE)
    return float(low), float(high)


def equivalence(one: Sequence[float], other: Sequence[float]) -> str:
    """What their areas say of two codes that should be equal."""
    low, high = interval(one, other)
    if low >= -MARGIN and high <= MARGIN:
        return "equivalent"
    spreads = statistics.stdev(one), statistics.stdev(other)
    return (
        f"not shown to be equivalent. With standard deviations of {spreads[0]:.2f} and {spreads[1]:.2f}, "
        f"{seeds_for(*spreads)} seeds a side would be needed to show, four times in five, that equal codes "
        "are equivalent"
    )


def seeds_for(*spreads: float) -> int:
    """Seeds a side for a power of 0.8 where two means are equal, from the sides' standard deviations.

    Two one-sided tests in the normal approximation (Chow, Shao, Wang: Sample Size Calculations in Clinical
    Research, 3.2): n = (s1^2 + s2^2) (z(0.95) + z(0.90))^2 / margin^2.
    """
    normal = statistics.NormalDist()
    quantiles = normal.inv_cdf((1 + CONFIDENCE) / 2) + normal.inv_cdf((1 + POWER) / 2)
    return math.ceil(sum(spread**2 for spread in spreads) * (quantiles / MARGIN) ** 2)


def strength(one: Sequence[float], other: Sequence[float]) -> str:
    """What their areas say of a recipe that should be stronger than another."""
    low, high = interval(one, other)
    return "stronger" if low > 0 else "weaker" if high < 0 else "no difference shown"


def draw(found: Sequence[Piece]) -> None:
    """Draw the mean success of each piece and, bold, of each side; and that of each task beside it."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    steps = np.arange(EVERY, STEPS + 1, EVERY) / 1000
    with rc_context({"svg.hashsalt": NAME, **STYLE}):
        figure = Figure(figsize=(11, 2.6), layout="constrained")
        for axes, name in zip(figure.subplots(1, 1 + len(TASKS), sharey=True), ("mean", *TASKS), strict=True):
            for side, colour in SIDES.items():
                mine = [one for one in found if one["side"] == side]
                seeds = [mean(one) if name == "mean" else one["success"][name] for one in mine]
                if seeds:
                    apart = [[*success, math.nan] for success in seeds]  # one path for all seeds is shorter
                    rows = [*steps, math.nan] * len(seeds)
                    axes.plot(rows, np.ravel(apart), color=colour, lw=0.6, alpha=0.4)
                    axes.plot(steps, np.mean(seeds, 0), color=colour, lw=2, label=side)
            axes.set(title=name, xlabel="thousand steps", ylim=(-0.02, 1.02))
        figure.axes[0].set_ylabel("success")
        figure.axes[0].legend(loc="upper left", frameon=False)
        save(figure, PICTURES / f"{NAME}.svg")


def some_sides(text: str) -> list[str]:
    """Reads sides as an argparse type."""
    names = text.split(",")
    if unknown := [name for name in names if name not in SIDES]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not a side; write {','.join(SIDES)}")
    return names


def main() -> None:
    """Run pieces, or make the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("--code", type=Path, help="the authors' code, rainx0r/mtrl at f5c121f")
    runs.add_argument("--python", type=Path, help="a Python 3.12 with what their code needs")
    runs.add_argument("--work", type=Path, required=True, help="a folder for runs and weights")
    runs.add_argument("--seeds", type=arguments.seeds, default="1..5")
    runs.add_argument("--sides", type=some_sides, default="ours,theirs,strong")
    runs.add_argument("--at-once", type=int, default=2, help="pieces at a time, of one thread each")
    runs.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to learn")
    commands.add_parser("page")
    given = parser.parse_args()
    if given.command == "run" and "theirs" in given.sides and not (given.code and given.python):
        parser.error("the side `theirs` needs --code and --python; leave it out with --sides ours,strong")
    run_all(given) if given.command == "run" else page()


if __name__ == "__main__":
    main()
