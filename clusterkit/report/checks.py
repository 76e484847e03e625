"""Checks the guides' rules for slow and failing runs against measurements. Pure.

If a guide's remedy does not address the cause (docs/paper.md), the verdict names one that does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from clusterkit.report.binding import Binding
from clusterkit.report.measured import Measured, known, share
from clusterkit.results.series import not_finite, not_finite_words
from clusterkit.units import format_bytes, format_seconds, plural

GPU_LOW = 0.3
"""The optimisation guide's "Low GPU Utilization (<30%)"."""
WAITING = 0.3
"""Share of waiting from which physics is the bottleneck."""
REPEATED = 0.02
"""Share of repeated steps from which a setting is worth changing."""
STARTING = 0.2
"""Share of attempt time outside the loop from which it is worth mentioning."""
CROWDED = 0.7
"""Used share of a needed processor; below it the loop waited for a processor."""
DORMANT = 0.25
"""The paper's widths up to 1,024 end at 15% at most, 2,048 at 32%, 4,096 at 49% (MT10)."""


class RuleVerdict(StrEnum):
    """The outcome of a check."""

    FINE = "fine"
    ACT = "act"
    UNKNOWN = "not measured"


@dataclass(frozen=True)
class RuleCheck:
    """One rule, and its outcome for the runs."""

    rule: str
    measured: str
    verdict: RuleVerdict
    cure: str = ""
    """What to do, if anything."""


def checks(runs: Sequence[Measured], binding: Binding | None) -> list[RuleCheck]:
    """Checks the guides' rules for runs with equal requests; for users' own programs those that apply."""
    trains = any(measured.run.recipe for measured in runs)
    return [
        _gpu(runs, binding),
        _memory(runs),
        *([_physics(runs), _crowded(runs), _plasticity(runs)] if trains else []),
        _numbers(runs),
        _lost(runs),
    ]


def _judged(rule: str, measured: str, cure: str) -> RuleCheck:
    """Returns a check of a measurement; without a cure it passes."""
    return RuleCheck(rule, measured, RuleVerdict.ACT if cure else RuleVerdict.FINE, cure)


def _gpu(runs: Sequence[Measured], binding: Binding | None) -> RuleCheck:
    rule = "GPU busy less than 30%"
    used = known(measured.gpu for measured in runs)
    if not used:
        asked = any(measured.evidence.asked.gpus for measured in runs)
        return RuleCheck(rule, "no utilisation was logged" if asked else "no GPU", RuleVerdict.UNKNOWN)
    mean = sum(used) / len(used)
    highs = known(measured.gpu_high for measured in runs)
    text = f"{share(mean)} in the mean" + (f", {share(max(highs))} at most" if highs else "")
    cures = {
        "env": f"the GPU waits for physics: {_quicker_physics(runs)}",
        "act": "each step is too small: more `num_envs`",
        "learn": "the updates are too small to fill it, and `num_envs` does not change them: let several "
        "runs share it (`submit --pack`), or take a smaller GPU",
        "evaluate": "it waits for evaluations: a longer `eval_every`",
        "checkpoint": "it waits for checkpoints: a longer `checkpoint_every`",
    }
    cure = cures.get(binding.part if binding else "", "more `num_envs`; or let several runs share it")
    return _judged(rule, text, cure if mean < GPU_LOW else "")


def _memory(runs: Sequence[Measured]) -> RuleCheck:
    rule = "Out of memory"
    gpu = next((line for measured in runs if (line := measured.evidence.gpu_memory_line)), None)
    main = next((line for measured in runs if (line := measured.evidence.memory_line)), None)
    if gpu:
        cure = "a GPU with more memory, a smaller replay or network; environments live on the CPU, so fewer "
        return _judged(rule, f"the GPU's: {gpu[:160]}", cure + "of them free nothing")
    if main:
        cure = "more `memory`; or a quarter fewer `num_envs`, about 20 MiB each"
        return _judged(rule, f"the node's: {main[:160]}", cure)
    peaks = [measured.memory for measured in runs if measured.memory]
    if not peaks and not any(measured.run.directory.ended for measured in runs):
        return RuleCheck(rule, "no log of an end, no memory was logged", RuleVerdict.UNKNOWN)
    return _judged(rule, f"never; at most {format_bytes(max(peaks))}" if peaks else "not in its log", "")


