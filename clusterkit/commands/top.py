"""top: sample a running run's resource usage live, from inside its allocation."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, cast

from clusterkit.backends import backend_of
from clusterkit.errors import RunError, TransportError
from clusterkit.interactive.inside import Inside, inside, inside_all
from clusterkit.probes.usage import Usage, UsageReader
from clusterkit.probes.usage_script import usage_argv
from clusterkit.runs.ledger import LedgerRun
from clusterkit.transport.faults import LostError

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings

SECONDS = 2.0
"""Seconds between two samples."""
_ONCE_SECONDS = 1.0


def top(
    settings: Settings, runs: Sequence[LedgerRun], *, once: bool
) -> Generator[tuple[Inside, Usage], None, None]:
    """Sample what running runs use, until all have ended, over one connection to each cluster.

    A single run is sampled every two seconds by one job step; closing the iterator or ending this process
    ends the step. Several runs take turns, and each sample is a job step of its own.

    Args:
        settings: of the project.
        runs: a running run, or a group.
        once: take a single sample of each.

    Raises:
        RunError: none of the runs is running, or nothing can be started in a job.
        TransportError: a cluster cannot be reached, or a connection was lost.
    """
    if len(runs) == 1:
        with inside(settings, runs[0]) as place:
            yield from _samples(place, once=once)
        return
    with inside_all(settings, runs) as places:
        going = list(places)
        while going:
            for place in list(going):
                sampled = False
                for sample in _samples(place, once=True):
                    sampled = True
                    yield sample
                if not sampled:
                    going.remove(place)  # it has ended
            if once:
                return


def _samples(place: Inside, *, once: bool) -> Generator[tuple[Inside, Usage], None, None]:
    backend = backend_of(place.cluster)
    sampler = usage_argv(
        place.run.run_dir,
        place.attempt,
        seconds=_ONCE_SECONDS if once else SECONDS,
        count=2 if once else None,  # a rate needs two
        group=backend.process_group(place.job_id),
        allocated=backend.allocated,
    )
    reader, seen = UsageReader(), 0
    argv = place.argv(sampler)
    with closing(
        cast("Generator[bytes, None, None]", place.transport.stream(argv, hold_input=place.hold_input))
    ) as output:
        try:
            for data in output:
                for usage in reader.feed(data):
                    seen += 1
                    if not once or seen == 2:
                        yield place, usage
        except LostError:
            raise
        except TransportError as error:
            if not seen:
                raise RunError(
                    f"{place.run.run_id}: nothing can be started in its job: {error.cause}", hint=error.hint
                ) from error
            # The step ends with the job, and not by itself.
