"""Causes: errors of the program itself."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace

from clusterkit.backends.causes import Cause, Finding, Line, Sure
from clusterkit.backends.jobs import JobState
from clusterkit.backends.story import Topic
from clusterkit.diagnosis.arguments import OWN_PROGRAM, without_fault
from clusterkit.diagnosis.evidence import Evidence
from clusterkit.diagnosis.rules.commands import logs, preview, resume, words
from clusterkit.diagnosis.rules.said import by_message, exited, last_words, said

WRONG_ARGUMENT = Cause(
    "wrong-argument",
    "the program refused its arguments",
    "correct the arguments after `--` or the profile; `submit --dry-run` shows the exact command line",
)
DIVERGED = Cause(
    "diverged",
    "training diverged: a loss or gradient was not finite",
    "try a lower learning rate, clipped gradients or another seed; earlier checkpoints are usable",
    of_recipe="`max_grad_norm` clips them",
)
HANGS = Cause(
    "hangs",
    "it is running but its heartbeat has stopped: it may hang",
    "look at its processes; smaller buffers or fewer workers often cure a deadlock of workers",
)
CHECKPOINT_UNUSABLE = Cause(
    "checkpoint-unusable",
    "its checkpoint cannot be used",
    "resume with the values it was made with or, if it is damaged, from an older one; or start a new run",
)
WORKER_DIED = Cause(
    "worker-died",
    "one of its environment processes died or hangs",
    "`resume` continues from the checkpoint; SIGKILL means too little `memory`",
)
LEADER_GONE = Cause(
    "leader-gone",
    "the process that trained it together with other runs failed or was killed",
    "`why` shows that run's cause; `resume` continues from the checkpoint, in a process of its own",
)
ENDED_TOO_SOON = Cause(
    "ended-too-soon",
    "the trainer's process ended with exit code 0 before it was done",
    "look for `os._exit` in the environment's code and libraries; `resume` continues from the checkpoint",
)
KILLED_BY_SIGNAL = Cause(
    "killed-by-signal",
    "a signal ended the program",
    "SEGV, BUS, ILL and ABRT come from native code: run a short job with `PYTHONFAULTHANDLER=1` in `env`",
)
INTERRUPTED = Cause(
    "interrupted",
    "something interrupted the program with a signal",
    "find what sent it; `resume` continues from the checkpoint",
)
PROGRAM_FAILED = Cause(
    "program-failed",
    "the program ended with an error",
    "read the last lines of its log; `--cluster local` runs the same program on this machine",
)

_SENT = frozenset(("HUP", "INT", "QUIT", "TERM", "USR1", "USR2"))
"""Signals that a process sends to another."""
_CRASHES = frozenset(("SEGV", "BUS", "ILL", "ABRT", "FPE", "TRAP", "SYS"))
_ERROR = re.compile(
    r"^(?:[\w.]+(?:Error|Exception|Warning|Interrupt|Exit|Fault)\b.*|trainer: .*|error: .*|\S+: error: .*)"
)


def wrong_argument(evidence: Evidence) -> Finding | None:
    """argparse, click, hydra and the bundled trainer: exit code 2 and a message about arguments."""
    pattern = (
        r"unrecognized arguments|the following arguments are required|invalid choice"
        r"|expected (one|at least one) argument"
        r"|No such option|Missing option|Unrecognized options"
        r"|Flags parsing error|Could not override|argument --?\S+:|batch_size must divide"
    )
    line = evidence.line(pattern)
    cure, command = _mended(evidence, line.text if line else "")
    found = said(evidence, WRONG_ARGUMENT, pattern, also=(exited(evidence),), cure=cure, command=command)
    if found or evidence.exit.get("code") != 2 or not evidence.ended_badly:
        return found
    last = evidence.line(r"^trainer: |[Ee]rror: |[Uu]sage: ", "log", "stderr")
    if last is None:
        return None
    cure, command = _mended(evidence, last.text)
    return WRONG_ARGUMENT.found(last, exited(evidence), cure=cure, command=command, sure=Sure.LIKELY)


def leader_gone(evidence: Evidence) -> Finding | None:
    """The bundled trainer's message for a run that followed another of its pack."""
    pattern = r"the process that trained this run, that of (\S+), (is gone|has failed)"
    found = last_words(evidence, pattern)
    if found is None:
        return None
    line, sure = found
    leader = re.search(pattern, line.text)
    command = f"clusterkit why {leader[1]}" if leader else resume(evidence)
    return LEADER_GONE.found(line, exited(evidence), command=command, sure=sure)


def hangs(evidence: Evidence) -> Finding | None:
    """The heartbeat has stopped."""
    if not evidence.state.stale:
        return None
    beat = evidence.record.heartbeat or {}
    return HANGS.found(
        Line("heartbeat.json", f"step {beat.get('step', '?')}, phase {beat.get('phase', '?')}"),
        *evidence.program_log.tail(2),
        detail=(evidence.state.why or "").partition(":")[0],
        command=f"clusterkit top {evidence.subject.run_id}",
    )


