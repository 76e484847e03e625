"""A Slurm site's limits, and how a run continues past its time limit there. Pure.

Three ways (docs/until-done.md): `requeue`, the same job again (`scontrol requeue`); `array`, tasks of one
array that run one after the other; `chain`, each job submits its successor.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Literal

from clusterkit.backends.jobs import Continuation, Limits, Way
from clusterkit.backends.slurm import tables
from clusterkit.backends.slurm.request import JobRequest, asks_for_requeue
from clusterkit.backends.slurm.tables import ARRAY_SIZE, SlurmTables
from clusterkit.errors import ConfigError, SchedulerError
from clusterkit.probes import Probe, Section, sections

USUAL = Limits(array_size=ARRAY_SIZE)
"""The limits of a site with Slurm's defaults."""
TASKS = 24
"""Tasks of an array; each waits in the queue and counts against the user's job limit."""


def probe(asked: JobRequest) -> Probe[Limits]:
    """Returns a probe of scontrol about the site, and of how many jobs the user may have and has.

    Args:
        asked: the job's request.
    """
    which = f" {shlex.quote(asked.partition)}" if asked.partition else ""
    lines = [
        f"ck_run config {tables.CONFIG}",
        f"ck_run partitions {tables.partitions()}{which}",
        f"ck_run associations {tables.ASSOCIATIONS}",
        f"ck_run qos {tables.QOS}",
        'ck_run queued squeue -h -r -u "$(id -un)" -o %A',
    ]
    return Probe("limits", "\n".join(lines), lambda answer: parse_limits(answer, asked.account, asked.qos))


def parse_limits(answer: str, account: str = "", qos: str = "") -> Limits:
    """Parses the answer; missing values get Slurm's defaults.

    Args:
        answer: of the probe.
        account: the job's account; empty for the default one.
        qos: the job's quality of service; empty for the default one.

    Raises:
        SchedulerError: scontrol gave no configuration.
    """
    parts = {section.name: section for section in sections(answer)}
    slurm = SlurmTables({name: part.text for name, part in parts.items()})
    config = slurm.config
    if "partitions" not in parts or not config.fields:
        silent = parts.get("config", Section())
        lines = f"{silent.text}\n{silent.error}".splitlines()
        raise _silent(" / ".join(line.strip() for line in lines if line.strip())[:200] or "no answer")
    (partition,) = slurm.partitions.values() if len(slurm.partitions) == 1 else (slurm.default,)
    preempt = (partition and partition.text("PreemptMode")) or config.text("PreemptMode")
    preempting = config.fields.get("PreemptType", "none") not in ("none", "preempt/none", "(null)")
    return Limits(
        requeue=config.text("JobRequeue") != "0" if "JobRequeue" in config.fields else None,
        array_size=config.array_size,
        jobs=_jobs(slurm, account, qos),
        queued=len(parts.get("queued", Section()).lines),
        preempt_cancels=preempting and "CANCEL" in preempt.upper(),
        max_time=partition.max_time if partition else None,
        partition=partition.name if partition else None,
    )


def _jobs(slurm: SlurmTables, account: str, qos: str) -> int | None:
    """Returns the least number of jobs that the user's associations and their quality of service allow."""
    mine = [row for row in slurm.associations if account in ("", row.account)]
    names = {qos} if qos else {row.default_qos or next(iter(row.qos), "") for row in mine}
    limits = [row.max_submit for row in mine]
    limits += [row.max_submit for row in slurm.qos.values() if row.name in names]
    return min((limit for limit in limits if limit is not None), default=None)


def _silent(words: str) -> SchedulerError:
    return SchedulerError(
        f"Slurm does not report its limits: {words}",
        hint='set the cluster\'s `continue_by` to "requeue", "array" or "chain"',
    )


def choose(limits: Limits | None, wanted: Literal["auto"] | Way, options: Sequence[str] = ()) -> Continuation:
    """Chooses a continuation; see `Backend.continuation`. The option `--no-requeue` excludes requeueing."""
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
        mail = (
            f"{option},ARRAY_TASKS"
            for option in options
            if option.startswith("--mail-type=") and "ARRAY_TASKS" not in option
        )
        return Continuation(way, why, (f"--array=0-{min(TASKS, _size(site)) - 1}%1", *mail))
    return Continuation(way, why)


def _size(site: Limits) -> int:
    return ARRAY_SIZE if site.array_size is None else site.array_size
