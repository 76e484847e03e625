"""How a run goes on past its time limit on one cluster: asks the site what it allows, and chooses."""

from __future__ import annotations

from collections.abc import Sequence

from clusterkit.backends.base import parse_time
from clusterkit.backends.slurm.abilities import LOCAL, Choice, choose, parse, question
from clusterkit.errors import ConfigError, SchedulerError
from clusterkit.site import Site
from clusterkit.units import format_duration

_SECONDS = 60.0


def choose_way(site: Site, options: Sequence[str]) -> Choice:
    """The way on this cluster, after one question to its Slurm.

    Args:
        site: an open cluster.
        options: the job's sbatch options.

    Raises:
        ConfigError: the way that the settings want is not to be had, or the job asks for more time than its
            partition gives.
        SchedulerError: Slurm does not say what it allows, and the settings leave the choice to it.
        TransportError: the connection failed.
    """
    cluster = site.cluster
    if cluster.kind == "local":
        return LOCAL
    given = dict(option.partition("=")[::2] for option in options)
    asked = question(given.get("--partition")).encode()
    answer = site.transport.run(["sh"], stdin=asked, check=False, timeout=_SECONDS).text
    try:
        abilities = parse(answer)
    except SchedulerError:
        if cluster.continue_by == "auto":
            raise
        return choose(None, cluster.continue_by, options)
    wanted = parse_time(given.get("--time", ""))
    if abilities.max_time is not None and wanted is not None and wanted > abilities.max_time:
        longest = format_duration(abilities.max_time)
        raise ConfigError(
            f"the run asks for {format_duration(wanted)}, and {cluster.name}'s partition "
            f"{abilities.partition} gives {longest} at most",
            hint=f"give it `--time {longest}`; with --until-done it goes on all the same",
        )
    return choose(abilities, cluster.continue_by, options)
