"""Advice from runs for the next one: requested against used resources, bottlenecks, faults. Pure.

While the environments step, the trainer learns; `env` is the wait that is left over after that. On a GPU
the host runs ahead, so the wait for the GPU shows in `learn` or in `act`: there, utilisation decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterkit.report.measured import Measured, known, median_rate, share
from clusterkit.report.needs import ResourceNeed, needs
from clusterkit.results.series import not_finite, not_finite_words
from clusterkit.runs.run_dir import table
from clusterkit.units import beside, format_seconds

NAMES = {
    "learn": "the learner",
    "act": "acting",
    "env": "the physics",
    "evaluate": "evaluation",
    "checkpoint": "I/O of checkpoints",
    "other": "starting and the rest",
}
_BUSY = 0.7
"""Utilisation from which the GPU is the bottleneck."""
_WORTH = 1.05
"""Changes that make a run less than 5% faster are not mentioned."""
_REPEATED = 0.02
"""Share of repeated steps from which a setting is worth changing."""
_STARTING = 0.2
"""Share of attempt time outside the loop from which it is worth mentioning."""
_CROWDED = 0.7
"""Used share of a needed processor; below it the loop waited for a processor."""
_DORMANT = 0.25
"""The paper's widths up to 1,024 end at 15% at most, 2,048 at 32%, 4,096 at 49% (MT10)."""


@dataclass(frozen=True)
class Bottleneck:
    """The part of the loop that takes most of the time."""

    part: str
    """A key of `NAMES`."""
    text: str


@dataclass(frozen=True)
class Change:
    """A setting that would make the next run faster."""

    setting: str
    """The setting to write."""
    why: str
    factor: float
    """The speed-up: an upper bound, or measured."""
    measured: bool = False
    """Whether another run shows it; otherwise it follows from the time split."""

    @property
    def gain(self) -> str:
        """The speed-up in words."""
        return f"{'' if self.measured else 'at most '}{self.factor:.2f} times as fast"


@dataclass(frozen=True)
class RuleCheck:
    """One rule about slow and failing runs, and what was measured of it."""

    rule: str
    verdict: str
    """"fine" or "act"."""
    measured: str
    cure: str | None
    """What to do; None if it is fine."""


@dataclass(frozen=True)
class GroupAdvice:
    """Advice from the runs of one group."""

    label: str
    measured: tuple[Measured, ...]
    needs: tuple[ResourceNeed, ...]
    bottleneck: Bottleneck | None
    changes: tuple[Change, ...]
    checks: tuple[RuleCheck, ...]

    @property
    def headlines(self) -> list[str]:
        """The most important lines, the most urgent first."""
        short = [f"{need.resource} was too little: {need.setting or 'more'}" for need in self.short]
        act = [f"{check.rule}: {check.measured}; {check.cure}" for check in self.checks if check.cure]
        quick = [f"{change.setting}: {change.gain}; {change.why}" for change in self.changes[:1]]
        less = [need.setting for need in self.needs if need.setting and not need.too_little]
        small = [f"enough for a run like this: {', '.join(less)}"] if less else []
        return [*short, *([self.bottleneck.text] if self.bottleneck else []), *act, *quick, *small]

    @property
    def short(self) -> list[ResourceNeed]:
        """The resources of which the runs had too little."""
        return [need for need in self.needs if need.too_little]


def advise(groups: Mapping[str, Sequence[Measured]]) -> list[GroupAdvice]:
    """Returns advice for each group of runs, by its label."""
    return [_advise(label, groups) for label, runs in groups.items() if runs]


