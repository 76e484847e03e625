"""Run directories that mean harm: nothing is written outside the results folder, and all of it is said.

The directories are real and travel over a real transport: all on this machine, those that the road could
change also through a real sshd. Of the answers of a machine that lies only its listing is made up, for no
`find` would print them.
"""

from __future__ import annotations

import functools
import os
import socket
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest

from clusterkit.errors import TransportError
from clusterkit.results import pull
from clusterkit.results.pull import PulledRun, pull_runs
from clusterkit.results.selection import Checkpoints
from clusterkit.transport.base import Completed, Transferred, Transport
from clusterkit.transport.factory import connect
from clusterkit.transport.local import LocalTransport
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.needs import needing
from tests.sampling import sampled

RUN, OTHER = "demo-20260102-030405-k3f9", "demo-20260102-030405-zzzz"
SECRET = "what only the laptop knows\n"


@dataclass
class Stage:
    """Both machines, each below a folder of its own."""

    folder: Path
    case: str = ""
    rewrite: Callable[[bytes], bytes] = lambda text: text
    """What becomes of the listing on its way."""
    between: Callable[[], None] = lambda: None
    """What happens after the listing and before the first transfer."""
    inner: Transport = field(default_factory=LocalTransport)
    where: str = "node"

    @property
    def runs(self) -> Path:
        return self.folder / "cluster" / "runs"

    @property
    def there(self) -> Path:
        return self.runs / RUN

    @property
    def results(self) -> Path:
        return self.folder / "laptop" / "project" / "results"

    @property
    def here(self) -> Path:
        return self.results / RUN

    @property
    def outside(self) -> Path:
        return self.folder / "laptop" / "mine"

    def run(self, argv: Sequence[str], **options: Any) -> Completed:
        done = self.inner.run(argv, **options)
        return replace(done, stdout=self.rewrite(done.stdout))

    def pull(self, source: str, target: Path, **options: Any) -> Transferred:
        self.between()
        self.between = lambda: None
        return self.inner.pull(source, target, **options)

    def sync(self) -> PulledRun:
        (run,) = pull_runs(
            cast("Transport", self),
            runs_root=str(self.runs),
            run_ids=[RUN],
            results=self.results,
            checkpoints=Checkpoints.LAST,
        )
        return run

    def put(self, name: str | bytes, content: str | bytes = "x") -> Path:
        return write(self.there / os.fsdecode(name), content)

    def adds(self, *lines: bytes) -> None:
        """The listing gets entries that nobody has."""
        self.rewrite = lambda text: text + b"".join(line + b"//\0" for line in lines)

    def links(self) -> set[Path]:
        """Links in results/."""
        return {path for path in (self.here, *self.results.rglob("*")) if path.is_symlink()}

    def surroundings(self) -> dict[str, tuple[int, int, bytes]]:
        """Everything on the laptop that is not below results/."""
        found = {}
        for path in sorted((self.folder / "laptop").rglob("*")):
            if self.results in (path, *path.parents):
                continue
            info = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(info.st_mode) else b""
            found[str(path)] = (info.st_mode, info.st_ino, content)
        return found


