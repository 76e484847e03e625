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
from clusterkit.backends.slurm.request import JobRequest, asks_for_requeue
from clusterkit.errors import ConfigError, SchedulerError
from clusterkit.probes import Probe
from clusterkit.probes.framing import Section, sections
from clusterkit.untrusted import ordinal

ARRAY_SIZE = 1001
"""Slurm's default MaxArraySize (man slurm.conf)."""
USUAL = Limits(array_size=ARRAY_SIZE)
"""The limits of a site with Slurm's defaults."""
TASKS = 24
"""Tasks of an array; each waits in the queue and counts against the user's job limit."""


def probe(asked: JobRequest) -> Probe[Limits]:
    """A probe that asks scontrol about the site, sacctmgr and squeue how many jobs the user may have and has.

    Args:
        asked: the job's request.
    """
    which = f" {shlex.quote(asked.partition)}" if asked.partition else ""
    lines = [
        "ck_run config scontrol show config",
        f"ck_run partition scontrol -o show partition{which}",
        'ck_run assoc sacctmgr -n -P show assoc user="$(id -un)" format=Account,MaxSubmit,DefaultQOS,QOS',
        "ck_run qos sacctmgr -n -P show qos format=Name,MaxSubmitPU",
        'ck_run queued squeue -h -r -u "$(id -un)" -o %A',
    ]
    return Probe("limits", "\n".join(lines), lambda answer: parse_limits(answer, asked.account, asked.qos))


def parse_limits(answer: str, account: str = "", qos: str = "") -> Limits:
    """Parse the answer; missing values get Slurm's defaults.

    Args:
        answer: of the probe.
        account: the job's account; empty for the default one.
        qos: the job's quality of service; empty for the default one.

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
        jobs=_jobs(told, account, qos),
        queued=len(told.get("queued", Section()).lines),
        preempt_cancels=preempting and "CANCEL" in preempt.upper(),
        max_time=parse_time(partition.get("MaxTime", "")),
        partition=name,
    )


def _jobs(told: Mapping[str, Section], account: str, qos: str) -> int | None:
    """The least number of jobs that the user's associations and their quality of service allow."""
    found: list[int | None] = []
    names = {qos} if qos else set()
    for line in told.get("assoc", Section()).lines:
        mine, most, standard, allowed = ([*line.split("|"), "", "", ""])[:4]
        if account and mine != account:
            continue
        found.append(ordinal(most))
        if not qos:
            names.add(standard or allowed.partition(",")[0])
    for line in told.get("qos", Section()).lines:
        name, _, most = line.partition("|")
        found += [ordinal(most)] if name in names else []
    return min((most for most in found if most is not None), default=None)


def _silent(words: str) -> SchedulerError:
    return SchedulerError(
        f"Slurm does not report its limits: {words}",
        hint='set the cluster\'s `continue_by` to "requeue", "array" or "chain"',
    )


def array_size(answer: str) -> int:
    """Most tasks of an array: the lesser of MaxArraySize and the scheduler's `max_array_tasks`.

    Below 2 there are no arrays. Without an answer it is Slurm's default.
    """
    limits = map(ordinal, re.findall(r"(?:^MaxArraySize\s*=\s*|\bmax_array_tasks=)(\d+)", answer, re.M))
    return min((limit for limit in limits if limit is not None), default=ARRAY_SIZE)


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
        return _choice(wanted, "continue_by is set to it", site, options)
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
        return _choice("requeue", "this site requeues jobs", site, options)
    if _size(site) >= 2:
        return _choice("array", obstacles[0], site, options)
    return _choice("chain", f"{obstacles[0]} and has no job arrays (MaxArraySize)", site, options)


def _choice(way: Way, why: str, site: Limits, options: Sequence[str]) -> Continuation:
    if way == "requeue":
        return Continuation(way, why, () if asks_for_requeue(options) else ("--requeue",))
    if way == "array":
        # One mail for the whole array would call it failed, because of the tasks that handed on.
        told = (one for one in options if one.startswith("--mail-type=") and "ARRAY_TASKS" not in one)
        mail = (f"{one},ARRAY_TASKS" for one in told)
        return Continuation(way, why, (f"--array=0-{min(TASKS, _size(site)) - 1}%1", *mail))
    return Continuation(way, why)


def _size(site: Limits) -> int:
    return ARRAY_SIZE if site.array_size is None else site.array_size


def _partition(text: str) -> tuple[str | None, Mapping[str, str]]:
    """Name and fields of the given partition, or of the default one."""
    told = partitions(text)
    name = next(iter(told)) if len(told) == 1 else default(told)
    return name, told.get(name, {}) if name else {}
