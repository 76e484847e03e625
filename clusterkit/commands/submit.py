"""submit: resolve a request, check it, and submit it to the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from clusterkit.runs import pipeline
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.pipeline import DryRun, Submitted, resolve
from clusterkit.runs.plan import Plan
from clusterkit.runs.request import SubmitRequest
from clusterkit.transport.base import Bar

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings


def submit(
    settings: Settings, request: SubmitRequest, ledger: Ledger, *, on_plan: Callable[[Plan], None], bar: Bar
) -> Submitted:
    """Submit a run or a group over one login.

    Args:
        settings: of the project.
        request: the runs to submit.
        ledger: of the project.
        on_plan: called with the plan before any work; it raises to abort.
        bar: opens progress bars.

    Raises:
        ClusterkitError: as `clusterkit.runs.pipeline.submit`.
    """
    plan = resolve(settings, request)
    on_plan(plan)
    return pipeline.submit(settings, plan, ledger, bar=bar)


def dry_run(settings: Settings, request: SubmitRequest, ledger: Ledger, *, bar: Bar) -> DryRun:
    """Plan a submission without changing the cluster.

    Raises:
        ClusterkitError: as `submit`.
    """
    return pipeline.dry_run(settings, resolve(settings, request), ledger, bar=bar)
