"""The rules of the guides for slow and failing runs, checked against what was measured. Pure.

Where a guide's cure is not the cause's (docs/paper.md), the verdict says what is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from clusterkit.report.binding import Binding
from clusterkit.report.evidence import Evidence
from clusterkit.report.measured import Measured
from clusterkit.report.metrics import first_not_finite
from clusterkit.report.words import share, size
from clusterkit.units import format_seconds

GPU_LOW = 0.3
"""The optimisation guide's "Low GPU Utilization (<30%)"."""
WAITING = 0.3
"""From this share of waiting on, physics is what makes a run slow."""
REPEATED = 0.02
"""From this share of steps on, what is done twice is worth a setting."""
STARTING = 0.2
"""The same of the time of attempts that is not spent in the loop."""
CROWDED = 0.7
"""Processors used for each one that a computing loop needs; less, and it was kept waiting for it."""
DORMANT = 0.25
"""The paper's widths up to 1,024 end at 15% at most, 2,048 at 32%, 4,096 at 49% (MT10)."""


class Verdict(StrEnum):
    """What a check found."""

    FINE = "fine"
    ACT = "act"
    UNKNOWN = "not measured"


@dataclass(frozen=True)
class Check:
    """One rule and what the runs say to it."""

    rule: str
    measured: str
    verdict: Verdict
    cure: str = ""
    """What to do; only where there is something to do."""


def checks(runs: Sequence[tuple[Evidence, Measured]], binding: Binding | None) -> list[Check]:
    """The guides' rules for runs with one request; for a program of one's own, those that can be judged."""
    trains = any(evidence.run.recipe for evidence, _ in runs)
    return [
        _gpu(runs, binding),
        _memory(runs),
        *([_physics(runs), _crowded(runs), _plasticity(runs)] if trains else []),
        _numbers(runs),
        _lost(runs),
    ]


def _gpu(runs: Sequence[tuple[Evidence, Measured]], binding: Binding | None) -> Check:
    rule = "GPU busy less than 30%"
    used = [measured.gpu for _, measured in runs if measured.gpu is not None]
    if not used:
        asked = any(evidence.asked.gpus for evidence, _ in runs)
        return Check(rule, "no utilisation was logged" if asked else "no GPU", Verdict.UNKNOWN)
    mean = sum(used) / len(used)
    highs = [measured.gpu_high for _, measured in runs if measured.gpu_high is not None]
    told = f"{share(mean)} in the mean" + (f", {share(max(highs))} at most" if highs else "")
    if mean >= GPU_LOW:
        return Check(rule, told, Verdict.FINE)
    part = binding.part if binding else ""
    cures = {
        "env": f"the GPU waits for physics: {_quicker_physics(runs)}",
        "act": "each step is too small: more `num_envs`",
        "learn": "the updates are too small to fill it, and `num_envs` does not change them: let several "
        "runs share it (`submit --pack`), or take a smaller GPU",
        "evaluate": "it waits for evaluations: a longer `eval_every`",
        "checkpoint": "it waits for checkpoints: a longer `checkpoint_every`",
    }
    return Check(rule, told, Verdict.ACT, cures.get(part, "more `num_envs`; or let several runs share it"))


def _memory(runs: Sequence[tuple[Evidence, Measured]]) -> Check:
    rule = "Out of memory"
    gpu = next((evidence.gpu_memory_line for evidence, _ in runs if evidence.gpu_memory_line), None)
    main = next((evidence.memory_line for evidence, _ in runs if evidence.memory_line), None)
    if gpu:
        cure = "a GPU with more memory, a smaller replay or network; environments live on the CPU, so fewer "
        cure += "of them free nothing"
        return Check(rule, f"the GPU's: {gpu[:160]}", Verdict.ACT, cure)
    if main:
        cure = "more `memory`; or a quarter fewer `num_envs`, about 20 MiB each"
        return Check(rule, f"the node's: {main[:160]}", Verdict.ACT, cure)
    peaks = [measured.memory for _, measured in runs if measured.memory]
    if not peaks and not any(evidence.run.directory.ended for evidence, _ in runs):
        return Check(rule, "no log of an end, no memory was logged", Verdict.UNKNOWN)
    told = f"never; at most {size(max(peaks))}" if peaks else "not in its log"
    return Check(rule, told, Verdict.FINE)


