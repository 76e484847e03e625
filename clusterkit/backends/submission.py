"""Submits runs exactly once and reports the outcome. Pure: a shell fragment and its parser.

The folder `submissions/<n>/` in the run directory keeps each submission:

    request.json   the request
    asked          when the scheduler was asked; never repeated
    answer, error, status   output and exit status of the submit command
    over           the array, chain or packed run must not continue

`submissions/first` is a symbolic link to the id of the job that took the run, of several. A submission
appears whole, by rename from `<root>/.new-<name>/`. The first process to get there creates the file `asked`
just before it asks the scheduler, so no retry asks twice. The job's name contains the run id, so that a job
whose answer was lost can be found. Once the fragment runs on the cluster, nothing depends on the laptop.
"""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from clusterkit.backends.base import Backend
from clusterkit.backends.jobs import DOUBTFUL, PATIENCE_SECONDS, Found, JobState, refusal
from clusterkit.errors import RunError
from clusterkit.probes import MARK, Probe
from clusterkit.untrusted import Shape, ordinal, shape_of, values_of

SCHEMA = 1
DEFERRED = "the queue takes no more jobs of yours: a job of the group submits it when one ends"
GONE = "was removed in the meantime"
_GIVEN_UP = ".given-up"
"""Folder in the work root with a file for each submission whose command died before finishing it."""
_DOUBTFUL = re.compile(DOUBTFUL, re.IGNORECASE)
_SILENT = re.compile(r"unable to contact", re.IGNORECASE)

# $1: work root. $2: unique name of the staging folder. $3: `new` or `more`. $4: owner's folder in the root.
# $5: number. $6: what the runs need, one path a line: touched before the run can be seen and looked for
# afterwards, because `storage prune` may be at work. Then the submit command. Standard input is a tar archive
# of the files, by paths in the root. A new run or submission appears atomically, renamed out of the staging
# folder and already marked as asked; after `give_up` has moved that folder away, it cannot appear. `give_up`
# first writes a marker, so a fragment that makes its staging folder and finds no marker made it before
# `give_up` moves it.
_HAND_OVER = rf"""
umask 077
trap '' HUP
trap : PIPE
root=$1 stage=$1/.new-$2 token=$2 mode=$3 owner=$4 number=$5 needs=$6 shown=
shift 6
nl='
'
each() {{ # calls a command with each line of $1, until it fails
  lines=$1 ifs=$IFS
  shift
  set -f
  IFS=$nl
  for path in $lines; do
    IFS=$ifs
    "$@" "$path" || return
  done
  IFS=$ifs
  set +f
}}
touched() {{ touch -c "$1" 2>/dev/null || :; }}
fail() {{ rm -rf "$stage"; test -z "$1" || echo "$1" >&2; echo "{MARK} not asked"; exit 1; }}
LC_ALL=C mkdir -p "$stage" || fail
test ! -e "$root/{_GIVEN_UP}/$token" || fail "another command has given up this submission"
LC_ALL=C tar -xof - -C "$stage" || fail
find "$stage" -type f -exec sync {{}} + 2>/dev/null
LC_ALL=C date +%s >"$stage/$owner/submissions/$number/asked" || fail
each "$needs" touched
if test "$mode" = new; then
  for folder in "$stage"/*/*; do
    test -d "$folder" || continue
    name=${{folder#"$stage/"}}
    test ! -e "$root/$name" || fail "$root/$name is there already"
    LC_ALL=C mkdir -p "$root/${{name%/*}}" && LC_ALL=C mv "$folder" "$root/$name" || fail
    shown=$shown$root/$name$nl
  done
else
  cd "$root/$owner" || fail "the run directory $root/$owner is gone"
  for folder in "$stage/secrets"/*; do
    test ! -d "$folder" || {{ LC_ALL=C mkdir -p "$root/secrets" && mv "$folder" "$root/secrets/"; }} || fail
  done
  LC_ALL=C mkdir -p submissions && mv -f "$stage/$owner/job.sh" "$stage/$owner/submissions/$number/" || fail
  # A folder with something in it is not replaced, whoever is quicker.
  said=$(LC_ALL=C mv "$stage/$owner/submissions/$number" submissions/ 2>&1 </dev/null) || {{
    test ! -e "submissions/$number/asked" || fail "this run is being submitted already"
    fail "$said"
  }}
  mv -f "submissions/$number/job.sh" job.sh || fail
  shown=$root/$owner/submissions/$number
fi
rm -rf "$stage"
each "$needs" test -e || {{ gone=$path; each "$shown" rm -rf; fail "$gone {GONE}"; }}
cd "$root/$owner/submissions/$number" || fail
"$@" >answer 2>error </dev/null
status=$?
echo "$status" >.status && mv -f .status status
if test "$mode$status" = new0 && test -f "$root/$owner/others.sh"; then
  bash -p "$root/$owner/others.sh" </dev/null >/dev/null 2>&1
fi
echo "{MARK} $status"
cat answer
cat error >&2
"""

