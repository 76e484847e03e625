"""The immutable description of one run and its JSON form, run.json (docs/run-directory.md)."""

from __future__ import annotations

import platform
import posixpath
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from clusterkit import __version__
from clusterkit.backends.jobs import JobState
from clusterkit.backends.submission import Submission, json_file
from clusterkit.errors import ConfigError, RunError
from clusterkit.images.image import Image
from clusterkit.runs.ledger import SHORT, LedgerRun
from clusterkit.runs.program import Program
from clusterkit.untrusted import can_be_shown, shape_of, text, values_of, whole

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster

SCHEMA = 1
_OPTIONAL = {"short", "project", "group", "sweep", "template", "rerun_of", "environment"}
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ARCHITECTURE = re.compile(r"[a-z0-9_]{0,16}")


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """The complete description of a run, written once as run.json and never changed.

    Before the run has its place on a cluster, its paths, code and image are empty, and placeholders unfilled.
    """

    run_id: str
    name: str
    created: str
    """UTC, ISO 8601."""
    cluster: str
    profile: Mapping[str, Any]
    """The resolved profile table."""
    recipe: Mapping[str, Any] | None
    """`name`, `values` and `modified` ({name: [locked, used]}); None for a user's own program."""
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    python_path: tuple[str, ...] = ()
    snapshot: Mapping[str, Any] = field(default_factory=dict)
    image: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] | None = None
    """The Python environment's `digest`, `file`, `packages`, `paths` and `path`; None without one."""
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
    short: str = ""
    """Its short name, see `clusterkit.submit.handover.short_names`; empty if it was given none."""

    @classmethod
    def recorded(cls, document: Mapping[str, Any], where: str) -> RunSpec:
        """Returns the spec in a run.json.

        Args:
            document: the content of the file.
            where: the file, for messages.

        Raises:
            RunError: a value is missing or of another type.
        """
        needed = {each.name for each in fields(cls)} - _OPTIONAL
        given = {name for name in shape_of(cls) if document.get(name) is not None}
        empty = {each.name for each in fields(cls) if "None" in str(each.type) and each.name in document}
        values = {**dict.fromkeys(empty - given), **values_of(document, shape_of(cls))}
        sound = {
            "argv": values.get("argv"),
            "profile": text(values.get("profile", {}).get("name")),
            "python_path": len(values.get("python_path", ())) <= 1,
            "environment": "environment" not in values or is_sound(values["environment"]),
            "image": values.get("image") is None or _is_image(values["image"]),
        }
        wrong = (needed | given).difference(values)
        wrong |= {name for name, right in sound.items() if not right}
        if wrong:
            raise RunError(
                f"{where} was not written by clusterkit, or is damaged: {', '.join(sorted(wrong))}",
                hint="copy the file from another copy of the run, if there is one; "
                "`clusterkit submit` starts a new run",
            )
        return cls(**values)

    def to_json(self) -> bytes:
        """Returns run.json."""
        values = asdict(self)
        for name in ("rerun_of", "environment"):
            if values[name] is None:
                del values[name]
        return json_file(SCHEMA, values)

    def program(self, newest: Submission, home: str) -> Program:
        """Returns the program of a recorded run.

        Args:
            newest: the run's newest submission, whose arguments take precedence.
            home: the run directory.
        """
        argv = self.template or newest.argv or self.argv
        return Program(argv, self.recipe, newest.env or self.env, has_places=bool(self.template), home=home)

    @property
    def stored_image(self) -> Image | None:
        """The image in the cluster's store; None if the run uses none of it."""
        return Image.recorded(self.image) if self.image else None

    @property
    def trees(self) -> tuple[str, ...]:
        """Ids of the snapshots with the run's code and, if it uses the bundled trainer, with that."""
        folders = (self.workdir, *self.python_path)
        return tuple(posixpath.basename(posixpath.dirname(folder)) for folder in folders)

    @property
    def code(self) -> str:
        """Id of the snapshot with the run's code."""
        return self.trees[0]


def _is_image(image: object) -> bool:
    """Returns whether a record may describe an image so; paths and job scripts are made of it."""
    if not isinstance(image, dict):
        return False
    size, others = whole(image.get("bytes")), image.get("others", [])
    return (
        _DIGEST.fullmatch(str(image.get("digest"))) is not None
        and size is not None
        and size >= 0
        and _ARCHITECTURE.fullmatch(str(image.get("arch", ""))) is not None
        and isinstance(others, list)
        and all(map(_is_image, others))
    )


def is_sound(environment: Mapping[str, Any]) -> bool:
    """Returns whether a record may name an environment so; paths on the cluster are made of it."""
    paths = environment.get("paths")
    return (
        re.fullmatch(r"[0-9a-f]{32}", str(environment.get("digest"))) is not None
        and isinstance(environment.get("file"), str)
        and whole(environment.get("packages")) is not None
        and isinstance(paths, list)
        and all(isinstance(path, str) and ".." not in path for path in paths)
    )


def must_start_alike(spec: RunSpec, cluster: Cluster) -> None:
    """Raises ConfigError if a cluster would start a recorded run in another kind of container, or in none."""
    facts, drawn = spec.image, spec.versions.get("image")
    if (facts is not None, drawn) != (cluster.stores_image, cluster.registry_image):
        began = "in an image" if facts else f"in {drawn}" if drawn else "without a container"
        here = f'container = "{cluster.container}"'
        if cluster.registry_image:
            here += f', registry_image = "{cluster.registry_image}"'
        raise ConfigError(
            f"{spec.run_id} ran {began}, and {cluster.name} has {here}",
            hint="use --cluster to choose a cluster that runs programs in the same way",
        )


def versions(cluster: Cluster) -> dict[str, str]:
    """Returns what makes a run on a cluster, as far as its other facts do not say it."""
    found = {"clusterkit": __version__, "python": platform.python_version()}
    return found | ({"image": cluster.registry_image} if cluster.registry_image else {})


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
    return f"{slug(name)}-{created.astimezone(UTC):%Y%m%d-%H%M%S}-{token}"


def slug(name: str) -> str:
    """Returns a name as it is written in ids and short names."""
    return (re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "run")[:40]


def timestamp(moment: datetime) -> str:
    """Formats a time as UTC in ISO 8601, to the second, with a Z."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def short_of(document: Mapping[str, Any]) -> str:
    """Returns the short name in a run.json, which may be a stranger's; empty if it has none."""
    found = SHORT.fullmatch(str(document.get("short")))
    return found[0] if found else ""


def ledger_row(
    document: Mapping[str, Any], newest: Submission | None, *, cluster: str, run_dir: str
) -> LedgerRun:
    """Makes a ledger row from a run.json and the newest submission, without a job.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: clusterkit did not write the document.
    """
    program = Program(tuple(document.get("argv") or ()), None, document.get("env") or {})
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
        total_steps=program.total_steps or int(document["total_steps"] or 0),
        state=JobState.PENDING,
        group=str((document.get("group") or {}).get("id", "")),
        submission=newest.number if newest else 0,
        part=newest.part if newest else 0,
        until_done=(newest.until_done if newest else None) or "",
        short=short_of(document),
    )