def _advise(label: str, groups: Mapping[str, Sequence[Measured]]) -> GroupAdvice:
    runs = groups[label]
    typical = sorted(runs, key=lambda measured: measured.steps_per_second or 0.0)[len(runs) // 2]
    rivals = {
        name: others
        for name, others in groups.items()
        if name != label and others and others[0].run.recipe.get("values") == typical.run.recipe.get("values")
    }  # they learn with one recipe, so that only their speed differs
    shown = _compared(runs, rivals, label)
    settings = {change.setting.split(" ")[0] for change in shown}
    reasoned = [change for change in _reasoned(typical) if change.setting.split(" ")[0] not in settings]
    changes = [
        *sorted(shown, key=lambda change: -change.factor),
        *sorted(reasoned, key=lambda change: -change.factor),
    ]
    return GroupAdvice(
        label=label,
        measured=tuple(runs),
        needs=tuple(needs(runs)),
        bottleneck=_bottleneck(typical),
        changes=tuple(change for change in changes if change.factor >= _WORTH),
        checks=tuple(_checks(runs)),
    )


def _bottleneck(measured: Measured) -> Bottleneck | None:
    """Returns the part that takes most of the time; None for a program that does not time its loop."""
    parts = measured.shares
    if not parts:
        return None
    part = max(parts, key=lambda name: parts[name])
    if _fills_gpu(measured) and parts["learn"] + parts["act"] > parts["env"]:
        part = "learn"
    text = f"{share(parts['learn'])} of the loop goes into updates, {share(parts['act'])} into acting, "
    text += f"{share(parts['env'])} into waiting for environments"
    text += "".join(
        f", {share(parts[p])} into {NAMES[p]}" for p in ("evaluate", "checkpoint") if parts[p] >= 0.02
    )
    used = f"; the GPU is {share(measured.gpu)} busy" if measured.gpu is not None else ""
    return Bottleneck(part, f"{NAMES[part]} binds: {text}{used}")


def _fills_gpu(measured: Measured) -> bool:
    return (measured.gpu or 0.0) >= _BUSY


def _compared(mine: Sequence[Measured], others: Mapping[str, Sequence[Measured]], label: str) -> list[Change]:
    """Returns with which other num_envs, precision or CPU count groups of the same recipe ran faster.

    A group counts as faster if its slowest run is faster than this group's fastest.
    """
    changes = []
    for name, theirs in others.items():
        different = [
            f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}"
            for key, field in (("num_envs", "num_envs"), ("precision", "precision"), ("cpus", "processors"))
            if (value := getattr(theirs[0], field)) is not None
            if getattr(mine[0], field) not in (None, value)
        ]
        slow, quick = median_rate(mine), median_rate(theirs)
        fastest = max((measured.steps_per_second or 0.0 for measured in mine), default=0.0)
        slowest = min((measured.steps_per_second or 0.0 for measured in theirs), default=0.0)
        if different and slow and quick and slowest > fastest:
            fast, mine_fast = beside([quick, slow])
            why = f"{name} made {fast} steps/s, {label} {mine_fast}"
            if theirs[0].device != mine[0].device:
                why += f", on {theirs[0].device} instead of {mine[0].device}"
            changes.append(Change(", ".join(different), why, quick / slow, measured=True))
    return changes


def _reasoned(measured: Measured) -> list[Change]:
    """Returns settings that would shorten a part of the loop, each with the gain if it took half as long."""
    parts = measured.shares
    if not parts:
        return []
    envs, processors = measured.num_envs, measured.processors
    learning, acting, physics = parts["learn"], parts["act"], parts["env"]
    if _fills_gpu(measured):
        learning, acting = learning + acting, 0.0  # acting is the wait for the updates
    halved = [
        (
            "eval_every twice as long, or fewer eval_episodes",
            f"training waits for evaluations {share(parts['evaluate'])} of the time",
            parts["evaluate"],
        ),
        (
            "checkpoint_every twice as long",
            f"training waits for checkpoints {share(parts['checkpoint'])} of the time",
            parts["checkpoint"],
        ),
    ]
    if envs is not None and (processors is None or envs > processors - 1):
        more = f"cpus = {2 * processors}" if processors else "more cpus"
        why = f"{envs} environments share {max(1, (processors or 0) - 1) if processors else 'few'} workers"
        halved.append((more, f"{why}; twice as many halve the wait for physics at most", physics))
        physics = 0.0  # more environments would wait longer
    if envs is not None:
        tasks = _tasks(table(measured.run.recipe, "values"))
        why = "each action and each wait then serves twice as many environments"
        why += f" (a multiple of the {tasks} tasks)" if tasks > 1 else ""
        halved.append((f"num_envs = {-(-2 * envs // tasks) * tasks}", why, acting + physics))
    if cheaper := _cheaper_precision(measured):
        why = "updates take as long whatever num_envs is, so only cheaper ones help"
        why += "" if measured.capability else "; only on a CPU with bf16 units (AVX512_BF16, AMX)"
        halved.append((f'precision = "{cheaper}"', why, learning))
    # The speed-up of the whole when one part's time is halved: Amdahl 1967.
    return [Change(setting, why, 1 / (1 - part / 2)) for setting, why, part in halved]


