"""Asks Slurm when jobs would start (sbatch --test-only) and what they would cost. Pure.

Slurm assumes that every running job runs until its time limit, and that every pending job of the partition
with the same or a higher priority goes first, ignoring backfill. So the predicted start is right in an empty
queue, and a bound otherwise. Slurm does not check the partition's time limit, beyond which a job would wait
for ever.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence

from clusterkit.backends.jobs import FairShare, PredictedStart, Predictions, unix_seconds
from clusterkit.backends.slurm import tables
from clusterkit.backends.slurm.request import JobRequest, read, trackable
from clusterkit.backends.slurm.tables import CLEAN_ENVIRONMENT, ENVIRONMENT, SlurmTables
from clusterkit.probes import Probe, Section, sections
from clusterkit.untrusted import decimal

_START = re.compile(r"\bJob \S+ to start at (\S+)(?: .*? in partition (\S+))?")
_NOISE = re.compile(r"^(sbatch: )?(error: |allocation failure: )*")
_SILENCE = Section()
_SHARES = ("Account", "User", "RawShares", "RawUsage", "EffectvUsage", "FairShare")

# ck_ask NAME COMMAND...: as ck_run, unless Slurm has been silent before. ck_try KEY OPTION...: what sbatch
# says of an empty script, likewise. ck_silent STATUS WORDS: remembers why nobody answers.
_TRY = r"""
ck_dead=
ck_silent() {
  case "$1 $2" in
    124\ * | *[Uu]'nable to contact'* | *'imed out'* | *'onnection refused'*)
      ck_dead=${2:-it took too long} ;;
  esac
}
ck_ask() {
  [ -z "$ck_dead" ] || return 0
  ck_run "$@"
  ck_silent "$ck_status" "$ck_error"
}
ck_try() {
  ck_begin "try $1"
  shift
  [ -z "$ck_dead" ] || { ck_end 124; echo "$ck_dead"; return 0; }
  ck_said=$(printf '#!/bin/sh\n' | $ck_limit sbatch --test-only "$@" 2>&1)
  ck_status=$?
  ck_silent "$ck_status" "$ck_said"
  ck_end "$ck_status"
  printf '%s\n' "$ck_said"
}
"""


def probe(requests: Mapping[str, Sequence[str]]) -> Probe[Predictions]:
    """Returns a probe for all answers.

    Args:
        requests: sbatch options by label.
    """
    lines = [CLEAN_ENVIRONMENT, ENVIRONMENT, _TRY, "ck_run now date +%s"]
    lines += [
        f"ck_ask partitions {tables.partitions()}",
        f"ck_ask config {tables.CONFIG}",
        "ck_ask waiting squeue -h -t PENDING -o %P",
        f"ck_ask shares sshare -U -n -P -o {','.join(_SHARES)}",
    ]
    lines += [f"ck_try {shlex.join([key, *options])}" for key, options in requests.items()]
    return Probe("starts", "\n".join(lines), lambda text: parse_starts(text, requests))


def parse_starts(text: str, requests: Mapping[str, Sequence[str]]) -> Predictions:
    """Parses the script's output; missing values are unknown."""
    parts = {section.name: section for section in sections(text)}
    slurm = SlurmTables({name: part.text for name, part in parts.items()})
    now = decimal(parts.get("now", _SILENCE).text.strip())
    waiting = Counter(parts.get("waiting", _SILENCE).text.replace(",", "\n").split())
    highest_only = "MAX_TRES" in slurm.config.text("PriorityFlags")
    starts, billed = {}, {}
    for key, options in requests.items():
        asked = read(options)
        if (answer := parts.get(f"try {key}")) is not None:
            starts[key] = _start(answer, asked, now, slurm, waiting)
        partition = slurm.partitions.get(asked.partition) if asked.partition else slurm.default
        units = billing(partition.weights if partition else {}, trackable(asked), highest_only=highest_only)
        if units is not None:
            billed[key] = units
    return Predictions(starts, _shares(parts.get("shares", _SILENCE)), billed)


def _start(
    answer: Section, asked: JobRequest, now: float | None, slurm: SlurmTables, waiting: Mapping[str, int]
) -> PredictedStart:
    """Returns the start in sbatch's answer.

    Args:
        answer: sbatch's.
        asked: the job's request.
        now: the cluster's clock, Unix seconds.
        slurm: the site's partitions.
        waiting: pending jobs by partition.
    """
    words = answer.error or answer.text
    match = _START.search(words)
    if match is None:
        return PredictedStart(None, words=_refusal(answer.status, words))
    moment, name = unix_seconds(match[1]), match[2]
    if moment is None or now is None:
        return PredictedStart(None, partition=name, words="the predicted start cannot be read")
    partition = slurm.partitions.get(name) if name else slurm.default
    limit = partition.max_time if partition else None
    if limit is not None and asked.seconds is not None and asked.seconds > limit:
        words = "more than the partition allows: it would never start"
        return PredictedStart(None, partition=name, words=words)
    queue = name or (partition.name if partition else "")
    return PredictedStart(max(0.0, moment - now), moment, name, waiting.get(queue, 0))


def _refusal(status: int, answer: str) -> str:
    """Returns why sbatch predicts no start."""
    lines = [_NOISE.sub("", line.strip()) for line in answer.splitlines() if line.strip()]
    words = "; ".join(dict.fromkeys(lines))[:300]
    if status == 124:
        return f"Slurm does not answer: {words}" if words else "Slurm does not answer"
    return words or "sbatch printed nothing"


def billing(weights: Mapping[str, float], asked: Mapping[str, float], *, highest_only: bool) -> float | None:
    """Returns a job's billing units an hour; None if the partition has no weights for it.

    Args:
        weights: the partition's.
        asked: the request: `cpu`, `mem` in GiB, `node`, `gres/gpu` and `gres/gpu:TYPE`.
        highest_only: count the most expensive resource instead of the sum.
    """
    costs = [weight * asked[name] for name, weight in weights.items() if name in asked]
    if not costs:
        return None
    return max(costs) if highest_only else sum(costs)


def _shares(section: Section) -> tuple[FairShare, ...]:
    rows = ([cell.strip() for cell in line.split("|")] for line in section.text.splitlines())
    return tuple(
        FairShare(row[0], decimal(row[5]), decimal(row[4]))
        for row in rows
        if section.status == 0 and len(row) >= len(_SHARES) and row[1]
    )
