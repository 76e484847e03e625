"""Causes: the container did not start, or the image is wrong."""

from __future__ import annotations

import re

from clusterkit.backends import pyxis
from clusterkit.backends.causes import Cause, Finding, Line, Sure, Text
from clusterkit.diagnosis.evidence import Evidence
from clusterkit.diagnosis.rules.commands import deploy, logs, settings, submit
from clusterkit.diagnosis.rules.said import exited, refused

IMAGE_MISSING = Cause(
    "image-missing",
    "the image is not where it should be",
    "`clusterkit deploy` brings it back; then `resume`",
)
IMAGE_DAMAGED = Cause(
    "image-damaged",
    "the image on the cluster is damaged",
    "`clusterkit deploy --verify-image` repairs it; then `resume`",
)
IMAGE_CHANGED = Cause(
    "image-changed",
    "the image is not the one the run was submitted with",
    "submit the run again",
)
BIND_MISSING = Cause(
    "bind-missing",
    "a folder to be mounted in the container does not exist on the node",
    "correct the cluster's `binds`, or create the folder; then submit again",
)
RUNTIME_MISSING = Cause(
    "runtime-missing",
    "the node lacks the cluster's container runtime",
    'load Apptainer in the cluster\'s `prelude`, e.g. "module load apptainer", or ask the site for Pyxis; '
    "then submit again",
)
IMAGE_WITHOUT_PYTHON = Cause(
    "image-without-python",
    "the image has no Python to start the program with",
    "build an image with Python, or set the cluster's `python` to its path",
)
CONTAINER_FAILED = Cause(
    "container-failed",
    "the container did not start",
    "the last line of the runtime's output says why; the administrators can help with the runtime of "
    "their nodes",
)

_UNREADABLE = r"(?i)input/output error"
"""The kernel's error for a damaged compressed file system."""

_SPEAKER = re.compile(r"^(.*pyxis: *(\[ERROR\])?|[^:]*:)")


def image_missing(evidence: Evidence) -> Finding | None:
    """job.sh found no image."""
    words = r"the image .* does not exist|could not open image .*no such file"
    line = _line(evidence, words)
    if line is None:
        return None
    return IMAGE_MISSING.found(line, _image(evidence), command=deploy(evidence))


def image_damaged(evidence: Evidence) -> Finding | None:
    """The size or digest differs, or the file system cannot be read."""
    words = (
        r"the image .* has \d+ bytes, not|the image .* has the SHA-256|image format not recognized"
        r"|could not open image .*(EOF|descriptors|invalid)"
        r"|[Ff]ailed to mount.*squashfs|[Ss]quashfs.*(error|corrupt)"
        r"|pyxis: .*Invalid image format"
    )
    line = _line(evidence, words)
    if line is None and _unlaunched(evidence):
        # A program that starts may meet a disk that fails; here it is the image.
        line = evidence.line(_UNREADABLE, "log", "stderr")
    if line is None:
        return None
    return IMAGE_DAMAGED.found(line, _image(evidence), command=deploy(evidence, "--verify-image"))


def image_changed(evidence: Evidence) -> Finding | None:
    """run.json and the script disagree."""
    line = _line(evidence, r"run.json records the image|is not the recorded one")
    if line is None:
        return None
    return IMAGE_CHANGED.found(line, command=submit(evidence))


def bind_missing(evidence: Evidence) -> Finding | None:
    """A mount's source is missing."""
    line = _line(
        evidence,
        r"mount source .* doesn't exist|unable to add .* to mount list.*no such file"
        r"|source path does not exist: |enroot-mount: failed to mount: .*No such file",
    )
    if line is None:
        return None
    match = re.search(r"mount source (\S+) doesn't|(?:does not exist|failed to mount): (\S+)", line.text)
    source = match[1] or match[2] if match else ""
    bind = evidence.line(re.escape(source), "script") if source else None
    return BIND_MISSING.found(
        line,
        Line("job.sh", bind.text) if bind else None,
        detail=f"{source} on {evidence.state.node}" if source else "",
        command=settings(evidence),
    )


def runtime_missing(evidence: Evidence) -> Finding | None:
    """There is no Apptainer, or no Pyxis."""
    line = _line(evidence, rf"is not on PATH on .*: add what provides it|srun on .* {pyxis.ABSENT}")
    if line is None:
        return None
    return RUNTIME_MISSING.found(line, exited(evidence), command=settings(evidence))


def image_without_python(evidence: Evidence) -> Finding | None:
    """The runtime found nothing to execute."""
    if not _unlaunched(evidence) or evidence.line(_UNREADABLE, "log", "stderr"):
        return None
    words = r'"?[\w./-]*python[\w.]*"?: executable file not found|stat .*python[\w.]*: no such file'
    line = evidence.line(words, "log", "stderr")
    if line is None:
        return None
    return IMAGE_WITHOUT_PYTHON.found(line, exited(evidence), command="clusterkit build", sure=Sure.LIKELY)


def container_failed(evidence: Evidence) -> Finding | None:
    """Any other refusal of the runtime."""
    if evidence.exit.get("why") != "container":
        return None
    fatal = evidence.line(r"^FATAL:|ERROR\s*:|error: pyxis: ", "log", "stderr")
    return CONTAINER_FAILED.found(
        fatal or Line("exit.json", refused(evidence) or "the container did not start"),
        *(() if fatal else evidence.texts.get("log", Text("log")).tail(3)),
        detail=_SPEAKER.sub("", fatal.text).strip() if fatal else refused(evidence),
        command=logs(evidence),
        sure=Sure.GENERAL,
    )


RULES = (
    image_missing,
    image_damaged,
    image_changed,
    bind_missing,
    runtime_missing,
    image_without_python,
    container_failed,
)


def _line(evidence: Evidence, words: str) -> Line | None:
    """The line of job.sh or the runtime about a container that did not run."""
    if evidence.exit.get("why") != "container":
        return None
    if re.search(words, refused(evidence)):
        started = evidence.record.started
        return Line(f"attempts/{started.number}/exit.json" if started else "exit.json", refused(evidence))
    return evidence.line(words, "log", "stderr")


def _unlaunched(evidence: Evidence) -> bool:
    return evidence.exit.get("why") == "container"


def _image(evidence: Evidence) -> Line | None:
    tail = evidence.texts.get("image", Text("")).tail(1)
    return Line("ls, on the login node", tail[0].text) if tail else None