def write(path: Path, content: str | bytes = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def link(place: Path, target: str | Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def listen(stage: Stage) -> None:
    before = Path.cwd()
    os.chdir(stage.there)  # a socket's path must be short
    try:
        with closing(socket.socket(socket.AF_UNIX)) as one:
            one.bind("socket")
    finally:
        os.chdir(before)


def swap(stage: Stage, name: str, work: Callable[[Path], object]) -> None:
    """A regular file when it is listed, something else when it is copied."""
    path = stage.put(name)

    def now() -> None:
        path.unlink()
        work(path)

    stage.between = now


def grow(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def grow_later(stage: Stage, name: str) -> None:
    path = stage.put(name)
    stage.between = lambda: grow(path, 200 << 20)


def locally(stage: Stage, name: str, work: Callable[[Path], object]) -> None:
    """Something lies in the way on the laptop."""
    stage.put(name, "from the cluster\n")
    path = stage.here / name
    path.parent.mkdir(parents=True, exist_ok=True)
    work(path)


def deep_folder(path: Path) -> None:
    for number in range(5):
        write(path / f"{number}", "one of many")


FILE = b"f+ 4 1700000000.0 "
HUGE = 9 * 10**18

CASES: dict[str, tuple[Callable[[Stage], object], str]] = {
    # name -> what is done before the pull, and what must be said about it (nothing: there is no loss)
    "link to a file of the laptop": (
        lambda s: link(s.there / "a", s.outside / "secret"),
        "a: a link to outside",
    ),
    "link to /etc/passwd": (lambda s: link(s.there / "a", "/etc/passwd"), "(to /etc/passwd)"),
    "link to /": (lambda s: link(s.there / "a", "/"), "a: a link to outside"),
    "link that climbs": (lambda s: link(s.there / "a", "../../../laptop/mine"), "a: a link to outside"),
    "link to another run": (lambda s: link(s.there / "a", f"../{OTHER}/run.json"), "a: a link to outside"),
    "link with control characters": (lambda s: link(s.there / "a", "/x\n\x1b[2J"), r"/x\n\x1b[2J"),
    "link that climbs and returns": (
        lambda s: link(s.there / "a", f"../../runs/{OTHER}"),
        "a: a link to outside",
    ),
    "link in place of a folder": (
        lambda s: link(s.there / "attempts", "/etc"),
        "attempts: a link to outside",
    ),
    "link that stays inside": (lambda s: link(s.there / "wandb/latest-run", "offline-run-1"), ""),
    "link to the log of W&B's client": (
        lambda s: link(
            s.there / "wandb/offline-run-1/logs/debug-core.log", "/root/.cache/wandb/logs/core-debug-1_2.log"
        ),
        "",
    ),
    "link of a group": (
        lambda s: link(s.there / "submissions/0/answer", "../../../../groups/g-1/submissions/0/answer"),
        "",
    ),
    "link to the log of a group": (
        lambda s: link(s.there / "slurm.log", "../../groups/g-1/slurm-0-12.log"),
        "",
    ),
    "link to the log of a job": (lambda s: link(s.there / "slurm.log", "../../groups/g-1/slurm-3.log"), ""),
    "link to another log": (
        lambda s: link(s.there / "slurm.log", "../../groups/g-1/../x/slurm-3.log"),
        "slurm.log: a link to outside",
    ),
    "link that looks like one": (
        lambda s: link(s.there / "submissions/0/answer", "../../../../groups/../../mine/secret"),
        "submissions/0/answer: a link to outside",
    ),
    "link to itself": (lambda s: link(s.there / "a", "a"), "a: a link to a, which is not there"),
    "named pipe": (lambda s: os.mkfifo(s.there / "a"), "a: a named pipe"),
    "socket": (listen, "socket: a socket"),
    "device": (lambda s: os.mknod(s.there / "a", 0o666 | stat.S_IFCHR, os.makedev(1, 5)), "a: a device"),
    **{
        f"a name of git's or a like tool: {name!a}": (
            lambda s, name=name: s.put(f"{name}/hooks/post-checkout"),
            "its name is one of git's",
        )
        for name in (
            *(".git", "sub/.git", ".GIT", ".git.", ".git ", ".git. .", "git~1", "GIT~1", ".git:stream"),
            *(".g\u200cit", ".gi\ufefft", "a\\.git", ".hg", ".Svn", "SVN~1", ".jj", ".direnv", "DIRENV~1"),
        )
    },
    "a file of git": (lambda s: s.put(".git", "gitdir: /tmp/evil"), ".git: its name is one of git's"),
    "names like those": (
        lambda s: (s.put("git/a"), s.put(".github/a"), s.put(".gitignore"), s.put("hg")),
        "",
    ),
    "virtual environment": (
        lambda s: (s.put("env/pyvenv.cfg"), s.put("env/bin/python"), s.put("env/lib/in/pyvenv.cfg")),
        "env/: a virtual environment",
    ),
    "conda environment": (
        lambda s: (s.put("a/e/conda-meta/history"), s.put("a/e/bin/sh")),
        "a/e/: a virtual",
    ),
    "the run as an environment": (lambda s: s.put("pyvenv.cfg"), "pyvenv.cfg: its name is that of a part of"),
    "virtual environment here": (
        lambda s: locally(s, "env/bin/python", lambda p: (p.parent.parent / "pyvenv.cfg").write_text("")),
        "is a virtual environment here",
    ),
    "newline in a name": (lambda s: s.put("a\nb"), r"a\nb: its name"),
    "escape sequence in a name": (lambda s: s.put("\x1b]0;owned\x07"), r"\x1b]0;owned\x07: its name"),
    "carriage return in a name": (lambda s: s.put("good\rbad"), r"good\rbad: its name"),
    "right-to-left override": (lambda s: s.put("gnp.‮exe"), r"gnp.\u202eexe: its name"),
    "C1 control character": (lambda s: s.put("a\x9bb"), r"a\x9bb: its name"),
    "no UTF-8": (lambda s: s.put(b"a\xff\xfeb"), r"a\udcff\udcfeb: its name"),
    "newline in a folder": (lambda s: s.put("a\nb/c"), r"a\nb"),
    "longest name": (lambda s: s.put("n" * 255), ""),
    "deep folders": (lambda s: s.put("/".join(["d" * 200] * 12) + "/a"), "its name is too long"),
    "a name like an option": (lambda s: s.put("--delete"), ""),
    "a name like a comment": (lambda s: s.put("#a; $(touch x) `y` *?[z]"), ""),
    "a name like a remote": (lambda s: s.put("host:a"), ""),
    "folder of the transfer itself": (lambda s: s.put(".clusterkit-partial/run.json", "{}"), ""),
    "file named like that folder": (lambda s: s.put(".clusterkit-partial"), ""),
    "setuid and setgid": (lambda s: s.put("a").chmod(0o6777), ""),
    "sticky folder for all": (lambda s: s.put("f/a").parent.chmod(0o1777), ""),
    "hard link": (lambda s: (s.there / "a").hardlink_to(write(s.runs / "elsewhere")), ""),
    "time before 1970": (lambda s: os.utime(s.put("a"), (-5000, -5000)), ""),
    "time in the far future": (lambda s: os.utime(s.put("a"), (4e9, 4e9)), ""),
    "grows after the listing": (
        lambda s: grow_later(s, "a"),
        "a: it changed while it was being copied",
    ),
    "log that grows after the listing": (
        lambda s: grow_later(s, "attempts/0/log"),
        "attempts/0/log: it changed",
    ),
    "becomes a link": (lambda s: swap(s, "a", lambda p: link(p, s.outside / "secret")), "a: it changed"),
    "becomes a link to another run": (
        lambda s: swap(s, "a", lambda p: link(p, f"../{OTHER}/run.json")),
        "a: it changed",
    ),
    "becomes a folder of many": (lambda s: swap(s, "a", deep_folder), "a: it changed"),
    "becomes a pipe": (lambda s: swap(s, "a", os.mkfifo), "a: it changed"),
    "link planted here for the run": (
        lambda s: (s.put("a"), s.results.mkdir(parents=True), link(s.here, s.outside)),
        "is a link, and clusterkit does not write through links",
    ),
    "link planted here for a folder": (
        lambda s: locally(s, "attempts/0/log", lambda p: (p.parent.rmdir(), link(p.parent, s.outside))),
        "is a link, and clusterkit does not write through links",
    ),
    "link planted here for a file": (
        lambda s: locally(s, "secret", lambda p: link(p, s.outside / "secret")),
        "is a link here",
    ),
    "link planted here for a log": (
        lambda s: locally(s, "metrics.jsonl", lambda p: link(p, s.outside / "secret")),
        "is a link here",
    ),
    "link planted here for unfinished files": (
        lambda s: locally(s, "f/a", lambda p: link(p.parent / ".clusterkit-partial", s.outside)),
        "is a link, and clusterkit does not write through links",
    ),
    "hard link planted here for a log": (
        lambda s: (
            s.put("slurm.log", SECRET * 3),
            s.here.mkdir(parents=True),
            (s.here / "slurm.log").hardlink_to(s.outside / "secret"),
        ),
        "",
    ),
    "folder here for a file": (lambda s: locally(s, "a", lambda p: write(p / "b")), "is a folder here"),
    "file here for a folder": (
        lambda s: locally(s, "f/a", lambda p: (p.parent.rmdir(), write(p.parent))),
        "is no folder",
    ),
    "a listing with an absolute path": (lambda s: s.adds(FILE + b"/etc/cron.d/x"), "not asked about"),
    "a listing that climbs": (lambda s: s.adds(FILE + f"./{RUN}/../../mine/x".encode()), "not asked about"),
    "a listing of another run": (lambda s: s.adds(FILE + f"./{OTHER}/a".encode()), "not asked about"),
    "a listing with empty names": (lambda s: s.adds(FILE + f"./{RUN}//a".encode()), "not asked about"),
    "a listing without its dot": (lambda s: s.adds(FILE + f"{RUN}/a".encode()), "not asked about"),
    "a listing of what is not there": (lambda s: s.adds(FILE + f"./{RUN}/ghost".encode()), "ghost"),
    "a listing with a name twice": (
        lambda s: s.adds(FILE + f"./{RUN}/a".encode(), b"f+ 9 1.0 " + f"./{RUN}/a".encode()) or s.put("a"),
        "",
    ),
    "a listing with a file as a folder": (
        lambda s: (
            s.put("a/b"),
            s.adds(FILE + f"./{RUN}/a".encode()),
        ),
        "a: a file and a folder at once",
    ),
    "a listing with a size from nowhere": (
        lambda s: s.adds(b"f+ %d 1.0 ./%s/a" % (HUGE, RUN.encode())) or s.put("a"),
        "a: it has 9,000,000,000,000,000,000 bytes",
    ),
    "a listing with a number without end": (
        lambda s: s.adds(b"f+ " + b"9" * 5000 + f" 1.0 ./{RUN}/a".encode()),
        "",
    ),
    "a listing with a name too long": (lambda s: s.adds(FILE + f"./{RUN}/{'n' * 300}".encode()), "too long"),
    "run.json without end": (
        lambda s: grow(s.put("run.json"), 65 << 20),
        "run.json is missing or not readable",
    ),
    "run.json as deep as the sea": (lambda s: s.put("run.json", "[" * 500_000), "run.json is missing or not"),
    "metrics as deep as the sea": (
        lambda s: s.put("metrics.jsonl", "[" * 500_000 + "\n"),
        "metrics.jsonl line 1",
    ),
    "metrics of one line": (lambda s: grow(s.put("metrics.jsonl"), 20 << 20), "line 1 is longer than"),
    "a manifest that names the laptop's files": (
        lambda s: s.put(
            "checkpoints/step-000000000001/manifest.json",
            '{"files": {"../../../../../mine/secret": {"bytes": 1, "sha256": "0"}}}',
        ),
        "manifest.json names checkpoints/step-000000000001/../../",
    ),
    "a manifest of a strange shape": (
        lambda s: s.put("checkpoints/step-000000000001/manifest.json", '{"files": {"a": 1}, "replay": [{}]}'),
        "",
    ),
}


COPIED = [name for name in CASES if name.startswith(("becomes", "grows", "log that grows"))]
"""The cases that whoever copies decides: rsync, or what stands in for it."""
SPELLED = ["a name like an option", "a name like a comment", "a name like a remote"]
"""The cases that a shell there could misread."""
FAR = ["link planted here for unfinished files", *COPIED, *SPELLED]


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Transport]]:
    """One connection to a real sshd, opened when it is first needed."""
    with ExitStack() as stack:

        @functools.cache
        def connected() -> Transport:
            sshd = stack.enter_context(closing(LoopbackSshd(tmp_path_factory.mktemp("sshd") / "node")))
            return stack.enter_context(closing(connect(sshd.alias, ssh_config=sshd.ssh_config)))

        yield connected


@pytest.fixture
@needing("sshd", unless=lambda scene: not scene or scene[0] == "local")
def stage(
    request: pytest.FixtureRequest,
    far: Callable[[], Transport],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Stage:
    """By default on this machine alone."""
    road, case = getattr(request, "param", ("local", ""))
    stage = Stage(tmp_path, case=case, inner=LocalTransport() if road == "local" else far())
    if road == "tar":
        monkeypatch.setenv("PATH", "/nowhere")  # no rsync here
    write(stage.there / "run.json", f'{{"run_id": "{RUN}"}}')
    write(stage.runs / OTHER / "run.json", f'{{"run_id": "{OTHER}"}}')
    write(stage.outside / "secret", SECRET)
    stage.results.parent.mkdir()
    return stage


SCENES = sampled(
    product(("local", "ssh", "tar"), CASES),
    len(CASES) + 2 * len(FAR) + 4,
    always=[*product(["local"], CASES), *product(("ssh", "tar"), FAR)],
)


@pytest.mark.slow
@pytest.mark.parametrize("stage", SCENES, indirect=True, ids="-".join)
def test_nothing_is_written_outside(stage: Stage) -> None:
    prepare, said = CASES[stage.case]
    try:
        prepare(stage)
    except PermissionError:
        pytest.skip("only root can make that")
    before, links = stage.surroundings(), stage.links()
    there = {path.relative_to(stage.there) for path in stage.there.rglob("*") if path.is_file()}
    here = set(stage.here.rglob("*"))
    try:
        words = stage.sync().problems
    except TransportError as error:
        words = (error.cause,)
    assert any(said in line for line in words) if said else words == (), words
    assert all(line.isprintable() for line in words)
    assert stage.surroundings() == before
    assert {path.name for path in stage.results.glob("*")} <= {RUN, ".gitignore"}  # the latter is our own
    assert stage.links() == links
    come = {path for path in stage.here.rglob("*") if path.is_file()} - here
    assert {path.relative_to(stage.here) for path in come} <= there
    for path in stage.results.rglob("*"):
        info = path.lstat()
        if not stat.S_ISLNK(info.st_mode):
            assert stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode), path
            assert not info.st_mode & 0o7000, path
    assert sum(path.lstat().st_size for path in stage.results.rglob("*")) < 200 << 20
    if not words:  # and what there was to bring is here
        assert (stage.here / "run.json").is_file()


def test_what_is_here_through_a_link_and_the_same_is_left_alone(stage: Stage) -> None:
    path = stage.put("f/a", "from the cluster\n")
    copy = write(stage.outside / "a", "from the cluster\n")
    os.utime(copy, ns=(path.stat().st_mtime_ns,) * 2)
    link(stage.here / "f", stage.outside)
    assert stage.sync().problems == ()
    path.write_text("something else\n")
    assert "is a link, and clusterkit does not write through links" in stage.sync().problems[0]
    assert copy.read_text() == "from the cluster\n"


def test_what_is_left_is_not_said_without_end(stage: Stage) -> None:
    for number in range(50):
        stage.put(f"a\n{number}")
    problems = stage.sync().problems
    assert len(problems) == 7
    assert problems[-1] == "not synced: 44 more"


def test_a_file_that_cannot_be_read_does_not_keep_the_others(stage: Stage) -> None:
    stage.put("a")
    stage.put("b")

    def deny(text: bytes) -> bytes:  # root reads everything: it is what another user would be told
        records = text.split(b"\0")
        denied = [one.replace(b"f+", b"f-", 1) if one.endswith(b"/a//") else one for one in records]
        return b"\0".join(denied)

    stage.rewrite = deny
    assert stage.sync().problems == ("not synced: a: it cannot be read there",)
    assert (stage.here / "b").exists()


def test_a_file_that_does_not_fit_stays(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.put("a", b"x" * 9000)
    disk = os.statvfs(stage.folder)
    fields = list(disk)
    fields[1], fields[4] = 1, 8000  # f_frsize, f_bavail
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))
    assert stage.sync().problems == ("not synced: a: it has 9,000 bytes, and 8,000 are free here",)
    assert (stage.here / "run.json").exists()
    write(stage.here / "a", b"x" * 1000)  # what has arrived needs no room
    assert stage.sync().problems == ()
    assert (stage.here / "a").stat().st_size == 9000


@pytest.mark.slow
@pytest.mark.parametrize("stage", [("local", ""), ("tar", "")], indirect=True, ids="-".join)
def test_a_transfer_that_does_not_end_is_ended(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender that gives more than it listed: the transfer is cut off where it has passed all bounds."""
    monkeypatch.setattr(pull, "GROWTH", 1 << 20)
    path = stage.put("a", b"x")
    inner = stage.inner

    class Endless:
        where = "node"

        def pull(self, source: str, target: Path, *, options: Any, progress: Any) -> Transferred:
            with path.open("wb") as file:
                file.write(os.urandom(16 << 20))
            unbounded = replace(options, max_size=None)  # as if the far side did not care
            return inner.pull(source, target, options=unbounded, progress=progress)

        def run(self, argv: Sequence[str], **options: Any) -> Completed:
            return inner.run(argv, **options)

    stage.inner = cast("Transport", Endless())
    with pytest.raises(TransportError, match="sends more than it listed"):
        stage.sync()
