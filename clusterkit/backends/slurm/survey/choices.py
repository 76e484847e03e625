"""What a look at a site leaves open of Slurm: the account to charge, the partition. Pure."""

from __future__ import annotations

from clusterkit.backends.slurm.survey.access import may_charge
from clusterkit.backends.slurm.survey.facts import Slurm, SlurmSurvey
from clusterkit.backends.slurm.survey.gpus import GpuType
from clusterkit.backends.survey import Choice, Option
from clusterkit.errors import ConfigError


def account_choice(survey: SlurmSurvey, types: tuple[GpuType, ...]) -> Choice:
    """Accounts that may use the chosen partitions, the user's default one first."""
    slurm = survey.slurm or Slurm()
    partitions = [one.offer.partition for one in types] or list(slurm.partitions)
    names = [
        name
        for name in dict.fromkeys(one.account for one in slurm.associations)
        if any(may_charge(slurm, name, partition) for partition in partitions)
    ]
    names.sort(key=lambda name: name != slurm.default_account)
    options = [
        Option(name, "your default account" if name == slurm.default_account else "an account of yours")
        for name in names
    ]
    return Choice("--account", "Which account pays for the jobs?", tuple(options))


def known_account(survey: SlurmSurvey, account: str) -> str:
    """The account, if it is one of the user's or nothing is known about those.

    Raises:
        ConfigError: it is none of the user's.
    """
    names = sorted({one.account for one in survey.slurm.associations}) if survey.slurm else []
    if names and account not in names:
        raise ConfigError(
            f"{survey.user} has no account {account!r} on {survey.host_name}",
            hint=f"yours: {', '.join(names)}",
        )
    return account


def known_partition(survey: SlurmSurvey, partition: str) -> str:
    """The partition, if the site has it or nothing is known about those.

    Raises:
        ConfigError: the site has none of this name.
    """
    names = [one.name for one in survey.slurm.partitions] if survey.slurm else []
    if names and partition not in names:
        raise ConfigError(
            f"{survey.host_name} has no partition {partition!r}", hint=f"there are: {', '.join(names)}"
        )
    return partition
