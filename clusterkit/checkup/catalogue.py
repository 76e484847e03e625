"""All checks of `clusterkit doctor`, in order; each stands in the file of its place."""

from __future__ import annotations

from typing import Any

from clusterkit.backends import backend_of_kind
from clusterkit.backends.checks import Check
from clusterkit.checkup import examine_nodes, laptop, login, ssh, storage
from clusterkit.config.kinds import BUILT_IN

_SCHEDULERS = [checks for kind in BUILT_IN if (checks := backend_of_kind(kind).checks()) is not None]
CHECKS: tuple[Check[Any], ...] = (
    *laptop.START,
    *laptop.CHECKS,
    *ssh.CHECKS,
    *login.CHECKS,
    *storage.CHECKS,
    *(check for scheduler in _SCHEDULERS for check in scheduler.checks),
    *examine_nodes.CHECKS,
)