def killed_by_signal(evidence: Evidence) -> Finding | None:
    """A signal that neither the scheduler nor a lack of memory explains."""
    name = evidence.exit.get("signal")
    failed = evidence.state.state is JobState.FAILED
    if not failed or evidence.exit.get("why") != "signalled" or name == "KILL":
        return None
    if name in _SENT:
        caught = evidence.line(rf"^\[clusterkit\] caught SIG{name}")
        cure = (
            "the whole job had the signal, as from `scancel --signal`"
            if caught
            else "the program's processes had the signal, not the job: it came from the program itself, from "
            "its launcher (torchrun, mpirun) after another process failed, or from `kill` on the node"
        )
        return INTERRUPTED.found(
            exited(evidence),
            caught or evidence.line(r"^KeyboardInterrupt\b"),
            *evidence.story.quote(Topic.EXIT),
            detail=f"SIG{name}",
            command=logs(evidence),
            cure=f"{cure}; `resume` continues from the checkpoint",
            sure=Sure.SEEN,
        )
    return KILLED_BY_SIGNAL.found(
        exited(evidence),
        evidence.line(r"Segmentation fault|core dumped|Fatal Python error|Bus error|Aborted"),
        *evidence.story.quote(Topic.EXIT),
        detail=f"SIG{name}",
        command=logs(evidence),
        cure="" if name in _CRASHES else "read the last lines of its log",
        sure=Sure.SEEN,
    )


def program_failed(evidence: Evidence) -> Finding | None:
    """An exit code without another explanation, with the last line that looks like an error."""
    code = evidence.exit.get("code")
    if not evidence.ended_badly or evidence.exit.get("why") != "failed":
        return None
    spoken = evidence.program_log.tail(80)
    at = next((at for at in reversed(range(len(spoken))) if _ERROR.match(spoken[at].text.strip())), None)
    error = None if at is None else spoken[at]
    return PROGRAM_FAILED.found(
        *(spoken[-4:] if at is None else (*_raised_at(evidence, spoken[:at]), spoken[at])),
        exited(evidence),
        detail=error.text.strip() if error else f"exit code {code}",
        command=logs(evidence),
        cure="read the last lines of its log" if evidence.on_this_machine else "",
        sure=Sure.GENERAL,
    )


def _raised_at(evidence: Evidence, lines: Sequence[Line]) -> list[Line]:
    """Returns the end of a Python traceback: the file and line, the code there and the marks below it."""
    ends = (lines[-count:] for count in (1, 2, 3))
    frame = next((end for end in ends if end and end[0].text.startswith('  File "')), ())
    copy = f"{evidence.subject.run_dir}/work/"
    return [replace(line, text=line.text.replace(copy, "")) for line in frame]


def _mended(evidence: Evidence, text: str) -> tuple[str, str]:
    """The argument to change and the command for it; a dry run if the user must decide."""
    known = words(evidence)
    if known is None:
        return "", preview(evidence)
    log = "\n".join(line.text for line in evidence.program_log.tail(40))
    usage = re.findall(r"--[a-zA-Z][\w-]*", log.partition("usage:")[2].partition("error:")[0])
    program = "the profile" if evidence.subject.recipe else OWN_PROGRAM
    cure, changed = without_fault(known, text, usage, program)
    if changed is None:
        return cure, preview(evidence)
    return cure, shlex.join(["clusterkit", "submit", *changed])


def _step(evidence: Evidence) -> list[Line]:
    step = (evidence.record.heartbeat or {}).get("step")
    return [Line("heartbeat.json", f"step {step}")] if step is not None else []


RULES = (
    by_message(
        DIVERGED,
        r"had a loss or gradient that is not finite|(?i:loss is nan|nan loss|found nan)"
        r"|(?i:(?:loss|logits?|gradients?|actions?|weights?|parameters?) contains? nan)"
        r"|Function '\w+' returned nan values|invalid values:|FloatingPointError",
        also=_step,
        command=lambda evidence: f"clusterkit report {evidence.subject.run_id}",
    ),
    by_message(
        CHECKPOINT_UNUSABLE,
        r"trainer: (none of the checkpoints|checkpoint .*(damaged|manifest|missing|bytes)"
        r"|.* is no file of tensors"
        r"|.* was made (by|with) )|PytorchStreamReader failed|Error\(s\) in loading state_dict",
        command=lambda evidence: evidence.subject.here(f"ls -l {evidence.subject.run_dir}/checkpoints"),
    ),
    by_message(
        WORKER_DIED,
        r"(the environment worker|an environment) of .*(died|not answered|failed)|the evaluator \(pid"
        r"|BrokenPipeError.*worker",
        also=lambda evidence: evidence.story.quote(Topic.MEMORY),
        command=resume,
    ),
    leader_gone,
    by_message(
        ENDED_TOO_SOON,
        r"^\[clusterkit\] the trainer's process ended with exit code 0 before it was done",
        also=lambda evidence: [exited(evidence)],
        command=resume,
    ),
    wrong_argument,
    hangs,
    killed_by_signal,
    program_failed,
)
