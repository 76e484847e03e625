"""Explains Slurm's reasons in plain words: why a job waits, ended or was refused. Pure."""

from __future__ import annotations

import re

from clusterkit.backends.jobs import ENDS, JobState

_REASONS: tuple[tuple[str, str], ...] = (
    # Waiting that ends by itself.
    (r"Resources", "next in line: it waits for resources to become free"),
    (r"Priority", "jobs with a higher priority are ahead of it"),
    (r"None", "just submitted; the scheduler has not considered it yet"),
    (r"BeginTime", "it waits for its earliest start time; after a requeue that takes about two minutes"),
    (r"Dependency", "it waits for the job it depends on"),
    (r"JobArrayTaskLimit", "waits for an earlier run of its group"),
    (r"Licenses", "it waits for a licence"),
    (r"Cleaning", "the previous start of this job is still being cleaned up"),
    (r"Prolog|Nodes_?Not_?Ready", "its nodes are being prepared"),
    (
        r"ReqNodeNotAvail.*[Mm]aint.*|ReqNodeNotAvail,?\s*Reserved for maintenance.*|Reservation(Maint)?",
        "it cannot end before maintenance or a reservation begins: request less time, or wait",
    ),
    (r"ReqNodeNotAvail.*", "a node it needs is down, drained or reserved: wait, or choose another GPU type"),
    (r"NodeDown", "a node it needs is down"),
    (
        r"Nodes[_ ]required[_ ]for[_ ]job[_ ]are[_ ]DOWN.*",
        "the nodes it needs are down, drained or taken by jobs of a higher priority",
    ),
    (r"PartitionDown|PartitionInactive", "its partition is down at the moment; see sinfo"),
    # Limits. The names are many (https://slurm.schedmd.com/job_reason_codes.html), their parts few.
    (
        r"(QOS|Assoc|Partition)\w*(Wall|TimeLimit)\w*",
        "it requests more time than is allowed, so it will never start: cancel it and submit with less time",
    ),
    (r"(QOS|Assoc)\w*(Minutes|Billing|Usage)\w*", "the account's budget is used up ({})"),
    (r"(QOS|Assoc)\w*Submit\w*", "the limit of submitted jobs is reached ({})"),
    (
        r"(QOS|Assoc)\w*(Jobs|JobLimit)\w*",
        "the limit of running jobs is reached ({}); it starts when one ends",
    ),
    (
        r"(QOS|Assoc|Max)\w+",
        "you or your group have reached a limit ({}): it starts when another job ends, but never if it"
        " alone requests more than the limit",
    ),
    # Waiting that never ends without help.
    (
        r"PartitionNodeLimit|PartitionConfig",
        "its partition cannot provide what it requests, so it will not start",
    ),
    (
        r"DependencyNeverSatisfied",
        "the job it depends on failed, so it will never start: cancel it",
    ),
    (
        r"BadConstraints",
        "no node has what it requests, so it will never start: check GPU, memory and constraint",
    ),
    (
        r"(Job)?HeldUser",
        "held by you: `scontrol release JOBID` on the cluster releases it",
    ),
    (
        r"(Job)?HeldAdmin|launch[_ ]failed[_ ]requeued[_ ]held|JobHoldMaxRequeue",
        "held by the system, often after failed starts: `scontrol release JOBID`, or ask the administrators",
    ),
    (
        r"InvalidAccount|AccountNotAllowed",
        "its account may not use this partition: check the account",
    ),
    (r"InvalidQOS", "its QOS may not be used in this partition: check the QOS"),
    # Ends.
    (r"OUT_OF_MEMORY|OutOfMemory", ENDS[JobState.OUT_OF_MEMORY]),
    (r"TIMEOUT|TimeLimit", ENDS[JobState.TIMEOUT]),
    (r"DEADLINE", "it could not end before its deadline"),
    (r"NODE_FAIL|NodeFail", ENDS[JobState.NODE_FAIL]),
    (r"BOOT_FAIL", "its node did not boot"),
    (r"PREEMPTED", ENDS[JobState.PREEMPTED]),
    (r"CANCELLED( by .*)?", ENDS[JobState.CANCELLED]),
    (r"REVOKED", "it moved to another cluster of the federation"),
    (
        r"LAUNCH_FAILED|JobLaunchFailure",
        "Slurm could not start it on its node: try again, or ask the administrators",
    ),
    (r"NonZeroExitCode", "the program ended with an error"),
    (r"RaisedSignal.*", "a signal ended the program"),
)