def _physics(runs: Sequence[tuple[Evidence, Measured]]) -> Check:
    rule = "Slower than expected: the CPUs bind (physics)"
    waits = [measured.shares["env"] for _, measured in runs if measured.shares]
    if not waits:
        return Check(rule, "the program does not time its loop", Verdict.UNKNOWN)
    cpus = max((measured.processors or 0 for _, measured in runs), default=0)
    busy = [measured.cpu for _, measured in runs if measured.cpu is not None]
    told = f"{share(max(waits))} of the time waits for environments"
    told += f", {share(max(busy))} of {cpus} CPUs busy" if busy and cpus else ""
    if max(waits) < WAITING:
        return Check(rule, told, Verdict.FINE)
    return Check(rule, told, Verdict.ACT, _quicker_physics(runs))


def _quicker_physics(runs: Sequence[tuple[Evidence, Measured]]) -> str:
    envs = max((measured.num_envs or 0 for _, measured in runs), default=0)
    cpus = max((measured.processors or 0 for _, measured in runs), default=0)
    if envs + 1 > cpus:
        return f"up to {envs + 1} `cpus`, one for each environment and one for the learner"
    return "more `num_envs`: each has a CPU already"


def _crowded(runs: Sequence[tuple[Evidence, Measured]]) -> Check:
    """Without a GPU, learning, acting and physics keep a processor busy, unless others have it."""
    rule = "Slower than expected: the processors are taken by others"
    known = [
        (sum(measured.shares[part] for part in ("learn", "act", "env")), measured.cpu * measured.processors)
        for _, measured in runs
        if measured.shares and measured.cpu is not None and measured.processors and measured.gpu is None
        if measured.capability is None
    ]
    if not known:
        on_gpu = any(measured.capability is not None for _, measured in runs)
        told = "the GPU computes" if on_gpu else "processor use was not logged"
        return Check(rule, told, Verdict.UNKNOWN)
    computes, used = min(known, key=lambda pair: pair[1] / max(pair[0], 0.01))
    told = f"{share(computes)} of the time is learning, acting and physics, by {used:.1f} processors"
    if used >= CROWDED * computes:
        return Check(rule, told, Verdict.FINE)
    return Check(
        rule, told, Verdict.ACT, "other work had the rest: a node or a time of its own; trust no speed here"
    )


def _plasticity(runs: Sequence[tuple[Evidence, Measured]]) -> Check:
    rule = "Plasticity loss: many dormant neurons"
    known = [measured.dormant for _, measured in runs if measured.dormant is not None]
    if not known:
        return Check(rule, "no diagnostics were logged", Verdict.UNKNOWN)
    mean = sum(known) / len(known)
    told = f"{share(mean)} of the critics' at the end"
    if mean < DORMANT:
        return Check(rule, told, Verdict.FINE)
    return Check(rule, told, Verdict.ACT, "a narrower critic, or more tasks (MT50); layer normalisation")


def _numbers(runs: Sequence[tuple[Evidence, Measured]]) -> Check:
    rule = "Training unstable (numbers that are not finite)"
    skipped = sum(measured.skipped for _, measured in runs)
    lost = next((found for evidence, _ in runs if (found := first_not_finite(evidence.run.rows))), None)
    if lost:
        told = f"{lost[0]} was not finite at {lost[1]:,} steps"
        return Check(rule, told, Verdict.ACT, "a smaller learning rate; look at what it learns from")
    if not skipped and not any(evidence.run.recipe and evidence.run.training for evidence, _ in runs):
        return Check(rule, "the program logs no updates", Verdict.UNKNOWN)
    if not skipped:
        return Check(rule, "no update was skipped", Verdict.FINE)
    return Check(
        rule,
        f"{skipped:,} updates were skipped",
        Verdict.ACT,
        "a smaller learning rate; fp32 in place of bf16",
    )


def _lost(runs: Sequence[tuple[Evidence, Measured]]) -> Check:
    rule = "Work lost between attempts"
    lost = sum(measured.repeated_steps for _, measured in runs)
    steps = sum(measured.last_step for _, measured in runs)
    waited = max((measured.waited for _, measured in runs), default=0.0)
    more = max((len(evidence.run.directory.attempts) for evidence, _ in runs), default=0) - 1
    if more < 0:
        return Check(rule, "no attempt is recorded", Verdict.UNKNOWN)
    if more < 1:
        return Check(rule, "each run took one attempt", Verdict.FINE)
    twice = f"{lost:,} steps done twice ({share(lost / max(1, steps))})"
    told = f"{twice}, {format_seconds(waited)} between attempts"
    outside = max(
        (1 - measured.seconds / measured.running for _, measured in runs if measured.running), default=0
    )
    told += f", {share(max(0.0, outside))} of their time is starting and ending"
    if lost >= REPEATED * steps:
        return Check(rule, told, Verdict.ACT, "a shorter `checkpoint_every`, or a longer `time`")
    if outside >= STARTING:
        return Check(rule, told, Verdict.ACT, "a longer `time`, for fewer starts")
    return Check(rule, told, Verdict.FINE)
