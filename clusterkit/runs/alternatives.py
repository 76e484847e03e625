"""Runs that are submitted several times and start once, where a job of theirs starts first. Pure.

Within one cluster the jobs agree through the run directory: the first to start leaves its job id in
`submissions/first`, and the others are cancelled. Two clusters share nothing that both jobs could ask, so
runs cannot be offered to several clusters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from clusterkit.backends.base import backend_of
from clusterkit.backends.jobs import EarlySignal, Job, JobState
from clusterkit.backends.submission import Submission
from clusterkit.config.options import NATIVE
from clusterkit.errors import ConfigError

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile

_FORM = "write --first gpu:A,B with types of the cluster, or --first partition:A,B"
_ORDER = (
    JobState.RUNNING,
    JobState.COMPLETING,
    JobState.SUSPENDED,
    JobState.PENDING,
    JobState.REQUEUED,
)


@dataclass(frozen=True)
class First:
    """Where a run may start: the choice of `--first`."""

    kind: Literal["gpu", "partition"]
    values: tuple[str, ...]
    """At least two."""

    def __str__(self) -> str:
        return f"{self.kind}:{','.join(self.values)}"


def parse_first(text: str) -> First:
    """Parses `gpu:A,B` or `partition:A,B`.

    Raises:
        ConfigError: the text has another form, or names clusters.
    """
    kind, _, rest = text.partition(":")
    values = tuple(dict.fromkeys(value.strip() for value in rest.split(",") if value.strip()))
    if kind == "cluster":
        raise ConfigError(
            "--first cannot name clusters: two clusters share no files by which their jobs could agree "
            "that only one of them starts",
            hint="`clusterkit plan --all` compares the predicted starts; choose with --cluster",
        )
    if kind not in ("gpu", "partition"):
        raise ConfigError(f"--first {text}: it starts with neither gpu: nor partition:", hint=_FORM)
    if len(values) < 2:
        raise ConfigError(f"--first {text}: name at least two {kind}s, separated by commas", hint=_FORM)
    return First(cast("Literal['gpu', 'partition']", kind), values)


def alternatives(
    cluster: Cluster, profile: Profile, first: First, *, signal: EarlySignal | None, native: Sequence[str]
) -> list[tuple[Profile, tuple[str, ...]]]:
    """Returns the profile and the backend's options for each value of a choice.

    Raises:
        ConfigError: the cluster has no queue or no such GPU, or the choice does not fit the profile.
    """
    backend = backend_of(cluster)
    if not backend.can.queue:
        raise ConfigError(
            f"--first is for clusters with a queue, and {cluster.name} starts a run at once",
            hint="leave it out",
        )
    if first.kind == "gpu" and profile.gpu_count == 0:
        raise ConfigError(
            f"--first {first}: profile {profile.name} asks for no GPU", hint="choose a profile with one"
        )
    jobs = []
    for value in first.values:
        one, extra = profile, tuple(native)
        if first.kind == "gpu":
            one = profile.model_copy(update={"gpu": value})
        else:
            extra = (*native, f"--partition={value}")
        jobs.append((one, backend.options(cluster, one, signal=signal, extra=extra)))
    if len({options for _, options in jobs}) < len(jobs):
        raise ConfigError(
            f"--first {first}: two of them make the same request of {cluster.name}",
            hint=f"an `{NATIVE}` setting or option may override what differs",
        )
    return jobs


def newest(submissions: Sequence[Submission], ids: Mapping[int, str], jobs: Mapping[str, Job]) -> int:
    """Returns the number of the job that stands for a run of which none has started a program yet.

    Args:
        submissions: the run's alternatives.
        ids: their job ids, by number; without those that have none.
        jobs: the scheduler's records, by job id.
    """

    def rank(number: int) -> tuple[int, str, int]:
        job = jobs.get(ids[number])
        state = job.state if job else JobState.UNKNOWN
        place = _ORDER.index(state) if state in _ORDER else len(_ORDER)
        return (place, (job.start if job else None) or "9999", number)

    return min(ids, key=rank, default=submissions[0].number)
