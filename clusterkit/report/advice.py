"""Advice from runs for the next one: requested against used resources, bottlenecks, faster settings. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clusterkit.report.binding import Binding, Change, compared, faster, what_binds
from clusterkit.report.checks import RuleCheck, RuleVerdict, checks
from clusterkit.report.measured import Measured
from clusterkit.report.needs import ResourceNeed, needs
from clusterkit.runs.run_dir import table


@dataclass(frozen=True)
class GroupAdvice:
    """Advice from the runs of one group."""

    label: str
    measured: tuple[Measured, ...]
    needs: tuple[ResourceNeed, ...]
    binding: Binding | None
    changes: tuple[Change, ...]
    checks: tuple[RuleCheck, ...]

    @property
    def headlines(self) -> list[str]:
        """The most important lines, the most urgent first."""
        short = [
            f"{need.resource} was too little: {need.setting or 'more'}"
            for need in self.needs
            if need.too_little
        ]
        act = [
            f"{check.rule}: {check.measured}; {check.cure}"
            for check in self.checks
            if check.verdict is RuleVerdict.ACT
        ]
        quick = [f"{change.setting}: {change.gain}; {change.why}" for change in self.changes[:1]]
        less = [need.setting for need in self.needs if need.setting and not need.too_little]
        small = [f"enough for a run like this: {', '.join(less)}"] if less else []
        return [*short, *([self.binding.sentence] if self.binding else []), *act, *quick, *small]


def advise(groups: Mapping[str, Sequence[Measured]]) -> list[GroupAdvice]:
    """Advice for each group of runs, by its label."""
    return [_advise(label, groups) for label, runs in groups.items() if runs]


def _advise(label: str, groups: Mapping[str, Sequence[Measured]]) -> GroupAdvice:
    runs = groups[label]
    typical = sorted(runs, key=lambda one: one.steps_per_second or 0.0)[len(runs) // 2]
    binding = what_binds(typical)
    rivals = {
        name: others
        for name, others in groups.items()
        if name != label and others and others[0].run.recipe.get("values") == typical.run.recipe.get("values")
    }  # they learn with one recipe, so that only their speed differs
    seen = compared(runs, rivals, label)
    told = {change.setting.split(" ")[0] for change in seen}
    reasoned = [
        change
        for change in faster(typical, table(typical.run.recipe, "values"))
        if change.setting.split(" ")[0] not in told
    ]
    return GroupAdvice(
        label=label,
        measured=tuple(runs),
        needs=tuple(needs(runs)),
        binding=binding,
        changes=(*sorted(seen, key=lambda change: -change.factor), *reasoned),
        checks=tuple(checks(runs, binding)),
    )