_GIVE_UP = rf"""(
umask 077
root=@root@ token=@token@
word=$root/{_GIVEN_UP}/$token
mkdir -p "$root/{_GIVEN_UP}" && : >"$word" || exit
mv "$root/.new-$token" "$word.d"
test -e "$root/.new-$token" || echo "{MARK} given up"
rm -rf "$word.d"
find "$root/{_GIVEN_UP}" ! -name {_GIVEN_UP} -prune -mtime +1 -exec rm -rf {{}} +
) 2>/dev/null
"""


@dataclass(frozen=True)
class Submission:
    """One submission of a run: request.json, which says how it was handed over, and what came of it.

    None for a value of run.json that it does not replace.
    """

    number: int
    """0 is a run's first."""
    kind: str = "first"
    """`first` or `resume`; jobs themselves write `chain` and `retry`."""
    created: str = ""
    """UTC, ISO 8601."""
    options: tuple[str, ...] = ()
    """The options given to the scheduler."""
    argv: tuple[str, ...] | None = None
    """Replaces run.json's argv for the attempts of this submission, as `env` does its env."""
    env: Mapping[str, str] | None = None
    task: int | None = None
    """Index in the job array, if any."""
    until_done: str | None = None
    """How the run continues past its time limit; None if it does not."""
    workdir: str | None = None
    """Replaces run.json's, as `python_path` does, for a run that moved to another cluster."""
    python_path: tuple[str, ...] | None = None
    part: int = 0
    """Number of the submission within the run's group."""
    pack: int = 1
    """Number of runs that share the job."""
    in_one: int = 1
    """Number of runs that one process trains."""
    command: tuple[str, ...] | None = None
    """The arguments of `submit` that reproduce the run; None if none do."""
    verify_image: bool = False
    """Whether the job checks its image's digest before starting the container."""
    fed: bool = False
    """Whether jobs of its group submit it when the queue has room."""
    alternatives: int = 0
    """Number of jobs, submissions 0 onwards, of which the first to start takes the run; 0 for one job."""
    gpu: str | None = None
    """The GPU type that the job asks for."""
    seal: str | None = None
    """The key of the run's secrets, in hexadecimal; None if it has none."""
    retry: str | None = None
    """Why a job tried again."""
    damage: str = ""
    """The file and its values that could not be read; "" if all could."""
    asked: float | None = None
    """Time at which the scheduler was asked, Unix seconds of the cluster's clock; None if not yet."""
    status: int | None = None
    """Exit status of the submit command; None while it runs or if it was killed."""
    answer: str = ""
    error: str = ""

    @classmethod
    def recorded(cls, number: int, request: Mapping[str, Any] | None, **came: Any) -> Submission:
        """Returns a submission with the values of a request.json that have the right type."""
        return cls(**{**values_of(request or {}, REQUEST), **came, "number": number})

    def to_json(self) -> bytes:
        """Returns request.json."""
        values = asdict(self)
        return json_file(SCHEMA, {name: values[name] for name in REQUEST if name != "retry"})

    def whole(self, where: str) -> Submission:
        """Returns the submission.

        Raises:
            RunError: values of its request.json could not be read; `where` is the run directory.
        """
        if self.damage:
            raise RunError(
                f"{where}: {self.damage} cannot be read",
                hint="copy the file from another copy of the run, if there is one; "
                "`clusterkit submit` starts a new run",
            )
        return self

    def job_id(self, backend: Backend) -> str | None:
        """Returns the job id, or the task's id for a member of an array; None without an answer."""
        return backend.accepted(self.answer, self.task) if self.status == 0 else None

    @property
    def unheard(self) -> bool:
        """Whether the submit command could not reach the scheduler; a query would fail likewise."""
        return self.refusal is not None and _SILENT.search(self.refusal) is not None

    @property
    def doubtful(self) -> bool:
        """Whether the scheduler may have the job although the submit command failed."""
        return self.refusal is not None and _DOUBTFUL.search(self.refusal) is not None

    @property
    def refusal(self) -> str | None:
        """The scheduler's refusal on one line; None if it did not refuse."""
        return None if self.status in (None, 0) else refusal(self.error)


_CAME = ("damage", "asked", "status", "answer", "error")
REQUEST: Shape = {name: kind for name, kind in shape_of(Submission).items() if name not in _CAME}
"""The structure of request.json (docs/run-directory.md)."""


def json_file(schema: int, values: Mapping[str, Any]) -> bytes:
    """Returns a JSON file of a run directory: UTF-8, indented, with unsorted keys and a final newline."""
    text = json.dumps({"schema": schema, **values}, indent=2, ensure_ascii=False)
    return f"{text}\n".encode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class SubmissionOutcome:
    """A submission's outcome: PENDING with a job id, still SUBMITTING, or NOT_SUBMITTED."""

    state: JobState
    job_id: str | None = None
    why: str | None = None