def _physics(runs: Sequence[Measured]) -> RuleCheck:
    rule = "Slower than expected: the CPUs bind (physics)"
    waits = [measured.shares["env"] for measured in runs if measured.shares]
    if not waits:
        return RuleCheck(rule, "the program does not time its loop", RuleVerdict.UNKNOWN)
    cpus, busy = _processors(runs), known(measured.cpu for measured in runs)
    text = f"{share(max(waits))} of the time waits for environments"
    text += f", {share(max(busy))} of {plural(cpus, 'CPU')} busy" if busy and cpus else ""
    return _judged(rule, text, _quicker_physics(runs) if max(waits) >= WAITING else "")


def _quicker_physics(runs: Sequence[Measured]) -> str:
    envs = max(measured.num_envs or 0 for measured in runs)
    if envs + 1 > _processors(runs):
        return f"up to {envs + 1} `cpus`, one for each environment and one for the learner"
    return "more `num_envs`: each has a CPU already"


def _processors(runs: Sequence[Measured]) -> int:
    return max(measured.processors or 0 for measured in runs)


def _crowded(runs: Sequence[Measured]) -> RuleCheck:
    """Checks that without a GPU the loop keeps a processor busy; else other work has it."""
    rule = "Slower than expected: the processors are taken by others"
    loops = [
        (sum(measured.shares[part] for part in ("learn", "act", "env")), measured.cpu * measured.processors)
        for measured in runs
        if measured.shares and measured.cpu is not None and measured.processors and measured.gpu is None
        if measured.capability is None
    ]
    if not loops:
        on_gpu = any(measured.capability is not None for measured in runs)
        text = "the GPU computes" if on_gpu else "processor use was not logged"
        return RuleCheck(rule, text, RuleVerdict.UNKNOWN)
    computes, used = min(loops, key=lambda pair: pair[1] / max(pair[0], 0.01))
    text = f"{share(computes)} of the time is learning, acting and physics, by {used:.1f} processors"
    cure = "other work had the rest: a node or a time of its own; trust no speed here"
    return _judged(rule, text, cure if used < CROWDED * computes else "")


def _plasticity(runs: Sequence[Measured]) -> RuleCheck:
    rule = "Plasticity loss: many dormant neurons"
    dormant = known(measured.dormant for measured in runs)
    if not dormant:
        return RuleCheck(rule, "no diagnostics were logged", RuleVerdict.UNKNOWN)
    mean = sum(dormant) / len(dormant)
    cure = "a narrower critic, or more tasks (MT50); layer normalisation"
    return _judged(rule, f"{share(mean)} of the critics' at the end", cure if mean >= DORMANT else "")


def _numbers(runs: Sequence[Measured]) -> RuleCheck:
    rule = "Training unstable (numbers that are not finite)"
    skipped = sum(measured.skipped for measured in runs)
    lost = [metrics for measured in runs if (metrics := not_finite(measured.run.rows))]
    if lost:
        text = not_finite_words(min(lost, key=lambda metrics: not metrics[0].lost))
        text = text if len(runs) == 1 else f"in {len(lost)} of {len(runs)} runs; in one, {text}"
        return _judged(rule, text, "a smaller learning rate; look at what it learns from")
    if skipped:
        text = f"{skipped:,} updates were skipped"
        return _judged(rule, text, "a smaller learning rate; fp32 in place of bf16")
    if any(measured.run.recipe and measured.run.training for measured in runs):
        return _judged(rule, "no update was skipped", "")
    if any(measured.run.own_names for measured in runs):
        return _judged(rule, "every number that was logged is finite", "")
    return RuleCheck(rule, "no number was logged", RuleVerdict.UNKNOWN)


def _lost(runs: Sequence[Measured]) -> RuleCheck:
    rule = "Work lost between attempts"
    attempts = max(len(measured.run.directory.attempts) for measured in runs)
    if attempts == 0:
        return RuleCheck(rule, "no attempt is recorded", RuleVerdict.UNKNOWN)
    if attempts == 1:
        return _judged(rule, "each run took one attempt", "")
    lost, steps = (
        sum(measured.repeated_steps for measured in runs),
        sum(measured.last_step for measured in runs),
    )
    outside = max(
        (1 - measured.seconds / measured.running for measured in runs if measured.running), default=0.0
    )
    text = f"{lost:,} steps done twice ({share(lost / max(1, steps))})"
    text += f", {format_seconds(max(measured.waited for measured in runs))} between attempts"
    text += f", {share(max(0.0, outside))} of their time is starting and ending"
    if lost >= REPEATED * steps:
        return _judged(rule, text, "a shorter `checkpoint_every`, or a longer `time`")
    return _judged(rule, text, "a longer `time`, for fewer starts" if outside >= STARTING else "")
