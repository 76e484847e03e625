"""Weights & Biases on the cluster."""

from __future__ import annotations

from clusterkit.backends.causes import Cause, Finding, Sure
from clusterkit.diagnosis.evidence import Evidence

WANDB_LOGIN = Cause(
    "wandb-login",
    "W&B asked for a login on the node",
    'set `mode = "offline"` in `[project.wandb]`; `clusterkit sync-results` uploads the run',
)
WANDB_NETWORK = Cause(
    "wandb-network",
    "W&B could not reach its server from the node",
    'set `mode = "offline"` in `[project.wandb]`; `clusterkit sync-results` uploads the run',
)
WANDB_LOST = Cause(
    "wandb-lost",
    "W&B stopped while the program ran",
    "metrics.jsonl has every row; see W&B's debug logs in the run directory",
)

_LOGIN = (
    r"api_key not configured|No API key configured|Unable to authenticate|wandb: ERROR.*(API key|login)"
    r"|wandb.*\b(AuthenticationError|UsageError)\b.*(key|login)|wandb.*permission denied|wandb.*401"
    r"|CommError: .*permission"
)
_NETWORK = (
    r"wandb.*(Network error|[Cc]onnection (refused|error|timed out)|timed out|resolve|unreachable|CommError)"
    r"|CommError: .*|api\.wandb\.ai.*(refused|timed out|resolve|Max retries|unreachable)"
)
_LOST = r"W&B takes no more|W&B could not close its run|W&B is off: |W&B cannot be opened"


def wandb_login(evidence: Evidence) -> Finding | None:
    """There is no key on the node, and none is needed."""
    return _said(evidence, WANDB_LOGIN, _LOGIN)


def wandb_network(evidence: Evidence) -> Finding | None:
    """Nodes seldom reach the internet."""
    return _said(evidence, WANDB_NETWORK, _NETWORK)


def wandb_lost(evidence: Evidence) -> Finding | None:
    """The W&B client failed; the bundled trainer continues without it."""
    return _said(evidence, WANDB_LOST, _LOST)


RULES = (wandb_login, wandb_network, wandb_lost)


def _said(evidence: Evidence, cause: Cause, pattern: str) -> Finding | None:
    """Also applies to healthy runs, whose missing curves nothing else explains."""
    if evidence.waiting or (found := evidence.search(pattern)) is None:
        return None
    likely = evidence.ended_badly and found[0] < 12
    return cause.found(
        found[1],
        command="clusterkit config project.wandb",
        sure=Sure.LIKELY if likely else Sure.SEEN,
    )
