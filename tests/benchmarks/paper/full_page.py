"""What docs/paper.md says of runs at full length: a picture and a table for each set of tasks."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from tests.benchmarks.paper.page import PICTURES, STYLE, rewrite, save, table
from tests.benchmarks.paper.record import Run
from tests.benchmarks.paper.rows import ROWS, Row
from trainer.recipe.tables import read_table

NAME = "paper-full"
_COLOURS = {"strong": "#3f9a4a", "guide": "#8a5fb5", "mclean": "#1f6fb4"}
_FEW = 4
"""Tasks up to which the table names each."""
_WIDTH = 1024
"""Of the paper's row that is beside ours: its headline."""


def page(found: Sequence[Run]) -> None:
    """Draw the pictures, and write tables and sentences into docs/paper.md."""
    for group in groups(found):
        draw(group, [run for run in found if ROWS[run["row"]].group == group])
    rewrite(NAME, render(found))


def groups(found: Sequence[Run]) -> list[str]:
    """The sets of tasks of which there are runs."""
    return [group for group in dict.fromkeys(row.group for row in ROWS.values()) if _of(found, group)]


def render(found: Sequence[Run]) -> str:
    """Returns what the page says of some runs."""
    blocks = []
    for group in groups(found):
        alt = f"{group}: mean success by steps and by minutes, and success of each task"
        blocks += [f"![{alt}](pictures/{name(group)})", "\n".join(_table(group, _of(found, group)))]
    blocks += [line for row in ROWS.values() if row.like and (line := _twins(row, found))]
    if missing := _missing(found):
        blocks.append(f"Not run: {', '.join(missing)}.")
    return "\n\n".join(blocks)


def name(group: str) -> str:
    """The file of a picture."""
    return f"{NAME}-{group.lower().replace(' ', '-')}.svg"


def mean(run: Run) -> list[float]:
    """Mean success over the tasks, by evaluation."""
    return [statistics.fmean(row) for row in zip(*run["evaluations"]["success"].values(), strict=True)]


def _of(found: Sequence[Run], group: str) -> list[Run]:
    """Those that have been evaluated."""
    return [run for run in found if ROWS[run["row"]].group == group and run["evaluations"]["step"]]


def _table(group: str, found: Sequence[Run]) -> list[str]:
    tasks = ROWS[found[0]["row"]].tasks
    few = [task.removesuffix("-v3") for task in tasks] if len(tasks) <= _FEW else []
    rows = [_cells(run, few) for run in found]
    if published := _paper(group):
        steps, success = published
        blank = [""] * (4 - bool(few) + len(few))
        rows.append([f"the paper, width {_WIDTH:,}", "10 seeds", f"{steps:,}", f"{success:.3f}", *blank])
    head = ["row", "seed", "steps", "success", *(few or ["lowest task"])]
    return table([*head, "minutes", "pieces", "device"], rows)


def _cells(run: Run, tasks: Sequence[str]) -> list[str]:
    """A run's line of a table: where its last evaluation found it."""
    success = {task: values[-1] for task, values in run["evaluations"]["success"].items()}
    lowest = min(success, key=success.__getitem__)
    each = [f"{success[task]:.2f}" for task in tasks] or [f"{lowest} {success[lowest]:.2f}"]
    last, devices = run["evaluations"]["step"][-1], dict.fromkeys(piece["device"] for piece in run["pieces"])
    steps = f"{last:,}" if last == run["total_steps"] else f"{last:,} of {run['total_steps']:,}"
    return [
        f"`{run['row']}`",
        str(run["seed"]),
        steps,
        f"{mean(run)[-1]:.3f}",
        *each,
        f"{run['evaluations']['minutes'][-1]:.0f}",
        str(len(run["pieces"])),
        ", ".join(device for device in devices if device),
    ]


