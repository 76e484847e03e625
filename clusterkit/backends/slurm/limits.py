"""A Slurm site's limits, and how a run continues past its time limit there. Pure.

Three ways (docs/until-done.md): `requeue`, the same job again (`scontrol requeue`); `array`, tasks of one
array that run one after the other; `chain`, each job submits its successor.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Literal

from clusterkit.backends.base import Continuation, Limits, Way
from clusterkit.backends.slurm.notation import default, parse_time, partitions
from clusterkit.errors import ConfigError, SchedulerError
from clusterkit.probes import Probe
from clusterkit.probes.framing import Section, sections

ARRAY_SIZE = 1001
"""Slurm's default MaxArraySize (man slurm.conf)."""
USUAL = Limits(array_size=ARRAY_SIZE)
"""The limits of a site with Slurm's defaults."""
TASKS = 24
"""Tasks of an array; each waits in the queue and counts against the user's job limit."""


def probe(partition: str | None) -> Probe[Limits]:
    """A probe that asks scontrol about the site.

    Args:
        partition: the job's (the first of several); None for the default one.
    """
    name = shlex.quote((partition or "").partition(",")[0])
    which = f" {name}" if partition else ""
    script = f"ck_run config scontrol show config\nck_run partition scontrol -o show partition{which}"
    return Probe("limits", script, parse_limits)


def parse_limits(answer: str) -> Limits:
    """Parse the answer; missing values get Slurm's defaults.

    Raises:
        SchedulerError: scontrol gave no configuration.
    """
    told = {section.name: section for section in sections(answer)}
    said = told.get("config", Section())
    config = dict(re.findall(r"^(\w+)\s*= *(.*?) *$", said.text, re.MULTILINE))
    if "partition" not in told or not config:
        lines = f"{said.text}\n{said.error}".splitlines()
        raise _silent(" / ".join(line.strip() for line in lines if line.strip())[:200] or "no answer")
    name, partition = _partition(told["partition"].text)
    preempt = partition.get("PreemptMode") or config.get("PreemptMode", "")
    preempting = config.get("PreemptType", "none") not in ("none", "preempt/none", "(null)")
    return Limits(
        requeue=config["JobRequeue"] != "0" if "JobRequeue" in config else None,
        array_size=array_size(said.text),
        preempt_cancels=preempting and "CANCEL" in preempt.upper(),
        max_time=parse_time(partition.get("MaxTime", "")),
        partition=name,
    )


def _silent(words: str) -> SchedulerError:
    return SchedulerError(
        f"Slurm does not report its limits: {words}",
        hint='set the cluster\'s `continue_by` to "requeue", "array" or "chain"',
    )


def array_size(answer: str) -> int:
    """Most tasks of an array: the lesser of MaxArraySize and the scheduler's `max_array_tasks`.

    Below 2 there are no arrays. Without an answer it is Slurm's default.
    """
    limits = [
        int(text) for text in re.findall(r"(?:^MaxArraySize\s*=\s*|\bmax_array_tasks=)(\d+)", answer, re.M)
    ]
    return min(limits, default=ARRAY_SIZE)


def choose(limits: Limits | None, wanted: Literal["auto"] | Way, options: Sequence[str] = ()) -> Continuation:
    """Choose a continuation; see `Backend.continuation`. The option `--no-requeue` excludes requeueing."""
    names = {option.partition("=")[0] for option in options}
    site = limits or USUAL
    if wanted != "auto":
        if wanted == "requeue" and "--no-requeue" in names:
            raise ConfigError(
                'continue_by = "requeue" contradicts the sbatch option no-requeue',
                hint="remove one of them",
            )
        if wanted == "array" and _size(site) < 2:
            raise ConfigError(
                'continue_by = "array", but this site has no job arrays', hint='set continue_by = "auto"'
            )
        return _choice(wanted, "continue_by is set to it", site)
    obstacles = []
    if site.requeue is None and not names & {"--requeue", "--no-requeue"}:
        raise _silent("its configuration has no JobRequeue")
    if "--no-requeue" in names:
        obstacles.append("the sbatch options say no-requeue")
    elif not site.requeue and "--requeue" not in names:
        obstacles.append("this site does not requeue jobs (JobRequeue=0)")
    elif site.preempt_cancels:
        obstacles.append("this site cancels preempted jobs (PreemptMode)")
    else:
        return _choice("requeue", "this site requeues jobs", site)
    if _size(site) >= 2:
        return _choice("array", obstacles[0], site)
    return _choice("chain", f"{obstacles[0]} and has no job arrays (MaxArraySize)", site)


def _choice(way: Way, why: str, site: Limits) -> Continuation:
    if way == "requeue":
        return Continuation(way, why, ("--requeue",))
    if way == "array":
        return Continuation(way, why, (f"--array=0-{min(TASKS, _size(site)) - 1}%1",))
    return Continuation(way, why)


def _size(site: Limits) -> int:
    return ARRAY_SIZE if site.array_size is None else site.array_size


def _partition(text: str) -> tuple[str | None, Mapping[str, str]]:
    """Name and fields of the given partition, or of the default one."""
    told = partitions(text)
    name = next(iter(told)) if len(told) == 1 else default(told)
    return name, told.get(name, {}) if name else {}
