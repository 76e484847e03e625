"""The immutable description of one run and its JSON form, run.json (docs/run-directory.md)."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any

from clusterkit.backends.jobs import JobState
from clusterkit.config.models import Cluster
from clusterkit.errors import ConfigError, RunError
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.program import TOTAL_STEPS, option_of, trains
from clusterkit.untrusted import can_be_shown

SCHEMA = 1


@dataclass(frozen=True)
class RunSpec:
    """The complete description of a run, written once as run.json and never changed."""

    run_id: str
    name: str
    created: str
    """UTC, ISO 8601."""
    cluster: str
    profile: Mapping[str, Any]
    """The resolved profile table."""
    recipe: Mapping[str, Any] | None
    """`name`, `values` and `modified` ({name: [locked, used]}); None for a user's own program."""
    argv: tuple[str, ...]
    env: Mapping[str, str]
    workdir: str
    python_path: tuple[str, ...]
    snapshot: Mapping[str, Any]
    image: Mapping[str, Any] | None
    seed: int | None
    total_steps: int | None
    time_limit_seconds: int
    wandb: Mapping[str, Any]
    versions: Mapping[str, str]
    project: str = ""
    """Name of the project that the run belongs to."""
    group: Mapping[str, Any] | None = None
    """The group's `id` and `size` and the run's `index` in it; None for a single run."""
    sweep: Mapping[str, str] | None = None
    """The run's sweep values, by name."""
    template: tuple[str, ...] | None = None
    """`argv` before placeholders were filled in; None if there were none."""
    rerun_of: str | None = None
    """Id of the run that this one repeats, or None."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> RunSpec:
        """Returns the spec in a run.json of clusterkit; values that older versions lack get defaults."""
        known: dict[str, Any] = {field.name: document.get(field.name) for field in fields(cls)}
        for name in ("argv", "python_path"):
            known[name] = tuple(known[name] or ())
        known["project"] = known["project"] or ""
        known["versions"] = known["versions"] or {}
        known["template"] = tuple(known["template"]) if known["template"] else None
        return cls(**known)

    def to_json(self) -> bytes:
        """Returns run.json: UTF-8, indented, with unsorted keys and a final newline."""
        document = {"schema": SCHEMA, **asdict(self)}
        if self.rerun_of is None:
            del document["rerun_of"]
        return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "surrogateescape")


def snapshot_ids(document: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the ids of the snapshots with a run's code and with its trainer.

    Raises:
        RunError: run.json does not contain them.
    """
    try:
        (bundle,) = document["python_path"]
        code = posixpath.basename(posixpath.dirname(str(document["workdir"])))
    except (KeyError, TypeError, ValueError) as error:
        raise RunError("run.json does not record the run's code: it was not written by clusterkit") from error
    return code, posixpath.basename(posixpath.dirname(str(bundle)))


def must_start_alike(run_id: str, document: Mapping[str, Any], cluster: Cluster) -> None:
    """Raises ConfigError if a cluster would start a recorded run in another kind of container, or in none."""
    facts, drawn = document.get("image"), (document.get("versions") or {}).get("image")
    if (facts is not None, drawn) != (cluster.stores_image, cluster.registry_image):
        began = "in an image" if facts else f"in {drawn}" if drawn else "without a container"
        here = f'container = "{cluster.container}"'
        if cluster.registry_image:
            here += f', registry_image = "{cluster.registry_image}"'
        raise ConfigError(
            f"{run_id} ran {began}, and {cluster.name} has {here}",
            hint="use --cluster to choose a cluster that runs programs in the same way",
        )


def run_id(name: str, created: datetime, token: str) -> str:
    """Returns a run id that sorts by time within a name and is safe as a file, job and W&B name.

    >>> run_id("a40-2m", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "k3f9")
    'a40-2m-20260102-030405-k3f9'

    Raises:
        ConfigError: the name contains characters that cannot be shown.
    """
    if not can_be_shown(name):
        raise ConfigError(
            f"the name {name!a} contains characters that cannot be shown", hint="choose another name"
        )
    slug = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "run"
    return f"{slug[:40]}-{created.astimezone(UTC):%Y%m%d-%H%M%S}-{token}"


def timestamp(moment: datetime) -> str:
    """Formats a time as UTC in ISO 8601, to the second, with a Z."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def ledger_row(document: Mapping[str, Any], *, cluster: str, run_dir: str) -> LedgerRun:
    """Makes a ledger row from a run.json, without a job.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: clusterkit did not write the document.
    """
    argv, env = list(document.get("argv") or ()), document.get("env") or {}
    steps = option_of(argv, "--total-steps") if trains(argv) else env.get(TOTAL_STEPS)
    return LedgerRun(
        run_id=str(document["run_id"]),
        cluster=cluster,
        name=str(document["name"]),
        profile=str(document["profile"]["name"]),
        recipe=str((document["recipe"] or {}).get("name", "")),
        seed=int(document["seed"] or 0),
        job_id="",
        submitted=str(document["created"]),
        run_dir=run_dir,
        total_steps=int(steps) if steps and steps.isdigit() else int(document["total_steps"] or 0),
        state=JobState.PENDING,
        group=str((document.get("group") or {}).get("id", "")),
    )
