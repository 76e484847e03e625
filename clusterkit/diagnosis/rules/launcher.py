"""Causes between the scheduler and the program: job.sh, launch.py, the code, the interpreter."""

from __future__ import annotations

from clusterkit.backends.causes import Cause, Finding, Line, Sure
from clusterkit.backends.jobs import SCHEDULER_LOG
from clusterkit.diagnosis.evidence import Evidence
from clusterkit.diagnosis.rules.commands import preview, resume, settings, submit
from clusterkit.diagnosis.rules.said import by_message, exited, refused

PRELUDE_ENDED = Cause(
    "prelude-ended",
    "the cluster's prelude ended before the program was started",
    "remove `exit`, `exec` and `set -e` from the cluster's `prelude`, or correct the line that fails; "
    "then submit again",
)
PRELUDE_FAILED = Cause(
    "prelude-failed",
    "a line of the cluster's prelude failed, or hides whether one did",
    "correct it in the cluster's `prelude`; `strict_prelude = true` ends such runs before the program starts",
)
CODE_MISSING = Cause(
    "code-missing",
    "the code folder of the run is gone from the cluster",
    "submit the run again, which uploads the code",
)
PROGRAM_MISSING = Cause(
    "program-missing",
    "the program was not found where the run started",
    "correct the first word of `program`, or the first line of the script that it names; a container can only"
    " run what the image or the project contains",
)
NO_INTERPRETER = Cause(
    "no-interpreter",
    "the node has no Python to start the program with",
    "set the cluster's `python` to one that every node has, or use a container",
)
NODES_APART = Cause(
    "nodes-apart",
    "its nodes could not reach each other",
    "set the cluster's `interface` to a network that joins all nodes; `doctor` tries it between two",
)
STILL_RUNS = Cause(
    "still-runs",
    "something of another attempt still runs in its directory, whose job was killed or lost",
    "end its processes on the node that the message names, then resume the run",
)
RUN_DIR_GONE = Cause(
    "run-directory-gone",
    "the run directory is gone from the cluster",
    "submit the run again; whatever was synced before is in `results/`",
)
LAUNCHER_FAILED = Cause(
    "launcher-failed",
    "the run directory is damaged, so the program could not be started",
    "submit the run again",
)
NEVER_STARTED = Cause(
    "never-started",
    "it left the queue without starting",
    f"{SCHEDULER_LOG}, if there is one, says why; submit it again",
)


_MISSES = (
    r"ModuleNotFoundError|ImportError|cannot open shared object file|does not exist here"
    r"|did not start the launcher"
)
"""What a program says for want of what a prelude was to provide."""


def prelude_failed(evidence: Evidence) -> Finding | None:
    """job.sh noted a line that failed; the run may have gone well without it."""
    fault = str(evidence.exit.get("prelude") or "")
    if not fault:
        return None
    missed = evidence.ended_badly and evidence.line(_MISSES) is not None
    sure = Sure.CERTAIN if "strict_prelude" in refused(evidence) else Sure.LIKELY if missed else Sure.SEEN
    line = evidence.line(r"^\[clusterkit\] prelude: ", "log")
    return PRELUDE_FAILED.found(line, exited(evidence), detail=fault, command=settings(evidence), sure=sure)


def run_dir_gone(evidence: Evidence) -> Finding | None:
    """The run directory is gone."""
    if evidence.record.exists or evidence.waiting:
        return None
    return RUN_DIR_GONE.found(
        Line("ls", f"{evidence.subject.run_dir} does not exist"), command=submit(evidence), sure=Sure.LIKELY
    )


def never_started(evidence: Evidence) -> Finding | None:
    """There is no attempt, and the scheduler does not know the job or calls it failed."""
    if not evidence.ended_badly or evidence.record.started is not None or not evidence.record.exists:
        return None
    log = evidence.texts.get(SCHEDULER_LOG)
    return NEVER_STARTED.found(
        *(log.tail(3) if log else ()), exited(evidence), command=submit(evidence), sure=Sure.GENERAL
    )


RULES = (
    by_message(
        PRELUDE_ENDED,
        r"\[clusterkit\] the prelude ended its shell ",
        detail=lambda text: text.partition("the prelude ended its shell ")[2].rpartition(": ")[0],
        also=lambda evidence: [exited(evidence)],
        command=settings,
    ),
    prelude_failed,
    by_message(
        CODE_MISSING,
        r"the code folder .* does not exist|cannot enter the working directory",
        command=submit,
    ),
    by_message(
        PROGRAM_MISSING,
        r"\[clusterkit\] (the (program|interpreter of) .* does not exist here|cannot start )"
        r"|python[\w.]*: can't open file .*No such file",
        also=lambda evidence: [exited(evidence)],
        command=preview,
    ),
    by_message(
        NO_INTERPRETER,
        r"did not start the launcher: see the line above",
        also=lambda evidence: [
            evidence.line(r"not found|No such file or directory|Permission denied", "log", "stderr")
        ],
        command=settings,
    ),
    by_message(NODES_APART, r"\[clusterkit\] the nodes cannot meet: .*", command=settings),
    by_message(STILL_RUNS, r"\[clusterkit\] attempt \d+ still runs on ", command=resume),
    by_message(
        LAUNCHER_FAILED,
        r"\[clusterkit\] (cannot read .*run\.json|usage: launch\.py)|launch\.py.*No such file",
        command=submit,
    ),
    run_dir_gone,
    never_started,
)
