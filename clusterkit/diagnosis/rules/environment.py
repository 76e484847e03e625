"""Causes: the project's Python environment could not be built."""

from __future__ import annotations

import re

from clusterkit.backends.causes import Cause, Finding, Line
from clusterkit.diagnosis.evidence import Evidence
from clusterkit.diagnosis.rules.commands import logs, settings
from clusterkit.diagnosis.rules.said import refused

PACKAGES = Cause(
    "environment-packages",
    "the packages that the project names do not go together, or one cannot be had for this Python",
    "correct the file that `environment` of [project] names, or lock it again, with versions that have "
    "wheels; then submit again",
)
NETWORK = Cause(
    "environment-network",
    "the packages of the environment could not be fetched: the node reaches no package index",
    'set packages = "login" or "laptop" of the cluster, and they are fetched there; then submit again',
)
PYTHON = Cause(
    "environment-python",
    "the project's environment needs another Python than the node or the image has",
    "set the cluster's `python`, load one in its `prelude`, or use an image with it; then submit again",
)
TOOLS = Cause(
    "environment-tools",
    "the node lacks what builds the environment: Python's venv and pip, or conda",
    "load a whole Python, or conda, in the cluster's `prelude`; then submit again",
)
HASH = Cause(
    "environment-hash",
    "a package of the environment is not the one that was locked",
    "lock again if its release was replaced; else someone or something between has changed it",
)
DISK = Cause(
    "environment-disk",
    "the environment does not fit on the disk, or into its quota",
    "`clusterkit storage prune` removes what no run uses; or set `root` of the cluster to a larger disk",
)
FAILED = Cause(
    "environment-failed",
    "the project's environment could not be built",
    "the installer's lines in the log say why; a run submitted later tries again",
)
_BY_NAME = {
    "packages": PACKAGES,
    "network": NETWORK,
    "python": PYTHON,
    "venv": TOOLS,
    "conda": TOOLS,
    "hash": HASH,
    "disk": DISK,
    "compile": PACKAGES,
}
"""Causes by the names that environment.sh gives them."""
_SAID = re.compile(r"the environment of .* could not be built \((\w+)\): (.*)")


def not_built(evidence: Evidence) -> Finding | None:
    """The exit record has the installer's reason."""
    match = _SAID.fullmatch(refused(evidence))
    if match is None:
        return None
    cause = _BY_NAME.get(match[1], FAILED)
    started = evidence.record.started
    command = settings(evidence) if cause in (NETWORK, PYTHON, TOOLS) else logs(evidence)
    return cause.found(
        Line(f"attempts/{started.number}/exit.json" if started else "exit.json", match[2]), command=command
    )


RULES = (not_built,)
