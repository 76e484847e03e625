"""Plans the run of a trial: one of the search's group, with a submission of its own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from clusterkit.runs.ledger import Ledger
from clusterkit.search.definition import Definition
from clusterkit.search.space import Between, parse
from clusterkit.submit.check import check
from clusterkit.submit.plan import GroupMember, Plan
from clusterkit.submit.request import SubmitRequest, plan_of
from clusterkit.submit.resolve_group import resolve_member

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings


def check_search(settings: Settings, ledger: Ledger, definition: Definition, request: SubmitRequest) -> None:
    """Checks that a trial can be planned and run.

    Raises:
        ConfigError, RecipeLockedError, SchedulerError: a trial could never run.
    """
    check(settings, sample_plan(settings, definition, request), ledger)


def plan_trial(
    settings: Settings, definition: Definition, request: SubmitRequest, number: int, values: Mapping[str, str]
) -> Plan:
    """Returns the plan of a trial's run.

    Raises:
        ConfigError, RecipeLockedError: a value is wrong.
    """
    group = {"id": definition.group, "index": number, "size": definition.size}
    member = GroupMember(0, group, values)
    run = resolve_member(settings, request, request.profile.name, member, datetime.now(UTC))
    return plan_of(request, [run])


def sample_plan(settings: Settings, definition: Definition, request: SubmitRequest) -> Plan:
    """Returns the plan of a trial with the first value of each parameter."""
    kinds = {name: parse(name, text) for name, text in definition.space.items()}
    values = {
        name: str((int(kind.low) if kind.whole else kind.low) if isinstance(kind, Between) else kind[0])
        for name, kind in kinds.items()
    }
    return plan_trial(settings, definition, request, 0, values)