def _tasks(recipe: Mapping[str, Any]) -> int:
    tasks, sizes = recipe.get("tasks"), {"MT10": 10, "MT25": 25, "MT50": 50}
    return sum(sizes.get(str(task), 1) for task in tasks) if isinstance(tasks, list) and tasks else 1


def _cheaper_precision(measured: Measured) -> str | None:
    """Returns a precision in which the updates would be faster."""
    if measured.capability is None:
        return {"fp32": "bf16"}.get(measured.precision or "")
    if measured.capability < 8.0 or (measured.gpu is not None and not _fills_gpu(measured)):
        return None  # it has no such units, or its kernels are too small to fill it
    return {"fp32": "tf32", "tf32": "bf16"}.get(measured.precision or "")


def _checks(runs: Sequence[Measured]) -> list[RuleCheck]:
    """Returns the rules of which something was measured; each part below returns that and its cure."""
    trains = any(measured.run.recipe for measured in runs)
    rules = {
        "Slower than expected: the processors are taken by others": _crowded(runs) if trains else None,
        "Plasticity loss: many dormant neurons": _plasticity(runs) if trains else None,
        "Training unstable (numbers that are not finite)": _numbers(runs),
        "Work lost between attempts": _lost(runs),
    }
    return [
        RuleCheck(rule, "act" if found[1] else "fine", *found)
        for rule, found in rules.items()
        if found is not None
    ]


def _crowded(runs: Sequence[Measured]) -> tuple[str, str | None] | None:
    """Checks that without a GPU the loop keeps a processor busy; else other work has it."""
    loops = [
        (sum(measured.shares[part] for part in ("learn", "act", "env")), measured.cpu * measured.processors)
        for measured in runs
        if measured.shares and measured.cpu is not None and measured.processors
        if measured.gpu is None and measured.capability is None
    ]
    if not loops:
        return None
    computes, used = min(loops, key=lambda pair: pair[1] / max(pair[0], 0.01))
    text = f"{share(computes)} of the time is learning, acting and physics, by {used:.1f} processors"
    cure = "other work had the rest: a node or a time of its own; trust no speed here"
    return text, cure if used < _CROWDED * computes else None


def _plasticity(runs: Sequence[Measured]) -> tuple[str, str | None] | None:
    dormant = known(measured.dormant for measured in runs)
    if not dormant:
        return None
    mean = sum(dormant) / len(dormant)
    cure = "a narrower critic, or more tasks (MT50); layer normalisation"
    return f"{share(mean)} of the critics' at the end", cure if mean >= _DORMANT else None


def _numbers(runs: Sequence[Measured]) -> tuple[str, str | None] | None:
    lost = [metrics for measured in runs if (metrics := not_finite(measured.run.rows))]
    if lost:
        text = not_finite_words(min(lost, key=lambda metrics: not metrics[0].lost))
        text = text if len(runs) == 1 else f"in {len(lost)} of {len(runs)} runs; in one, {text}"
        return text, "a smaller learning rate; look at what it learns from"
    if skipped := sum(measured.skipped for measured in runs):
        return f"{skipped:,} updates were skipped", "a smaller learning rate; fp32 in place of bf16"
    logged = any(measured.run.training or measured.run.own_names for measured in runs)
    return ("every number that was logged is finite", None) if logged else None


def _lost(runs: Sequence[Measured]) -> tuple[str, str | None] | None:
    attempts = max(len(measured.run.directory.attempts) for measured in runs)
    if attempts < 2:
        return ("each run took one attempt", None) if attempts else None
    lost, steps = (
        sum(measured.repeated_steps for measured in runs),
        sum(measured.last_step for measured in runs),
    )
    outside = max(
        (1 - measured.seconds / measured.running for measured in runs if measured.running), default=0
    )
    text = f"{lost:,} steps done twice ({share(lost / max(1, steps))})"
    text += f", {format_seconds(max(measured.waited for measured in runs))} between attempts"
    text += f", {share(max(0.0, outside))} of their time is starting and ending"
    if lost >= _REPEATED * steps:
        return text, "a shorter `checkpoint_every`, or a longer `time`"
    return text, "a longer `time`, for fewer starts" if outside >= _STARTING else None