_REFUSALS: tuple[tuple[str, str], ...] = (
    (r"invalid partition", "set `partition` in clusterkit.toml; `sinfo -s` on the cluster lists them"),
    (
        r"invalid account|account.*not (permitted|allowed)",
        "set `account` in clusterkit.toml; `sacctmgr show assoc user=$USER` lists yours",
    ),
    (
        r"invalid qos|qos.*not (permitted|allowed)",
        "set `qos` in clusterkit.toml; `sacctmgr show qos` lists them",
    ),
    (
        r"generic resource|invalid gres|gres.*specification|invalid tres",
        "check the GPU's `request` in clusterkit.toml; `sinfo -o '%P %G'` on the cluster shows the spelling",
    ),
    (
        r"requested time limit is invalid|time limit.*(exceed|invalid)",
        "request less `time`; `sinfo -o '%P %l'` on the cluster shows the limit of each partition",
    ),
    (
        r"--requeue",
        '`requeue = true` works everywhere; "expedite" needs Slurm 25.11, and other values are refused',
    ),
    (
        r"not supported on this system",
        'the site has not set up what an option asks for, e.g. requeue = "expedite"; leave the option out',
    ),
    (r"invalid --?time|time limit specification", "write the time as D-HH:MM:SS"),
    (
        r"memory specification|requested.*memory.*(exceed|not available)",
        "request less `memory`; `sinfo -o '%P %m'` on the cluster shows what the nodes have (MB)",
    ),
    (
        r"requested node configuration is not available|more processors requested",
        "no node of the partition has that much: request less; `sinfo -o '%P %G %c %m'` shows what they have",
    ),
    (
        r"(assoc|qos)\w*submit",
        "the queue takes no more jobs of yours now: submit again when one has ended",
    ),
    (
        r"violates accounting/qos policy|job ?limit|submitjob|max(imum)? (number of )?jobs",
        "you are at a limit of your account or QOS: wait for jobs to end, or request less",
    ),
    (
        r"invalid feature",
        "check `constraint` in clusterkit.toml; `sinfo -o '%P %f'` on the cluster lists features",
    ),
    (r"group not permitted|access/permission denied", "you may not use this partition: choose another one"),
    (r"invalid user id", "the cluster does not know your account yet: ask the administrators"),
    (r"dependency", "the job to wait for is unknown or has failed"),
    (
        r"unrecognized option|invalid option|unrecognised option|requires an argument",
        "this site's Slurm does not know an option: remove it in the `sbatch` table of clusterkit.toml",
    ),
    (
        r"unable to contact|socket timed out|connection (refused|timed out)|slurm_persist_conn",
        "the scheduler does not answer; check with squeue whether the job exists before you submit again",
    ),
    (r"partition.*(down|inactive|not available|drained)", "the partition is down at the moment; see sinfo"),
    (
        r"(sbatch: (command )?not found)|no such file or directory.*sbatch|sbatch: not found",
        "sbatch is not on PATH there: set `login_shell = true` for this cluster in clusterkit.toml",
    ),
    (r"no space left|disk quota", "free space in the cluster's work root"),
)


def explain(reason: str) -> str | None:
    """Returns a pending reason or an end state in plain words, with a cure if there is one.

    Args:
        reason: squeue's reason or sacct's state; surrounding brackets are ignored.

    Returns:
        None for an unknown one; then show Slurm's own word.
    """
    text = reason.strip().strip("()")
    for pattern, words in _REASONS:
        if re.fullmatch(pattern, text):
            return words.format(text)
    return None


def sbatch_error(stderr: str) -> str | None:
    """Returns the next step after a refused submission; None for an unknown message."""
    text = stderr.lower()
    return next((hint for pattern, hint in _REFUSALS if re.search(pattern, text)), None)
