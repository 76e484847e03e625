"""Collects the contents of a run's export and composes its README. Reads files; writes none."""

from __future__ import annotations

import json
import re
import shlex
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterkit import __version__
from clusterkit.backends.job_script import templates
from clusterkit.backends.submission import Submission
from clusterkit.runs.run_dir import newest_request
from clusterkit.runtimes import BUILDER
from clusterkit.sharing.archive import TREES, ArchiveMember, of_file
from clusterkit.snapshots.snapshot import ManifestEntry

SCHEMA = 1
FACTS = "export.json"
_LEFT_OUT = re.compile(
    r"(wandb|report|videos)/.*|(.*/)?\..*|checkpoints/replay/.*|checkpoints/step-[^/]*/.*|.*/__pycache__/.*",
    re.DOTALL,
)
_PLACES = frozenset({"WANDB_DIR", "WANDB_RUN_ID", "WANDB_RESUME", "WANDB_MODE"})


@dataclass(frozen=True)
class Code:
    """A verified local copy of a snapshot."""

    identity: str
    folder: Path
    entries: Mapping[str, ManifestEntry]


def contents(
    run_dir: Path,
    document: Mapping[str, Any],
    *,
    trees: Sequence[Code],
    packages: Mapping[str, str],
    image: Path | None,
    model: Path | None,
) -> dict[str, ArchiveMember]:
    """Returns the members of the archive, by path.

    Args:
        run_dir: of the pulled run.
        document: its run.json.
        trees: the snapshots of its working tree and, if it uses that, of the trainer package it ran with.
        packages: the image's packages, versions by name; empty when unknown.
        image: the image file, to include it.
        model: the chosen model, a file or a checkpoint in the run directory.
    """
    members: dict[str, ArchiveMember] = {}
    for path in sorted(run_dir.rglob("*")):
        name = path.relative_to(run_dir).as_posix()
        if stat.S_ISREG(path.lstat().st_mode) and not _LEFT_OUT.fullmatch(name):
            members[f"run/{name}"] = of_file(path)
    if model is not None and model.is_dir():
        for path in model.iterdir():  # every file: the trainer checks a checkpoint against its manifest
            members[f"run/{path.relative_to(run_dir).as_posix()}"] = of_file(path)
    snapshots = dict(zip(TREES, trees, strict=False))
    for place, snapshot in snapshots.items():
        members[f"{place}/manifest.gz"] = of_file(snapshot.folder / "manifest.gz")
        for name, entry in snapshot.entries.items():
            path = snapshot.folder / name
            if entry.kind == "link":
                members[f"{place}/{name}"] = ArchiveMember(link=str(path.readlink()))
            else:
                members[f"{place}/{name}"] = of_file(path, executable=entry.kind == "exec")
    facts = document.get("image")
    if image is not None and facts:
        members[f"image/sha256-{facts['digest']}.sif"] = of_file(image)
    listed = "".join(f"{name}=={version}\n" for name, version in sorted(packages.items()))
    if listed:
        members["packages.txt"] = ArchiveMember(content=listed.encode())
    about = {
        "schema": SCHEMA,
        "clusterkit": __version__,
        "run_id": str(document.get("run_id", run_dir.name)),
        **{place: snapshots[place].identity if place in snapshots else None for place in TREES},
        "image": {**facts, "included": image is not None} if facts else None,
        "model": None if model is None else f"run/{model.relative_to(run_dir).as_posix()}",
        "packages": bool(listed),
    }
    members[FACTS] = ArchiveMember(content=(json.dumps(about, indent=2) + "\n").encode())
    text = readme(document, newest_request(run_dir), about)
    members["README.txt"] = ArchiveMember(content=text.encode("utf-8", "backslashreplace"))
    return members


def _here(text: str, run_dir: str) -> str:
    """Returns a quoted shell word in which the archive's folder `out` replaces the run directory."""
    if not run_dir or run_dir not in text:
        return shlex.quote(text)
    return '"$here/out"'.join(part and shlex.quote(part) for part in text.split(run_dir))


def readme(document: Mapping[str, Any], request: Submission, about: Mapping[str, Any]) -> str:
    """Instructions for using the archive, with and without clusterkit.

    Args:
        document: run.json.
        request: the newest submission, whose arguments produced the results.
        about: export.json.
    """
    snapshot = document.get("snapshot") or {}
    variables = request.env or document.get("env") or {}
    there = str(variables.get("WANDB_DIR") or "")  # the run directory
    argv = " ".join(_here(str(word), there) for word in request.argv or document.get("argv") or [])
    env = " ".join(
        f"{name}={_here(str(value), there)}" for name, value in variables.items() if name not in _PLACES
    )
    commit = f"git commit {snapshot['git_commit']}" if snapshot.get("git_commit") else "no git"
    changes = ", with uncommitted changes (run.json has the diff, code/ every file)"
    return (
        templates()
        .get_template("export-readme.txt.j2")
        .render(
            run_id=about["run_id"],
            commit=commit + (changes if snapshot.get("dirty") else ""),
            trainer=about["trainer"],
            packages=about["packages"],
            image=about["image"],
            registry=(document.get("versions") or {}).get("image"),
            env=env,
            argv=argv,
            start=f"{BUILDER.name} exec {BUILDER.gpu_options['nvidia']}",
        )
    )