def _paper(group: str) -> tuple[int, float] | None:
    """Steps and success of the paper's row for a set of tasks, if it has one."""
    published = read_table("benchmarks/published")
    for one in published["results"]:
        if (one["benchmark"], one["actor"], one["critics"]) == (group, _WIDTH, _WIDTH):
            return published["steps"][group], one["success"]
    return None


def _twins(row: Row, found: Sequence[Run]) -> str | None:
    """Says whether runs that were killed ended as those that were not."""
    ends = {
        (run["row"], run["seed"]): run["pieces"][-1]["sha256"]
        for run in found
        if run["pieces"][-1]["end"] == "done"
    }
    pairs = [(ends.get((row.name, seed)), ends.get((row.like, seed))) for seed in row.seeds]
    if not all(one and other for one, other in pairs):
        return None
    same = all(one == other for one, other in pairs)
    verdict = "the same parameters, to the bit, as" if same else "not the parameters of"
    killed = f"killed once with `kill -9` after {row.kill_at:,} steps"
    return f"`{row.name}`, {killed}, ended with {verdict} `{row.like}`."


def _missing(found: Sequence[Run]) -> list[str]:
    """The runs of which there is nothing, by row."""
    there = {(run["row"], run["seed"]) for run in found if run["evaluations"]["step"]}
    listed = []
    for row in ROWS.values():
        seeds = [str(seed) for seed in row.seeds if (row.name, seed) not in there]
        if seeds:
            which = "" if len(seeds) == len(row.seeds) else f" (seed {', '.join(seeds)})"
            listed.append(f"`{row.name}`{which}")
    return listed


def draw(group: str, found: Sequence[Run]) -> None:
    """Draw success of one set of tasks: a thin line for each seed, a bold one for their mean."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    tasks = [task.removesuffix("-v3") for task in ROWS[found[0]["row"]].tasks]
    tasks = tasks if len(tasks) <= 10 else []
    titles = ["mean", "mean by minutes", *tasks]
    columns = 6 if len(titles) > 2 else 2
    lines = -(-len(titles) // columns)
    unit, word = (1e6, "million steps") if found[0]["total_steps"] >= 5e6 else (1e3, "thousand steps")
    with rc_context({"svg.hashsalt": name(group), **STYLE}):
        figure = Figure(figsize=(12, 0.4 + 2.2 * lines), layout="constrained")
        every = figure.subplots(lines, columns, sharey=True, squeeze=False).ravel()
        for axes, title in zip(every, titles, strict=False):
            for row in dict.fromkeys(run["row"] for run in found):
                mine = [run for run in found if run["row"] == row]
                _lines(axes, title, mine, unit)
            if (published := _paper(group)) and title.startswith("mean"):
                axes.axhline(
                    published[1], color="#777777", lw=0.8, ls="--", label=f"the paper at {published[0]:,}"
                )
            axes.set(title=title, xlabel="minutes" if title == titles[1] else word, ylim=(-0.02, 1.02))
        for axes in every[len(titles) :]:
            axes.set_axis_off()
        every[0].set_ylabel("success")
        every[0].legend(loc="upper left", frameon=False, fontsize=7)
        save(figure, PICTURES / name(group))


def _lines(axes: Any, title: str, mine: Sequence[Run], unit: float) -> None:
    """Draws the runs of a row."""
    row = mine[0]["row"]
    colour = next(colour for word, colour in _COLOURS.items() if word in row)
    curves = []
    for run in mine:
        told = run["evaluations"]
        where = told["minutes"] if title == "mean by minutes" else [step / unit for step in told["step"]]
        success = mean(run) if title.startswith("mean") else told["success"][title]
        curves.append(dict(zip(told["step"], zip(where, success, strict=True), strict=True)))
        axes.plot(where, success, color=colour, lw=0.6, alpha=0.5)
    common = sorted(set.intersection(*map(set, curves)))
    middle = [[statistics.fmean(curve[step][axis] for curve in curves) for step in common] for axis in (0, 1)]
    axes.plot(*middle, color=colour, lw=2, label=row)
