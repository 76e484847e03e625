"""What submit says of a group: the grid before, and what was accepted after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from clusterkit.asking import agree
from clusterkit.cli.ui.console import err, note, out
from clusterkit.cli.ui.submit import warn_lacking
from clusterkit.cli.ui.trusted import warn_of_trusted
from clusterkit.runs.submission import array_id
from clusterkit.units import format_duration

if TYPE_CHECKING:
    from clusterkit.commands.group import SubmittedGroup
    from clusterkit.commands.sweep import GroupPlan, Planned

_ROWS = 24
"""A longer grid shows its first and last runs."""
_SIZES = {"cpus-per-task": "CPUs", "mem": "memory"}
ASK_ABOVE = 50
"""Runs; more are asked about."""


def show_plan(plan: GroupPlan, *, to: Console = err, rows: int = _ROWS) -> None:
    """Every run of the group with what is its own, and what all of them ask for."""
    members = plan.members
    names = list(dict.fromkeys(name for one in members for name in one.values))
    staged = len({one.stage for one in members}) > 1
    recipes = {one.recipe for one in members if one.recipe}
    headings = ["run", *(["stage"] if staged else []), *names]
    headings += ["seed"] if "seed" not in names and _seeded(plan) else []
    headings += ["recipe"] if len(recipes) > 1 and "recipe" not in names else []
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, no_wrap=heading in ("run", "seed"), overflow="fold")
    shown = members if len(members) <= rows else (*members[: rows - 4], *members[-3:])
    for one in shown:
        if len(shown) < len(members) and one is members[-3]:
            table.add_row("...")
        table.add_row(*(_cell(one, heading) for heading in headings))
    to.print(table)
    to.print(_summary(plan), soft_wrap=True)
    modified = list(dict.fromkeys(name for one in members for name in one.modified))
    if modified:
        count = sum(bool(one.modified) for one in members)
        to.print(
            f"[yellow]modified recipe[/] ({', '.join(modified)}): {count} of {len(members)} runs, "
            "marked for ever",
            soft_wrap=True,
        )
    unused = list(dict.fromkeys(name for one in members for name in one.unused))
    if unused:
        places = ", ".join(f"{{{name}}}" for name in unused)
        variables = ", ".join(
            f"$CLUSTERKIT_{'' if name == 'seed' else 'SWEEP_'}{name.upper()}" for name in unused
        )
        to.print(
            f"[yellow]the arguments do not contain {places}[/], so the program must read {variables}",
            soft_wrap=True,
        )


def confirmed(plan: GroupPlan) -> bool:
    """Ask a person whether so many runs are meant."""
    return agree(f"Submit {len(plan.members)} runs?")


def show_group(done: SubmittedGroup) -> None:
    """The group's id on standard output, alone; the rest on standard error."""
    warn_lacking(done.lacking)
    for run_id, came in done.settled.items():
        what = f"is job {came.job_id}" if came.job_id else came.why
        err.print(f"[yellow]{run_id}[/], whose submission was interrupted: {what}", soft_wrap=True)
    warn_of_trusted(done.trusted)
    group, cluster = done.plan.group, done.plan.request.base.cluster.name
    jobs = list(dict.fromkeys(array_id(each.job_id).partition(";")[0] for each in done.handed))
    shown = ", ".join(jobs[:4]) + (f" and {len(jobs) - 4} more" if len(jobs) > 4 else "")
    note(f"{_runs(len(done.runs))}: job{'s' if len(jobs) > 1 else ''} {shown} on {cluster}")
    note(f"next: clusterkit status {group}")
    note(f"      clusterkit logs {done.runs[0].run_id} -f")
    if done.missing:
        first, last = done.missing[0], done.missing[-1]
        which = first if first == last else f"{first} to {last}"
        were = "was" if first == last else "were"
        err.print(f"[yellow]{_runs(len(done.missing))} {were} not taken[/]: {which}", soft_wrap=True)
        note("later: clusterkit resume RUN submits one of them again")
    out.print(group, markup=False, soft_wrap=True)


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _seeded(plan: GroupPlan) -> bool:
    return any(one.recipe for one in plan.members)


def _cell(one: Planned, heading: str) -> str:
    if heading == "run":
        return one.member.run_id
    if heading == "stage":
        return f"{one.stage} {one.request.profile.name}"
    if heading == "recipe" and heading not in one.values:
        return one.recipe
    if heading == "seed" and heading not in one.values:
        return str(one.request.profile.seed if one.request.seed is None else one.request.seed)
    return one.values.get(heading, "")


def _summary(plan: GroupPlan) -> str:
    """How much is asked for, on one line."""
    gpu, cpu = plan.hours
    asked = f"up to {gpu:,.0f} GPU hours" if gpu >= 10 else f"up to {gpu:.1f} GPU hours" if gpu else ""
    asked = asked or f"up to {cpu:,.1f} CPU hours"
    limits = {one.request.profile.time for one in plan.members}
    each = f", {format_duration(limits.pop())} each" if len(limits) == 1 else ""
    packed = ""
    if plan.request.pack > 1:
        given = dict(option.removeprefix("--").partition("=")[::2] for option in plan.dealt[0].options)
        size = [f"{given[name]} {unit}" for name, unit in _SIZES.items() if name in given]
        packed = f" in {plan.jobs} jobs of {' and '.join(size)}, {plan.request.pack} on a GPU"
    if plan.in_one > 1:
        packed += f", {plan.in_one} in one process"
    at_once = f", {plan.at_once} at a time" if plan.at_once and plan.at_once < plan.jobs else ""
    return f"[bold]{_runs(len(plan.members))}[/]{packed}{each}{at_once}: {asked}"
