"""Causes: the container did not start, or the image is wrong."""

from __future__ import annotations

import re

from clusterkit.backends.causes import Cause, Finding, Line, Sure, Text
from clusterkit.diagnosis.evidence import Evidence
from clusterkit.diagnosis.rules.commands import deploy, logs, settings, submit
from clusterkit.diagnosis.rules.said import exited, refused
from clusterkit.runtimes import all_runtimes

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
IMAGE_ARCHITECTURE = Cause(
    "image-architecture",
    "the image is for another architecture than the node's",
    "`clusterkit build --cluster NAME --partition NAME` builds one; then submit again",
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
    ", or ".join(dict.fromkeys(runtime.install for runtime in all_runtimes() if runtime.install))
    + "; then submit again",
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


def image_missing(evidence: Evidence) -> Finding | None:
    """job.sh found no image."""
    line = _line(evidence, IMAGE_MISSING, r"the image .* does not exist")
    return IMAGE_MISSING.found(line, _image(evidence), command=deploy(evidence)) if line else None


def image_damaged(evidence: Evidence) -> Finding | None:
    """The size or digest differs, or the file system cannot be read."""
    line = _line(evidence, IMAGE_DAMAGED, r"the image .* has (\d+ bytes, not|the SHA-256)")
    if line is None and _unlaunched(evidence):
        # A program that starts may meet a disk that fails; here it is the image.
        line = evidence.line(_UNREADABLE, "log", "stderr")
    if line is None:
        return None
    return IMAGE_DAMAGED.found(line, _image(evidence), command=deploy(evidence, "--verify-image"))


def image_architecture(evidence: Evidence) -> Finding | None:
    """job.sh compared the two, or the runtime did, or the kernel refused the image's programs."""
    ours = (r"the image .* is for .*, and \S+ is ", r"[Ee]xec format error")
    line = _line(evidence, IMAGE_ARCHITECTURE, *ours)
    if line is None:
        return None
    queues = evidence.backend.asked(evidence.record.request.options).queues
    there = f" --partition {queues[0]}" if queues else ""
    command = f"clusterkit build --cluster {evidence.subject.cluster}{there}"
    return IMAGE_ARCHITECTURE.found(line, _image(evidence), command=command)


def image_changed(evidence: Evidence) -> Finding | None:
    """run.json and the script disagree."""
    line = _line(evidence, IMAGE_CHANGED, r"run.json records the image|is not the recorded one")
    return IMAGE_CHANGED.found(line, command=submit(evidence)) if line else None


def bind_missing(evidence: Evidence) -> Finding | None:
    """A mount's source is missing."""
    line = _line(evidence, BIND_MISSING)
    if line is None:
        return None
    match = re.search(_says(BIND_MISSING.slug), line.text)
    source = next(filter(None, match.groups()), "") if match else ""
    bind = evidence.line(re.escape(source), "script") if source else None
    return BIND_MISSING.found(
        line,
        Line("job.sh", bind.text) if bind else None,
        detail=f"{source} on {evidence.state.node}" if source else "",
        command=settings(evidence),
    )


def runtime_missing(evidence: Evidence) -> Finding | None:
    """There is no such program, or plugin."""
    line = _line(evidence, RUNTIME_MISSING)
    return RUNTIME_MISSING.found(line, exited(evidence), command=settings(evidence)) if line else None


def image_without_python(evidence: Evidence) -> Finding | None:
    """The runtime found nothing to execute."""
    if not _unlaunched(evidence) or evidence.line(_UNREADABLE, "log", "stderr"):
        return None
    line = evidence.line(_says(IMAGE_WITHOUT_PYTHON.slug), "log", "stderr")
    if line is None:
        return None
    return IMAGE_WITHOUT_PYTHON.found(line, exited(evidence), command="clusterkit build", sure=Sure.LIKELY)


def container_failed(evidence: Evidence) -> Finding | None:
    """Any other refusal of the runtime."""
    if evidence.exit.get("why") != "container":
        return None
    fatal = evidence.line(_says(CONTAINER_FAILED.slug), "log", "stderr")
    message = (
        re.sub(f"^({_says('speaker', '[^:]*:')})", "", fatal.text).strip() if fatal else refused(evidence)
    )
    return CONTAINER_FAILED.found(
        fatal or Line("exit.json", refused(evidence) or "the container did not start"),
        *(() if fatal else evidence.texts.get("log", Text("log")).tail(3)),
        detail=message,
        command=logs(evidence),
        sure=Sure.GENERAL,
    )


RULES = (
    image_missing,
    image_architecture,
    image_damaged,
    image_changed,
    bind_missing,
    runtime_missing,
    image_without_python,
    container_failed,
)


def _says(name: str, *ours: str) -> str:
    """The pattern of what any runtime says about a cause, and of our own words."""
    theirs = (runtime.says[name] for runtime in all_runtimes() if name in runtime.says)
    return "|".join(dict.fromkeys((*theirs, *ours)))


def _line(evidence: Evidence, cause: Cause, *ours: str) -> Line | None:
    """The line of job.sh or the runtime about a container that did not run."""
    if evidence.exit.get("why") != "container":
        return None
    words = _says(cause.slug, *ours)
    if re.search(words, refused(evidence)):
        started = evidence.record.started
        return Line(f"attempts/{started.number}/exit.json" if started else "exit.json", refused(evidence))
    return evidence.line(words, "log", "stderr")


def _unlaunched(evidence: Evidence) -> bool:
    return evidence.exit.get("why") == "container"


def _image(evidence: Evidence) -> Line | None:
    tail = evidence.texts.get("image", Text("")).tail(1)
    return Line("ls, on the login node", tail[0].text) if tail else None
