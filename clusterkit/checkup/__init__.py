"""Checks of everything a run needs, from the laptop to the container.

The `examine_*` modules ask; the others hold the scripts and judge the answers without I/O.
"""

from __future__ import annotations

from clusterkit.backends.checks import Check, CheckPlace, Outcome, Verdict
from clusterkit.checkup.catalogue import CHECKS, named, of_place
from clusterkit.checkup.check import Result, Sheet

__all__ = ["CHECKS", "Check", "CheckPlace", "Outcome", "Result", "Sheet", "Verdict", "named", "of_place"]
