"""Is all on the way from the laptop to the program as a run needs it? Scripts that look, and judges. Pure."""

from __future__ import annotations

from clusterkit.backends.checks import Check, CheckPlace, Outcome, Verdict
from clusterkit.checkup.catalogue import CHECKS, named, of_place
from clusterkit.checkup.check import Result, Sheet

__all__ = ["CHECKS", "Check", "CheckPlace", "Outcome", "Result", "Sheet", "Verdict", "named", "of_place"]
