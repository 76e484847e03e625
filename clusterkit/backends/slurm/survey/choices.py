"""Choices that a survey leaves to the user: the account to charge, the partition. Pure."""

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


def check_known(survey: SlurmSurvey, account: str | None, partition: str | None) -> None:
    """Refuse an account or partition that the site is known not to have.

    Raises:
        ConfigError: the account is not the user's, or the partition does not exist.
    """
    slurm = survey.slurm or Slurm()
    partitions = [one.name for one in slurm.partitions]
    if partitions and partition not in (None, *partitions):
        raise ConfigError(
            f"{survey.host_name} has no partition {partition!r}", hint=f"there are: {', '.join(partitions)}"
        )
    accounts = sorted({one.account for one in slurm.associations})
    if accounts and account not in (None, *accounts):
        raise ConfigError(
            f"{survey.user} has no account {account!r} on {survey.host_name}",
            hint=f"yours: {', '.join(accounts)}",
        )
