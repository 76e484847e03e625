"""What arrived at the W&B stand-in for one run, kept so that a repeat or a gap cannot hide."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

ENTITY = "standin"
HISTORY = "wandb-history.jsonl"
EVENTS = "wandb-events.jsonl"
SUMMARY = "wandb-summary.json"
CONSOLE = "output.log"


@dataclass
class Run:
    """What arrived for one run, in the order in which it arrived."""

    entity: str
    project: str
    name: str
    """The W&B run id."""
    upserts: int = 0
    attributes: dict[str, Any] = field(default_factory=dict)
    """Latest non-null variables of UpsertBucket: displayName, groupName, tags, jobType, ..."""
    raw_config: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, dict[int, str]] = field(default_factory=dict)
    """Stored lines: file name -> {offset: line}."""
    arrived: list[dict[str, Any]] = field(default_factory=list)
    """Every history row, repeats included."""
    overwritten: int = 0
    """History offsets that were written more than once."""
    files: dict[str, bytes] = field(default_factory=dict)
    exit_codes: list[int] = field(default_factory=list)
    complete: bool = False
    preempting: bool = False

    @property
    def arrived_steps(self) -> list[int]:
        return [row["_step"] for row in self.arrived]

    @property
    def duplicate_steps(self) -> dict[int, int]:
        """Steps that arrived more than once, and how often."""
        return {step: n for step, n in Counter(self.arrived_steps).items() if n > 1}

    @property
    def once(self) -> bool:
        """Whether no step arrived twice, none was overwritten and no line is missing in between."""
        stored = sorted(self.lines.get(HISTORY, {}))
        return not self.duplicate_steps and not self.overwritten and stored == list(range(len(stored)))

    @property
    def history(self) -> list[dict[str, Any]]:
        """Stored rows by offset."""
        return [json.loads(line) for _, line in sorted(self.lines.get(HISTORY, {}).items())]

    @property
    def summary(self) -> dict[str, Any]:
        stored = self.lines.get(SUMMARY, {})
        return json.loads(stored[max(stored)]) if stored else {}

    @property
    def console(self) -> list[str]:
        return [line for _, line in sorted(self.lines.get(CONSOLE, {}).items())]

    @property
    def config(self) -> dict[str, Any]:
        """The run's config without W&B's own entries."""
        return {key: entry["value"] for key, entry in self.raw_config.items() if key != "_wandb"}

    @property
    def state(self) -> str:
        """running, finished, failed or preempted; the real server calls a silent running run crashed."""
        if not self.complete:
            return "running"
        if self.exit_codes[-1] == 0:
            return "finished"
        return "preempted" if self.preempting else "failed"

    def line_count(self, name: str) -> int:
        return max(self.lines.get(name, {}), default=-1) + 1

    def stream(self, body: dict[str, Any]) -> None:
        """Take one file_stream request."""
        chunks = body.get("files") or {}
        for name, chunk in chunks.items():
            stored = self.lines.setdefault(name, {})
            for offset, line in enumerate(chunk["content"], start=chunk["offset"]):
                if name == HISTORY:
                    self.overwritten += offset in stored
                    self.arrived.append(json.loads(line))
                stored[offset] = line
        if chunks and self.complete:
            self.complete = self.preempting = False  # new data re-opens a run that has ended
        self.preempting |= body.get("preempting", False)
        if body.get("complete"):
            self.complete = True
            self.exit_codes.append(body["exitcode"])

    def resume_bucket(self) -> dict[str, Any]:
        """What RunResumeStatus tells a client about a run that exists."""
        return {
            "id": f"Run:{self.name}",
            "name": self.name,
            "displayName": self.attributes.get("displayName"),
            "summaryMetrics": json.dumps(self.summary),
            "config": json.dumps(self.raw_config),
            "historyLineCount": self.line_count(HISTORY),
            "eventsLineCount": self.line_count(EVENTS),
            "logLineCount": self.line_count(CONSOLE),
            "historyTail": self._tail(HISTORY),
            "eventsTail": self._tail(EVENTS),
            "tags": self.attributes.get("tags", []),
            "notes": None,
            "wandbConfig": json.dumps({"t": 1}),  # without `t` the client takes the run for a fresh one
        }

    def _tail(self, name: str) -> str:
        stored = self.lines.get(name, {})
        return json.dumps([stored[max(stored)]] if stored else [])
