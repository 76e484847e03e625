"""The output of submit for a group: the grid before, and what was accepted after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from clusterkit.asking import agree
from clusterkit.cli.ui.console import err, note, say, warn, warn_of_trusted
from clusterkit.cli.ui.lines import plain_table
from clusterkit.cli.ui.submit import (
    note_environment,
    note_name,
    print_submitted,
    warn_lacking,
    warn_of_settled,
)
from clusterkit.runs.names import group_label, label
from clusterkit.units import format_duration, format_size, listed, plural

if TYPE_CHECKING:
    from clusterkit.submit.pipeline import Submitted
    from clusterkit.submit.plan import Plan, PlannedRun

_ROWS = 24
"""A longer grid shows only its first and last runs."""
ASK_ABOVE = 50
"""The number of runs above which submit asks for confirmation."""


def show_plan(plan: Plan, *, to: Console = err, rows: int = _ROWS) -> None:
    """Prints each run of the group with its own values, and what they request in total."""
    members = plan.runs
    names = list(dict.fromkeys(name for one in members for name in _values(one)))
    staged = len({one.member.stage for one in members if one.member}) > 1
    recipes = {one.recipe for one in members if one.recipe}
    headings = ["run", *(["stage"] if staged else []), *names]
    headings += ["seed"] if "seed" not in names and _seeded(plan) else []
    headings += ["recipe"] if len(recipes) > 1 and "recipe" not in names else []
    table = plain_table()
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
            Text.assemble(
                ("modified recipe", "yellow"),
                f" ({', '.join(modified)}): {count} of {len(members)} runs, permanently marked",
            ),
            soft_wrap=True,
        )


def confirmed(plan: Plan) -> bool:
    """Asks the user to confirm the number of runs."""
    return agree(f"Submit {plural(len(plan.runs), 'run')}?")


def show_group(done: Submitted, *, as_json: bool = False) -> None:
    """Prints only the group's id, or a JSON object, on standard output; the rest goes to standard error."""
    note_environment(done)
    warn_lacking(done.lacking)
    warn_of_settled(done.settled)
    warn_of_trusted(done.trusted)
    assert done.plan.group is not None
    group, cluster = done.plan.group.id, done.plan.cluster.name
    note_name(done.plan.group.name, group)
    jobs = [job_id.partition(";")[0] for job_id in done.jobs]
    begun = done.runs[0]
    many = f"job{'s' if len(jobs) > 1 else ''} {listed(jobs, 4)}"
    note(f"{group_label(begun)}: {plural(len(done.runs), 'run')}, {many} on {cluster}")
    note(f"next: clusterkit status {group_label(begun)}")
    note(f"      clusterkit logs {label(begun)} -f")
    if done.missing:
        first, last = done.missing[0], done.missing[-1]
        which = first if first == last else f"{first} to {last}"
        were = "was" if first == last else "were"
        warn(f"{plural(len(done.missing), 'run')} {were} not accepted", f": {which}")
        note("later: clusterkit resume RUN submits one of them again")
    if as_json:
        print_submitted([done])
    else:
        say(group)


def _values(one: PlannedRun) -> Mapping[str, str]:
    return one.member.values if one.member else {}


def _seeded(plan: Plan) -> bool:
    return any(one.recipe for one in plan.runs)


def _cell(one: PlannedRun, heading: str) -> str:
    values = _values(one)
    if heading == "run":
        return one.spec.run_id
    if heading == "stage":
        return f"{one.member.stage if one.member else 0} {one.profile.name}"
    if heading == "recipe" and heading not in values:
        return one.recipe
    if heading == "seed" and heading not in values:
        return str(one.spec.seed)
    return values.get(heading, "")


def _summary(plan: Plan) -> Text:
    """Summarizes the requested resources on one line."""
    group, (gpu, cpu) = plan.group, plan.hours
    assert group is not None
    asked = f"up to {gpu:,.0f} GPU hours" if gpu >= 10 else f"up to {gpu:.1f} GPU hours" if gpu else ""
    asked = asked or f"up to {cpu:,.1f} CPU hours"
    limits = {one.profile.time for one in plan.runs}
    each = f", {format_duration(limits.pop())} each" if len(limits) == 1 else ""
    packed = ""
    if group.pack > 1:
        job = plan.asked(group.dealt[0])
        sizes = [plural(job.cpus, "CPU")] if job.cpus else []
        sizes += [f"{format_size(job.memory)} memory"] if job.memory else []
        packed = f" in {plural(group.jobs, 'job')} of {' and '.join(sizes)}, {group.pack} on a GPU"
    if group.in_one > 1:
        packed += f", {group.in_one} in one process"
    at_once = f", {group.at_once} at a time" if group.at_once and group.at_once < group.jobs else ""
    return Text.assemble((plural(len(plan.runs), "run"), "bold"), f"{packed}{each}{at_once}: {asked}")
