"""Surveys a site with Slurm; see `clusterkit.backends.survey`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from clusterkit.backends.slurm.survey import choices, missing, script
from clusterkit.backends.slurm.survey.draft import draft, types_for
from clusterkit.backends.slurm.survey.facts import SlurmSurvey
from clusterkit.backends.slurm.survey.parse import parse
from clusterkit.backends.survey import Choice, SiteDraft, SiteSurvey, Wishes
from clusterkit.config.models import Profile


class SlurmSurveyor:
    """See `clusterkit.backends.survey.Surveyor`."""

    seconds = script.SECONDS

    def argv(
        self, root: str | None = None, *, trust: Iterable[str] = (), group: str | None = None
    ) -> list[str]:
        """The command of the single survey script."""
        return script.argv(root, trust=trust, group=group)

    def parse(self, answer: str) -> SlurmSurvey:
        """See `clusterkit.backends.slurm.survey.parse`."""
        return parse(answer)

    def check(self, survey: SiteSurvey, *, account: str | None, partition: str | None) -> None:
        """Check the wishes against associations and partitions."""
        choices.check_known(_of_slurm(survey), account, partition)

    def accounts(self, survey: SiteSurvey, partition: str | None, before: Mapping[str, Any]) -> Choice:
        """Accounts that may use the chosen partitions, the default one first."""
        return choices.account_choice(_of_slurm(survey), types_for(_of_slurm(survey), partition, before))

    def draft(
        self, survey: SiteSurvey, wishes: Wishes, *, before: Mapping[str, Any], shipped: Mapping[str, Profile]
    ) -> SiteDraft:
        """Settings with the reason for every key."""
        return draft(_of_slurm(survey), wishes, before=before, shipped=shipped)

    def check_usable(self, survey: SiteSurvey, host: str) -> None:
        """Slurm must have been found."""
        missing.check_scheduler(_of_slurm(survey), host)


def _of_slurm(survey: SiteSurvey) -> SlurmSurvey:
    assert isinstance(survey, SlurmSurvey), "what `parse` gave"
    return survey
