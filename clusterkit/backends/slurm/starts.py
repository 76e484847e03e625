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
from dataclasses import dataclass, field

from clusterkit.backends.jobs import unix_seconds
from clusterkit.backends.slurm.partitions import default, partitions
from clusterkit.backends.slurm.request import JobRequest, counted, read
from clusterkit.backends.slurm.shell import CLEAN_ENVIRONMENT, ENVIRONMENT
from clusterkit.backends.slurm.times import parse_time
from clusterkit.backends.starts import FairShare, PredictedStart, Predictions
from clusterkit.probes import Probe
from clusterkit.probes.framing import Section, sections

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


@dataclass(frozen=True)
class Trial:
    """sbatch's answer for one job."""

    start: float | None
    """Unix seconds; None without a prediction."""
    partition: str | None
    words: str
    """Why there is no prediction; empty otherwise."""


@dataclass(frozen=True)
class PartitionTerms:
    """A partition's terms."""

    max_time: int | None
    """Seconds; None without a limit."""
    weights: Mapping[str, float]
    """Billing units an hour by resource (TRESBillingWeights); `mem` per GiB."""


@dataclass(frozen=True)
class StartAnswers:
    """All answers."""

    now: float | None
    """The cluster's clock, Unix seconds."""
    trials: Mapping[str, Trial]
    partitions: Mapping[str, PartitionTerms] = field(default_factory=dict)
    default: str | None = None
    """The default partition."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Pending jobs by partition."""
    shares: tuple[FairShare, ...] = ()
    highest_only: bool = False
    """Billing counts the most expensive resource instead of the sum (PriorityFlags=MAX_TRES)."""


def probe(requests: Mapping[str, Sequence[str]]) -> Probe[Predictions]:
    """A probe for all answers.

    Args:
        requests: sbatch options by label.
    """
    lines = [CLEAN_ENVIRONMENT, ENVIRONMENT, _TRY, "ck_run now date +%s"]
    lines += [
        "ck_ask partitions scontrol -o show partition",
        "ck_ask config scontrol show config",
        "ck_ask waiting squeue -h -t PENDING -o %P",
        f"ck_ask shares sshare -U -n -P -o {','.join(_SHARES)}",
    ]
    lines += [f"ck_try {shlex.join([key, *options])}" for key, options in requests.items()]
    return Probe("starts", "\n".join(lines), lambda text: parse_starts(text, requests))


def parse_starts(text: str, requests: Mapping[str, Sequence[str]]) -> Predictions:
    """Parse the script's output; missing values are unknown."""
    answers = _read(text)
    asked = {key: read(options) for key, options in requests.items()}
    starts = {key: _start(one, asked[key], answers) for key, one in answers.trials.items() if key in asked}
    billed = {key: _billing(one, answers) for key, one in asked.items()}
    return Predictions(
        starts, answers.shares, {key: units for key, units in billed.items() if units is not None}
    )


def _start(answer: Trial, asked: JobRequest, answers: StartAnswers) -> PredictedStart:
    if answer.start is None or answers.now is None:
        return PredictedStart(
            None, partition=answer.partition, words=answer.words or "the start cannot be read"
        )
    name = answer.partition or answers.default or ""
    partition = answers.partitions.get(name)
    limit = partition.max_time if partition else None
    if limit is not None and asked.seconds is not None and asked.seconds > limit:
        words = "more than the partition allows: it would wait for ever"
        return PredictedStart(None, partition=answer.partition, words=words)
    wait = max(0.0, answer.start - answers.now)
    return PredictedStart(wait, answer.start, answer.partition, answers.waiting.get(name, 0))


def _billing(asked: JobRequest, answers: StartAnswers) -> float | None:
    partition = answers.partitions.get(asked.partition or answers.default or "")
    if partition is None or not partition.weights:
        return None
    return billing(partition.weights, counted(asked), highest_only=answers.highest_only)


def _read(text: str) -> StartAnswers:
    told = {section.name: section for section in sections(text)}
    clock = told.get("now", _SILENCE).text.strip()
    parts = partitions(told.get("partitions", _SILENCE).text)
    flags = re.search(r"^PriorityFlags\s*=\s*(.*)$", told.get("config", _SILENCE).text, re.MULTILINE)
    tries = {name[4:]: section for name, section in told.items() if name.startswith("try ")}
    return StartAnswers(
        now=float(clock) if clock.isdecimal() else None,
        trials={key: _answer(one.status, one.error or one.text) for key, one in tries.items()},
        partitions={name: _partition(fields) for name, fields in parts.items()},
        default=default(parts),
        waiting=Counter(told.get("waiting", _SILENCE).text.replace(",", "\n").split()),
        shares=_shares(told.get("shares", _SILENCE)),
        highest_only="MAX_TRES" in (flags[1] if flags else ""),
    )


def billing(weights: Mapping[str, float], asked: Mapping[str, float], *, highest_only: bool) -> float | None:
    """A job's billing units an hour; None if the partition has no weights for it.

    Args:
        weights: the partition's.
        asked: the request: `cpu`, `mem` in GiB, `node`, `gres/gpu` and `gres/gpu:TYPE`.
        highest_only: count the most expensive resource instead of the sum.
    """
    costs = [weight * asked[name] for name, weight in weights.items() if name in asked]
    if not costs:
        return None
    return max(costs) if highest_only else sum(costs)


def _answer(status: int, said: str) -> Trial:
    if found := _START.search(said):
        return Trial(unix_seconds(found[1]), found[2], "")
    lines = [_NOISE.sub("", line.strip()) for line in said.splitlines() if line.strip()]
    words = "; ".join(dict.fromkeys(lines))[:300]
    if status == 124:
        return Trial(None, None, f"Slurm gives no answer: {words}" if words else "Slurm gives no answer")
    return Trial(None, None, words or "sbatch says nothing")


def _partition(row: Mapping[str, str]) -> PartitionTerms:
    weights: dict[str, float] = {}
    for pair in row.get("TRESBillingWeights", "").split(","):
        if match := re.fullmatch(r"([^=]+)=([\d.]+)([KMGTP]?)", pair, re.IGNORECASE):
            scale = {"": 1024.0, "K": 2.0**20, "M": 1024.0, "G": 1.0, "T": 2.0**-10, "P": 2.0**-20}
            name = match[1].lower()
            weights[name] = float(match[2]) * (scale[match[3].upper()] if name == "mem" else 1.0)
    return PartitionTerms(parse_time(row.get("MaxTime", "")), weights)


def _shares(section: Section) -> tuple[FairShare, ...]:
    found = []
    for line in section.text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if section.status == 0 and len(cells) >= len(_SHARES) and cells[1]:
            found.append(FairShare(cells[0], _number(cells[5]), _number(cells[4])))
    return tuple(found)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number == number and abs(number) != float("inf") else None
