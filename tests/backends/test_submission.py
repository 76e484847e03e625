"""What came of a submission, and the fragment that hands runs over, run by the real shell."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from clusterkit.backends.jobs import JobState
from clusterkit.backends.slurm.backend import SlurmBackend
from clusterkit.backends.submission import (
    Found,
    Submission,
    bundle,
    give_up,
    hand_over_argv,
    outcome,
    parse_hand_over,
)
from clusterkit.probes import Answers, script
from clusterkit.transport import faults
from tests.doubles.full_disk import fill, small_disk

SLURM = SlurmBackend()
NOW = 1_000_000.0
NOBODY, UNKNOWN = Found((), certain=True), Found((), certain=False)


def asked(seconds_ago: float, *, status: int | None = None, answer: str = "", error: str = "") -> Submission:
    return Submission(0, asked=NOW - seconds_ago, status=status, answer=answer, error=error)


@pytest.mark.parametrize(
    ("submission", "started", "found", "state", "job_id"),
    [
        (asked(1, status=0, answer="12\n"), None, UNKNOWN, JobState.PENDING, "12"),
        (asked(1, status=0, answer="banner\n12;far\n"), None, UNKNOWN, JobState.PENDING, "12;far"),
        (asked(1), "13", UNKNOWN, JobState.PENDING, "13"),  # its attempt folder tells
        (asked(1), None, Found(("14",), certain=True), JobState.PENDING, "14"),
        (asked(1), None, Found(("9", "14"), certain=True), JobState.PENDING, "14"),
        (
            asked(1, status=1, error="Socket timed out"),
            None,
            Found(("15",), certain=True),
            JobState.PENDING,
            "15",
        ),
        (None, None, NOBODY, JobState.NOT_SUBMITTED, None),
        (Submission(0), None, NOBODY, JobState.NOT_SUBMITTED, None),
        (asked(1), None, NOBODY, JobState.SUBMITTING, None),  # on its way
        (asked(1000), None, NOBODY, JobState.NOT_SUBMITTED, None),
        (asked(1000), None, UNKNOWN, JobState.SUBMITTING, None),
        (asked(1, status=1, error="invalid account"), None, UNKNOWN, JobState.NOT_SUBMITTED, None),
        (asked(1, status=1, error="Socket timed out"), None, UNKNOWN, JobState.SUBMITTING, None),
        (asked(1, status=1, error="Socket timed out"), None, NOBODY, JobState.NOT_SUBMITTED, None),
        (asked(1, status=0, answer="welcome"), None, NOBODY, JobState.SUBMITTING, None),
    ],
)
def test_what_came_of_it(
    submission: Submission | None, started: str | None, found: Found, state: JobState, job_id: str | None
) -> None:
    came = outcome(SLURM, submission, started, found, now=NOW)
    assert (came.state, came.job_id) == (state, job_id)
    assert (came.why is None) == (job_id is not None)


def test_nobody_was_there_to_be_asked() -> None:
    said = ["sbatch: error: Unable to contact slurm controller", "Socket timed out", "invalid account"]
    assert [asked(1, status=1, error=error).unheard for error in said] == [True, False, False]
    assert not asked(1, status=0, answer="12", error=said[0]).unheard


def test_a_bundle_holds_files_folders_and_links_that_are_private() -> None:
    tar = bundle({"a/": "", "a/job.sh": b"x", "a/run.json": b"{}", "a/answer": "../b"})
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        held = [(one.name, one.type, one.linkname) for one in archive]
        modes = [one.mode for one in archive if not one.issym()]
    assert held == [
        ("a", tarfile.DIRTYPE, ""),
        ("a/job.sh", tarfile.REGTYPE, ""),
        ("a/run.json", tarfile.REGTYPE, ""),
        ("a/answer", tarfile.SYMTYPE, "../b"),
    ]
    assert modes == [0o700, 0o700, 0o600]


def test_a_member_of_an_array_is_one_of_its_tasks() -> None:
    member = Submission(0, task=3, asked=NOW, status=0, answer="12;far")
    assert member.job_id(SLURM) == "12_3;far"
    lost = Submission(0, task=3, asked=NOW)
    assert outcome(SLURM, lost, None, Found(("12",), certain=True), now=NOW).job_id == "12_3"


class Root:
    """A work root on this machine, and a submit command that counts how often it was asked."""

    def __init__(self, path: Path) -> None:
        self.path, self.asked = path, path / "asked"
        self._tokens = count()

    def hand_over(
        self,
        owner: str,
        number: int = 0,
        *,
        new: bool = True,
        submit: str = "echo 12",
        whole: bool = True,
        needs: Sequence[str] = (),
    ) -> subprocess.CompletedProcess[str]:
        argv, text = self.hands_over(owner, number, new=new, submit=submit, whole=whole, needs=needs)
        return subprocess.run(argv, input=text, encoding="latin-1", capture_output=True)

    def hands_over(
        self,
        owner: str,
        number: int,
        *,
        new: bool,
        submit: str = "echo 12",
        whole: bool = True,
        needs: Sequence[str] = (),
    ) -> tuple[list[str], str]:
        """A fragment and its standard input, in Latin-1."""
        files: dict[str, bytes | str] = {
            f"{owner}/job.sh": b"#!/bin/sh\n",
            f"{owner}/attempts/": "",
            f"{owner}/submissions/{number}/request.json": Submission(
                number, "first", "now", ("--time=1",)
            ).to_json(),
        }
        if new:
            files[f"{owner}/run.json"] = b"{}"
        tar = bundle(files)
        argv = ["sh", "-c", f'echo x >>"$1"; {submit}', "sh", str(self.asked)]
        token = f"token{next(self._tokens)}"
        fragment = hand_over_argv(str(self.path), token, owner, number, argv, new=new, needs=needs)
        return fragment, (tar if whole else tar[:700]).decode("latin-1")

    def gives_up(self, token: str) -> bool:
        """Whether it could be made sure that this hand-over never asks, if it has not yet."""
        probe = give_up(str(self.path), token)
        said = subprocess.run(["sh"], input=script([probe]), capture_output=True, text=True).stdout
        return Answers(said).of(probe)

    @property
    def times_asked(self) -> int:
        return len(self.asked.read_text().split()) if self.asked.exists() else 0


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def test_a_new_run_appears_whole_with_the_answer(root: Root) -> None:
    done = root.hand_over("runs/a b", submit="echo banner; echo 12; echo careful >&2")
    answer = parse_hand_over(done.stdout, done.stderr)
    assert (answer.job_id(SLURM), answer.error) == ("12", "careful\n")
    run = root.path / "runs" / "a b"
    assert run.stat().st_mode & 0o777 == 0o700
    assert [path for path in run.rglob("*") if path.stat().st_mode & 0o077] == []
    assert (run / "job.sh").stat().st_mode & 0o777 == 0o700
    assert (run / "run.json").stat().st_mode & 0o777 == 0o600
    folder = run / "submissions" / "0"
    assert json.loads((folder / "request.json").read_text())["options"] == ["--time=1"]
    assert (folder / "answer").read_text() == "banner\n12\n"
    assert (folder / "status").read_text() == "0\n"
    assert float((folder / "asked").read_text()) > 0
    assert [path.name for path in root.path.iterdir() if path.name.startswith(".")] == []


def test_what_is_needed_is_touched_and_looked_for_before_the_scheduler_is_asked(root: Root) -> None:
    image, code = root.path / "the * image.sif", root.path / "code"
    image.write_text("")
    code.mkdir(mode=0o500)
    for path in (image, code):
        os.utime(path, (0, 0))
    needs = [str(image), str(code)]
    assert root.hand_over("runs/a", needs=needs).returncode == 0
    assert min(path.stat().st_mtime for path in (image, code)) > 0
    for gone in (code, image):
        gone.rename(root.path / "away")
        for number, new in ((0, True), (1, False)):
            done = root.hand_over("runs/b" if new else "runs/a", number, new=new, needs=needs)
            assert parse_hand_over(done.stdout, done.stderr).asked is None
            assert f"{gone} was removed in the meantime" in done.stderr
        (root.path / "away").rename(gone)
    assert {path.name for path in (root.path / "runs").iterdir()} == {"a"}
    assert {path.name for path in (root.path / "runs/a/submissions").iterdir()} == {"0"}
    assert root.times_asked == 1


def test_a_request_says_all_that_was_asked_for() -> None:
    """Names as `Submission` has them; an argument may be no text."""
    asked_for = {
        "number": 2,
        "kind": "resume",
        "created": "now",
        "options": ["--time=1"],
        "argv": ["train", "\udcff"],
        "env": {"A": "b"},
        "task": 3,
        "until_done": "array",
        "workdir": "/w",
        "python_path": ["/p"],
        "part": 4,
        "pack": 5,
        "in_one": 6,
        "command": ["--seeds", "1"],
        "verify_image": True,
        "fed": True,
        "alternatives": 7,
        "gpu": "a40",
        "seal": "00ff",
    }
    written = Submission(**asked_for).to_json().decode("utf-8", "surrogateescape")  # type: ignore[arg-type]
    assert json.loads(written) == {"schema": 1, **asked_for}


def test_half_a_run_is_none_and_nobody_is_asked(root: Root) -> None:
    done = root.hand_over("runs/a", whole=False)
    assert parse_hand_over(done.stdout, done.stderr).asked is None
    assert list(root.path.glob("runs/*")) == []
    assert root.times_asked == 0


def test_a_run_that_is_there_already_is_left_alone(root: Root) -> None:
    root.hand_over("runs/a")
    done = root.hand_over("runs/a")
    assert "there already" in done.stderr
    assert root.times_asked == 1


def test_the_same_resumption_is_asked_for_once(root: Root) -> None:
    root.hand_over("runs/a")
    first = root.hand_over("runs/a", 1, new=False, submit="echo 13")
    second = root.hand_over("runs/a", 1, new=False, submit="echo 14")
    assert "13" in first.stdout
    assert "submitted already" in second.stderr
    assert root.times_asked == 2
    assert (root.path / "runs/a/submissions/1/answer").read_text() == "13\n"


def test_a_fragment_that_was_killed_says_nothing_for_certain(root: Root) -> None:
    done = root.hand_over("runs/a", submit="echo 12; kill -9 $PPID")
    assert parse_hand_over(done.stdout, done.stderr) is None
    assert (root.path / "runs/a/submissions/0/asked").exists()
    assert not (root.path / "runs/a/submissions/0/status").exists()


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.needs("a small disk")
def test_a_full_disk_is_told_in_the_tools_words(root: Root, new: bool) -> None:
    with small_disk(root.path):
        if not new:
            root.hand_over("runs/a")
        before = root.times_asked
        fill(root.path)
        done = root.hand_over("runs/a", int(not new), new=new)
        assert parse_hand_over(done.stdout, done.stderr).asked is None
        assert "No space left on device" in str(faults.telling(done.stderr))
        assert "clusterkit storage clean" in str(faults.room_hint(done.stderr))
        (root.path / "filler").unlink()
        assert root.times_asked == before
        done = root.hand_over("runs/a", int(not new), new=new, submit="echo 13")
        assert "13" in done.stdout, "what a full disk left behind is in the way"


def test_no_room_for_the_time_of_asking_is_no_submission_of_another(root: Root, tmp_path: Path) -> None:
    """The file appears, and the text does not fit any more."""
    root.hand_over("runs/a")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "date").write_text("#!/bin/sh\necho 'date: write error: No space left on device' >&2\nexit 1\n")
    (tools / "date").chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
        done = root.hand_over("runs/a", 1, new=False)
    assert faults.telling(done.stderr) == "date: write error: No space left on device"
    assert "13" in root.hand_over("runs/a", 1, new=False, submit="echo 13").stdout


WAITS = """#!/bin/sh
case "$*" in *.new-*{path}*) touch '{folder}/there'; until test -e '{folder}/on'; do sleep 0.02; done ;; esac
PATH=${{PATH#*:}}
exec {tool} "$@"
"""
"""Stands for a tool where it is given a path in the staging folder, until the file `on` appears."""


@contextmanager
def waiting(folder: Path, tool: str, path: str = "") -> Iterator[None]:
    folder.mkdir()
    (folder / tool).write_text(WAITS.format(folder=folder, tool=tool, path=path))
    (folder / tool).chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        yield


@contextmanager
def stopped_at(
    root: Root, folder: Path, tool: str, path: str, *, new: bool
) -> Iterator[Callable[[], tuple[str, str]]]:
    """A fragment that waits at a call of a tool; what is given lets it go on to its end."""
    argv, text = root.hands_over("runs/a", int(not new), new=new)
    pipe = subprocess.PIPE
    with waiting(folder, tool, path), tempfile.TemporaryFile() as tar:
        tar.write(text.encode("latin-1"))
        tar.seek(0)
        process = subprocess.Popen(argv, stdin=tar, stdout=pipe, stderr=pipe, encoding="latin-1")

    def goes_on() -> tuple[str, str]:
        (folder / "on").touch()
        return process.communicate()

    while not (folder / "there").exists():
        assert process.poll() is None
        time.sleep(0.01)
    yield goes_on


STEPS = {"mkdir": "", "tar": "", "find": "", "mv": "/runs/a"}
"""The calls of a hand-over before the scheduler may be asked; the last one moves what is marked as asked."""


@pytest.mark.parametrize("new", [True, False], ids=["new", "more"])
@pytest.mark.parametrize("tool", STEPS)
def test_what_was_given_up_never_asks(root: Root, tmp_path: Path, tool: str, new: bool) -> None:
    if not new:
        root.hand_over("runs/a")
    asked, number = root.times_asked, int(not new)
    token = f"token{number}"
    with stopped_at(root, tmp_path / "tools", tool, STEPS[tool], new=new) as goes_on:
        assert root.gives_up(token)
        there = root.path / "runs/a/submissions" / str(number)
        assert not there.exists()
        stdout, stderr = goes_on()
    assert parse_hand_over(stdout, stderr).asked is None
    assert not there.exists()
    assert root.times_asked == asked
    assert [path.name for path in root.path.glob(".*")] == [".given-up"]
    assert [path.name for path in (root.path / ".given-up").iterdir()] == [token]
    assert "13" in root.hand_over("runs/a", number, new=new, submit="echo 13").stdout, "for ever"


@pytest.mark.parametrize("new", [True, False], ids=["new", "more"])
def test_what_has_asked_goes_on(root: Root, tmp_path: Path, new: bool) -> None:
    """The staging folder is removed next."""
    if not new:
        root.hand_over("runs/a")
    number = int(not new)
    with stopped_at(root, tmp_path / "tools", "rm", "", new=new) as goes_on:
        (tmp_path / "tools" / "rm").unlink()
        assert root.gives_up(f"token{number}")
        assert (root.path / f"runs/a/submissions/{number}/asked").exists()
        stdout, stderr = goes_on()
    answer = parse_hand_over(stdout, stderr)
    assert answer.job_id(SLURM) == "12"
    assert root.times_asked == 1 + number


def test_without_room_to_leave_word_nothing_is_given_up(root: Root) -> None:
    (root.path / ".given-up").touch()
    assert not root.gives_up("token0")
    assert outcome(SLURM, None, None, NOBODY, now=NOW, over=False).state is JobState.SUBMITTING


def test_the_word_is_forgotten_in_the_end(root: Root) -> None:
    assert root.gives_up("old")
    assert root.gives_up("young")
    os.utime(root.path / ".given-up" / "old", (1, 1))
    assert root.gives_up("new")
    assert {path.name for path in (root.path / ".given-up").iterdir()} == {"young", "new"}
