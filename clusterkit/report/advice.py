"""What runs teach about the next one: requested against used, what binds, what would be faster. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clusterkit.report.binding import Binding, Change, compared, faster, what_binds
from clusterkit.report.checks import Check, Verdict, checks
from clusterkit.report.evidence import Evidence
from clusterkit.report.measured import Measured
from clusterkit.report.needs import Need, needs
from clusterkit.runs.run_dir import table


@dataclass(frozen=True)
class Advice:
    """About the runs of one group."""

    label: str
    measured: tuple[Measured, ...]
    needs: tuple[Need, ...]
    binding: Binding | None
    changes: tuple[Change, ...]
    checks: tuple[Check, ...]

    @property
    def headlines(self) -> list[str]:
        """The few lines that matter, the most urgent first."""
        short = [
            f"{need.resource} was too little: {need.setting or 'more'}"
            for need in self.needs
            if need.too_little
        ]
        act = [
            f"{check.rule}: {check.measured}; {check.cure}"
            for check in self.checks
            if check.verdict is Verdict.ACT
        ]
        quick = [f"{change.setting}: {change.gain}; {change.why}" for change in self.changes[:1]]
        less = [need.setting for need in self.needs if need.setting and not need.too_little]
        small = [f"enough for a run like this: {', '.join(less)}"] if less else []
        return [*short, *([self.binding.sentence] if self.binding else []), *act, *quick, *small]


def advise(groups: Sequence[tuple[str, Sequence[tuple[Evidence, Measured]]]]) -> list[Advice]:
    """Advice for each group of runs.

    Args:
        groups: label, and each run's evidence with what was measured of it.
    """
    return [_advise(label, runs, groups) for label, runs in groups if runs]


def _advise(
    label: str,
    runs: Sequence[tuple[Evidence, Measured]],
    groups: Sequence[tuple[str, Sequence[tuple[Evidence, Measured]]]],
) -> Advice:
    evidence, measured = _typical(runs)
    binding = what_binds(measured)
    values = table(evidence.run.recipe, "values")
    rivals = {
        name: [one for _, one in others]
        for name, others in groups
        if name != label and others and _same_science(others[0][0], evidence)
    }
    seen = compared([one for _, one in runs], rivals, label)
    told = {change.setting.split(" ")[0] for change in seen}
    reasoned = [change for change in faster(measured, values) if change.setting.split(" ")[0] not in told]
    return Advice(
        label=label,
        measured=tuple(one for _, one in runs),
        needs=tuple(needs(runs)),
        binding=binding,
        changes=(*sorted(seen, key=lambda change: -change.factor), *reasoned),
        checks=tuple(checks(runs, binding)),
    )


def _typical(runs: Sequence[tuple[Evidence, Measured]]) -> tuple[Evidence, Measured]:
    """The run of median speed."""
    ordered = sorted(runs, key=lambda run: run[1].steps_per_second or 0.0)
    return ordered[len(ordered) // 2]


def _same_science(one: Evidence, other: Evidence) -> bool:
    """Whether both learn with one recipe, so that only their speed differs."""
    return one.run.recipe.get("values") == other.run.recipe.get("values")