def bundle(files: Mapping[str, bytes | str]) -> bytes:
    """Returns a tar archive of small files, by path in the work root.

    A str is the target of a symbolic link; a path that ends in a slash is a folder. All files are private,
    and scripts (`*.sh`) are executable.
    """
    import tarfile  # not for those who only look at submissions

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.mode = 0o700 if path.endswith(".sh") else 0o600
            if path.endswith("/"):
                entry.type, entry.mode = tarfile.DIRTYPE, 0o700
                archive.addfile(entry)
            elif isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                archive.addfile(entry)
            else:
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def hand_over_argv(
    root: str,
    token: str,
    owner: str,
    number: int,
    submit: Sequence[str],
    *,
    new: bool,
    needs: Sequence[str] = (),
) -> list[str]:
    """Returns the argv that writes a `bundle` from standard input and asks the scheduler once.

    Args:
        root: the work root.
        token: unique name of the staging folder.
        owner: the submission owner's folder in the root: `runs/<run id>`, `groups/<group>` or another.
        number: the submission's number.
        submit: the scheduler's submit command.
        new: whether the owner's folder is new and appears atomically; otherwise only request.json and job.sh
            are replaced.
        needs: absolute paths of the image and the snapshots; without one of them the scheduler is not asked.
    """
    mode = "new" if new else "more"
    return ["sh", "-c", _HAND_OVER, "sh", root, token, mode, owner, str(number), "\n".join(needs), *submit]


def give_up(root: str, token: str) -> Probe[bool]:
    """Returns a probe that keeps a hand-over from asking the scheduler; True if it has not yet asked."""
    script = _GIVE_UP.replace("@root@", shlex.quote(root)).replace("@token@", shlex.quote(token))
    return Probe(f"give up {token}", script, lambda text: f"{MARK} given up\n" in text)


def parse_hand_over(stdout: str, stderr: str) -> Submission | None:
    """Parses the scheduler's answer; a submission that was not `asked` changed nothing.

    Returns:
        The submission; None if the fragment was killed: whether the scheduler was asked is then unknown.
    """
    _, marked, rest = stdout.rpartition(f"{MARK} ")
    status, _, answer = rest.partition("\n")
    if not marked:
        return None
    if ordinal(status.strip()) is None:
        return Submission(0, error=stderr)
    return Submission(0, asked=0.0, status=int(status), answer=answer, error=stderr)


def job_name(owner: str, number: int) -> str:
    """Returns the unique job name of a submission.

    >>> job_name("a40-2m-20260102-030405-k3f9", 2)
    'a40-2m-20260102-030405-k3f9.2'
    """
    return owner if number == 0 else f"{owner}.{number}"


def outcome(
    backend: Backend,
    submission: Submission | None,
    started: str | None,
    found: Found,
    *,
    now: float | None,
    over: bool = True,
) -> SubmissionOutcome:
    """Determines the outcome of a run's newest submission whose answer did not arrive.

    Args:
        backend: the cluster's backend.
        submission: the submission as recorded in the run directory; None if nothing was recorded.
        started: job id of an attempt by this submission's job, if any.
        found: jobs with the submission's job name.
        now: Unix seconds of the cluster's clock.
        over: whether no fragment on the cluster can still ask the scheduler.
    """
    job_id = (submission.job_id(backend) if submission else None) or started
    if job_id is None and found.ids:
        newest = max(found.ids, key=_ordinal)
        task = submission.task if submission else None
        job_id = newest if task is None else backend.task_id(newest, task)
    if job_id is not None:
        return SubmissionOutcome(JobState.PENDING, job_id)
    if submission is not None and submission.fed and submission.refusal is None:
        return SubmissionOutcome(JobState.DEFERRED, why=DEFERRED)
    if submission is None or submission.asked is None:
        if not over:
            return SubmissionOutcome(JobState.SUBMITTING, why="it was interrupted, and cannot be withdrawn")
        return SubmissionOutcome(
            JobState.NOT_SUBMITTED, why="it was interrupted before anything was submitted"
        )
    if submission.refusal is not None and (found.certain or not submission.doubtful):
        return SubmissionOutcome(
            JobState.NOT_SUBMITTED, why=f"the scheduler refused it: {submission.refusal}"
        )
    if not found.certain:
        return SubmissionOutcome(JobState.SUBMITTING, why=unclear(submission))
    if now is not None and now - submission.asked < PATIENCE_SECONDS:
        return SubmissionOutcome(JobState.SUBMITTING, why="it was submitted a moment ago")
    return SubmissionOutcome(JobState.NOT_SUBMITTED, why="the scheduler has no job of this name")


def unclear(submission: Submission) -> str:
    """Returns the message for an unknown outcome while the scheduler does not answer."""
    said = f"; it had said: {submission.refusal}" if submission.refusal is not None else ""
    return f"the scheduler does not answer whether it has the job{said}"


def _ordinal(job_id: str) -> tuple[int, str]:
    number = re.match(r"[0-9]{1,18}", job_id)
    return (int(number[0]) if number else 0, job_id)
