"""rsync's argv, output and faults, on recorded strings (rsync 3.1.3, 3.2.7, 3.5.0)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.folders import PARTIAL_DIR
from clusterkit.transport import faults, rsync
from clusterkit.transport.base import MissingFileError, SyncOptions, TransferProgress, Transferred

TEXT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1)
OPTIONS = st.builds(
    SyncOptions,
    exclude=st.tuples(TEXT),
    delete=st.booleans(),
    link_dest=st.lists(TEXT, max_size=2).map(tuple),
    inplace=st.booleans(),
    append=st.booleans(),
    checksum=st.booleans(),
    bandwidth_limit=st.none() | st.integers(1, 10**12),
    mode=st.none() | st.just("D700,F600"),
)


def argv(options: SyncOptions = SyncOptions(), **other: object) -> list[str]:  # noqa: B008 - frozen
    fixed = {"folder": True, "pulling": False, "rsh": None, **other}
    return rsync.build_argv("/from", "/to", options, **fixed)  # type: ignore[arg-type]


@pytest.mark.slow
@given(OPTIONS, st.booleans(), st.booleans(), st.none() | st.just(["sh", "x"]))
def test_whatever_the_options_the_paths_stay_paths(
    options: SyncOptions, folder: bool, pulling: bool, rsh: list[str] | None
) -> None:
    built = argv(options, folder=folder, pulling=pulling, rsh=rsh)
    split = built.index("--")
    assert len(built) == split + 3
    assert all(word.startswith("-") for word in built[1:split])
    assert [word.removeprefix("remote:").rstrip("/") for word in built[split + 1 :]] == ["/from", "/to"]
    assert ("--delete" in built) == options.delete
    assert "--protect-args" in built
    assert not {"-a", "--owner", "--group", "--devices", "--specials"} & set(built)


def test_each_side_is_remote_in_turn() -> None:
    assert argv(rsh=["sh"])[-2:] == ["/from/", "remote:/to/"]
    assert argv(rsh=["sh"], pulling=True, folder=False)[-2:] == ["remote:/from", "/to"]
    assert argv(folder=False)[-2:] == ["/from", "/to"]


def test_unfinished_files_are_kept_for_resuming() -> None:
    assert f"--partial-dir={PARTIAL_DIR}" in argv()
    assert {"--inplace", "--partial"} <= set(argv(SyncOptions(inplace=True)))
    assert "--append-verify" in argv(SyncOptions(append=True))


def test_only_the_far_side_is_not_trusted() -> None:
    assert "--safe-links" in argv(pulling=True)
    assert "--safe-links" not in argv()


@pytest.mark.parametrize(
    ("limit", "word"), [(1, "--bwlimit=1"), (1024, "--bwlimit=1"), (5_120_000, "--bwlimit=5000")]
)
def test_bandwidth_is_given_in_bytes(limit: int, word: str) -> None:
    assert word in argv(SyncOptions(bandwidth_limit=limit))


@given(st.lists(TEXT.filter(lambda word: "\t" not in word), min_size=1, max_size=4))
def test_rsh_words_survive_rsyncs_own_splitting(words: list[str]) -> None:
    assert split_like_rsync(rsync.quote_rsh(words)) == words


def split_like_rsync(text: str) -> list[str]:
    """rsync(1), --rsh: blanks split, quotes keep blanks, a doubled quote inside quotes is one."""
    words, word, quote, position = [], "", "", 0
    while position < len(text):
        char = text[position]
        if quote and text[position : position + 2] == quote * 2:
            word, position = word + quote, position + 1
        elif char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
        elif char == " " and not quote:
            words.append(word)
            word = ""
        else:
            word += char
        position += 1
    return [*words, word]


@pytest.mark.needs("rsync")
def test_the_real_rsync_splits_rsh_like_that(tmp_path: Path) -> None:
    odd = tmp_path / 'it\'s an "odd" folder'
    odd.mkdir()
    helper = odd / "remember.py"
    helper.write_text("import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(repr(sys.argv[2:]))")
    note = odd / "note"
    built = argv(rsh=[sys.executable, str(helper), str(note), "a  b", "'"])
    subprocess.run(built, capture_output=True, check=False)
    assert note.read_text().startswith("""['a  b', "'", 'remote', 'rsync', '--server'""")


def test_files_from_protects_comments() -> None:
    assert rsync.files_from_input(SyncOptions(files_from=("#a", "b c/d"))) == b"./#a\0./b c/d\0"
    assert rsync.files_from_input(SyncOptions()) == b""


# output --------------------------------------------------------------------------------------

RECORDED = (
    b"\r              2   0%    0.00kB/s    0:00:00  \r"
    b"     10000000  33%    1.50MB/s    0:00:12 (xfr#1, ir-chk=1009/1011)\r"
    b"       20000000  66%    1.00GB/s    0:00:00  \r"
    b"       30000009  99%  250.00kB/s    0:00:00 (xfr#5, to-chk=0/11)\n"
)
STATS = b"""
Number of files: 1,011 (reg: 1,005, dir: 4, link: 2)
Number of created files: 10 (reg: 5, dir: 3, link: 2)
Number of deleted files: 0
Number of regular files transferred: 1,005
Total file size: 30,000,023 bytes
Total transferred file size: 30,000,009 bytes
Literal data: 30,000,009 bytes
Matched data: 0 bytes
total size is 30000023  speedup is 1.00
"""


def test_progress_of_recorded_output() -> None:
    first, *_, last = rsync.OutputParser().feed(RECORDED)
    assert first == TransferProgress(2, None, 0.0)
    assert last.done_bytes == 30_000_009
    assert last.bytes_per_second == 250 * 1024


def test_the_total_is_unknown_while_the_list_grows() -> None:
    reports = rsync.OutputParser().feed(b"  100  50%  1.00kB/s  0:00:00 (xfr#1, ir-chk=5/9)\r")
    assert reports == [TransferProgress(100, None, 1024.0)]


@given(total=st.integers(1, 10**13), steps=st.lists(st.floats(0.01, 1.0), min_size=1, max_size=20))
def test_the_total_is_narrowed_from_whole_per_cents(total: int, steps: list[float]) -> None:
    parser = rsync.OutputParser()
    for share in sorted(steps):
        done = int(total * share)
        percent = 100 if done == total else 100 * done // total
        line = f"  {done}  {percent}%  1.00kB/s  0:00:00 (xfr#1, to-chk=5/9)\r"
        (report,) = parser.feed(line.encode())
    if report.total_bytes is not None:
        assert abs(report.total_bytes - total) <= total / percent + 1
        assert report.total_bytes >= done


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_statistics_in_pieces(size: int) -> None:
    parser = rsync.OutputParser()
    data = RECORDED + STATS
    for start in range(0, len(data), size):
        parser.feed(data[start : start + size])
    assert parser.transferred() == Transferred(files=1005, bytes=30_000_009)


def test_what_a_remote_rsync_says_is_no_number_and_is_not_kept() -> None:
    parser, nines = rsync.OutputParser(), "9" * 5000
    said = (
        f"{nines} 100% 1.00MB/s 0:00:00\r1 {nines}% 1.00MB/s 0:00\rLiteral data: {nines}\rLiteral data: ,\r"
    )
    assert parser.feed(said.encode()) == []
    for _ in range(100):
        parser.feed(bytes(1 << 16))
    assert len(parser._rest) < 1 << 16
    assert parser.transferred().bytes < 10**24


def test_no_statistics_are_zeros() -> None:
    assert rsync.OutputParser().transferred() == Transferred(0, 0)


# faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "stderr", "pulling", "cause"),
    [
        (
            11,
            'rsync: [receiver] write failed on "/w/big": No space left on device (28)\n'
            "rsync error: error in file IO (code 11) at receiver.c(380) [receiver=3.2.7]\n",
            False,
            "no space left on device on hpc: ",
        ),
        (
            11,
            'rsync: write failed on "/home/me/big": Disk quota exceeded (122)\n',
            True,
            "disk quota exceeded on this machine: ",
        ),
        (
            2,
            "protocol version mismatch -- is your shell clean?\n(see the rsync manpage for an explanation)\n",
            False,
            "the login shell on hpc prints text that breaks rsync: ",
        ),
        (127, "sh: 1: exec: rsync: not found\n", False, "rsync is not installed on hpc: "),
        (127, "bash: line 1: rsync: command not found\n", False, "rsync is not installed on hpc: "),
        (
            1,
            "rsync: --info=progress2: unknown option\n",
            False,
            "rsync on this machine is too old (3.1 or newer is needed): ",
        ),
        (
            1,
            "rsync: on remote machine: --info=progress2: unknown option\n",
            False,
            "rsync on hpc is too old (3.1 or newer is needed): ",
        ),
        (
            23,
            'rsync: [sender] link_stat "/w/a b" failed: No such file or directory (2)\n'
            "rsync error: some files/attrs were not transferred (code 23) at main.c(1865) [sender=3.1.3]\n",
            True,
            "/w/a b does not exist on hpc",
        ),
        (
            23,
            'rsync: [generator] recv_generator: mkdir "/w/x" failed: Permission denied (13)\n'
            "*** Skipping any contents from this failed directory ***\n",
            False,
            "copying to hpc failed (rsync 23): rsync: [generator] recv_generator: mkdir",
        ),
        (
            12,
            "rsync error: error in rsync protocol data stream (code 12)\n",
            True,
            "copying from hpc failed (rsync 12)",
        ),
        (255, "", True, "copying from hpc failed (rsync 255): no message"),
    ],
)
def test_faults_of_recorded_output(code: int, stderr: str, pulling: bool, cause: str) -> None:
    error = faults.rsync_failed(code, stderr, pulling=pulling, where="hpc")
    assert error.cause.startswith(cause)
    assert error.hint or isinstance(error, MissingFileError)
    assert "\n" not in error.cause
