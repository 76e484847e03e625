"""Reads the run.json of one run on a cluster."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusterkit.probes import Probe
from clusterkit.probes.framing import sections
from clusterkit.untrusted import DOCUMENT_BYTES, parse_object

_SCRIPT = f"""
ck_begin moved; [ ! -e "$ck_here/moved.json" ] || echo yes; ck_end 0
[ -e "$ck_here/run.json" ] || exit
ck_begin document; [ ! -f "$ck_here/run.json" ] || head -c {DOCUMENT_BYTES} "$ck_here/run.json"; ck_end 0
"""


@dataclass(frozen=True)
class RunDocument:
    """A run directory's run.json."""

    exists: bool
    """Whether run.json exists."""
    moved: bool
    """Whether the run has moved to another cluster."""
    content: Mapping[str, Any] | None
    """The content of run.json; None if it cannot be read or is not a JSON object."""


def document(run_dir: str) -> Probe[RunDocument]:
    """Returns a probe that reads the run.json of a run directory."""
    return Probe("document", f"ck_here={shlex.quote(run_dir)}\n{_SCRIPT}", _parse)


def _parse(text: str) -> RunDocument:
    told = {section.name: section.text for section in sections(text)}
    content = told.get("document")
    return RunDocument(
        content is not None,
        told.get("moved", "").strip() == "yes",
        parse_object(content) if content else None,
    )
