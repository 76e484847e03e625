"""Surveys a site with Slurm; see `clusterkit.backends.survey`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterkit.backends.slurm.survey import script
from clusterkit.backends.slurm.survey.draft import draft, types_for
from clusterkit.backends.slurm.survey.gpus import may_charge
from clusterkit.backends.slurm.survey.missing import no_slurm
from clusterkit.backends.slurm.survey.parse import Slurm, SlurmSurvey, parse
from clusterkit.backends.survey import Choice, Option, SiteDraft, SiteSurvey, Wishes
from clusterkit.config.models import Profile
from clusterkit.errors import ConfigError, SchedulerError


class SlurmSurveyor:
    """See `clusterkit.backends.survey.Surveyor`."""

    seconds = script.SECONDS
    argv = staticmethod(script.argv)
    parse = staticmethod(parse)

    def check(self, survey: SiteSurvey, *, account: str | None, partition: str | None) -> None:
        """Checks the wishes against associations and partitions."""
        slurm = _of_slurm(survey).slurm or Slurm()
        partitions = [row.name for row in slurm.partitions]
        if partitions and partition not in (None, *partitions):
            raise ConfigError(
                f"{survey.host_name} has no partition {partition!r}",
                hint=f"available: {', '.join(partitions)}",
            )
        accounts = sorted({row.account for row in slurm.associations})
        if accounts and account not in (None, *accounts):
            raise ConfigError(
                f"{survey.user} has no account {account!r} on {survey.host_name}",
                hint=f"yours: {', '.join(accounts)}",
            )

    def accounts(self, survey: SiteSurvey, partition: str | None, before: Mapping[str, Any]) -> Choice:
        """Returns accounts that may use the chosen partitions, the user's default one first."""
        slurm = _of_slurm(survey).slurm or Slurm()
        types = types_for(_of_slurm(survey), partition, before)
        partitions = [row.partition for row in types] or list(slurm.partitions)
        names = [
            name
            for name in dict.fromkeys(row.account for row in slurm.associations)
            if any(may_charge(slurm, name, row) for row in partitions)
        ]
        names.sort(key=lambda name: name != slurm.default_account)
        options = [
            Option(name, "your default account" if name == slurm.default_account else "an account of yours")
            for name in names
        ]
        return Choice("--account", "Which account pays for the jobs?", tuple(options))

    def draft(
        self, survey: SiteSurvey, wishes: Wishes, *, before: Mapping[str, Any], shipped: Mapping[str, Profile]
    ) -> SiteDraft:
        """Returns settings with the reason for every key."""
        return draft(_of_slurm(survey), wishes, before=before, shipped=shipped)

    def check_usable(self, survey: SiteSurvey, host: str) -> None:
        """Refuses a site where no Slurm was found."""
        if _of_slurm(survey).slurm is None:
            raise SchedulerError(
                f"no Slurm was found on {host}: no settings were written",
                hint=f"{no_slurm(_of_slurm(survey)).do}; or run on this machine alone: `clusterkit init "
                "--local`",
            )


def _of_slurm(survey: SiteSurvey) -> SlurmSurvey:
    assert isinstance(survey, SlurmSurvey), "what `parse` gave"
    return survey
