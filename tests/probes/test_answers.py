"""The answers about several runs in one text: none is read as part of another, however they lie or end."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.backends.base import Backend
from clusterkit.backends.checks import parse_answer
from clusterkit.backends.jobs import Found
from clusterkit.backends.local.backend import LocalBackend
from clusterkit.backends.slurm.backend import SlurmBackend
from clusterkit.backends.slurm.limits import parse_limits
from clusterkit.backends.slurm.parse import parse_query
from clusterkit.backends.slurm.starts import parse_starts
from clusterkit.backends.slurm.survey.parse import parse as parse_survey
from clusterkit.diagnosis.collect import parse_evidence
from clusterkit.errors import ClusterkitError, RunError, SchedulerError, last_words
from clusterkit.probes import MARK, Answers
from clusterkit.probes.usage import UsageReader
from clusterkit.runs.record import parse_records
from clusterkit.runs.roster import parse_details, parse_roster

NAMES = (
    "a40-2m-20260102-030405-k3f9",
    "a40-2m-20260102-030405-k3f9.1",
    "a40-2m-20260102-030405-k3f",
    "queued",
)
STATUSES = (0, 1, 124)


def slurm_section(name: str, status: int) -> str:
    """What one search prints; the ids say whose it is."""
    tool, _, owner = name.partition(" ")
    number = 1000 + NAMES.index(owner)
    return f"{MARK} begin {tool}\n{number}\n{number}_3\n\n{MARK} status {status}\nsqueue: error {number}\n"


def local_section(name: str, status: int) -> str:
    number = 1000 + NAMES.index(name.partition(" ")[2])
    return f"{MARK} begin found\n{number}-77\n{MARK} status {status}\n"


SECTIONS = st.lists(
    st.tuples(st.sampled_from(("queued", "booked")), st.sampled_from(NAMES), st.sampled_from(STATUSES)),
    max_size=8,
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheduler", "section", "ending"),
    [(SlurmBackend(), slurm_section, ""), (LocalBackend(), local_section, "-77")],
    ids=["slurm", "local"],
)
@given(drawn=SECTIONS, data=st.data())
def test_searches_for_several_runs(
    scheduler: Backend,
    section: Callable[[str, int], str],
    ending: str,
    drawn: list[tuple[str, str, int]],
    data: st.DataObject,
) -> None:
    probes = {name: scheduler.find(name, "/job.sh", "2026-01-01") for name in NAMES}
    said = {
        name: "".join(section(f"{tool} {name}", status) for tool, other, status in drawn if other == name)
        for name in NAMES
    }
    frames = (f"{MARK} probe find {name}\n{text}\n{MARK} done find {name}\n" for name, text in said.items())
    text = "Welcome\n" + "".join(frames)
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, len(text)))
    for part in (text, text[:end], text.replace("\n", "\r\n")):
        for number, name in enumerate(NAMES, 1000):
            found = Answers(part).of(probes[name])
            assert set(found.ids) <= {f"{number}{ending}"}, "the job of another run"
            known = [status for _, other, status in drawn if other == name]
            assert not found.certain or 0 in known
    for number, name in enumerate(NAMES, 1000):
        asked = [status for tool, other, status in drawn if other == name and (ending or tool == "queued")]
        found = Answers(text).of(probes[name])
        assert found.certain == (asked[-1:] == [0] if not ending else asked[:1] == [0])
        assert found.ids == ((f"{number}{ending}",) if any(other == name for _, other, _ in drawn) else ())


def test_an_answer_that_is_not_there_is_not_another_probes() -> None:
    slurm = SlurmBackend()
    first, second = (slurm.find(name, "/job.sh", "2026-01-01") for name in NAMES[:2])
    text = f"{MARK} probe {first.name}\n{slurm_section(f'queued {NAMES[0]}', 0)}\n{MARK} done {first.name}\n"
    assert Answers(text).of(first) == Found(("1000",), certain=True)
    assert Answers(text).of(second) == Found((), certain=False)


ROW = "{0}|{0}|RUNNING|None|gpu|node{0}|1:00|10:00|N/A|N/A|job".replace("|", "\x1f")
PIECES = st.lists(
    st.one_of(
        st.sampled_from(
            (" ids 1 2;north\n", " end\n", " status 0\n", " status 1\nno controller\n", " status x\n")
        ),
        st.sampled_from((" begin squeue\n", " begin sacct\n", " begin squeue north\n", " begin try a\n")).map(
            lambda head: head + ROW.format(1 if "north" not in head else 2) + "\n"
        ),
        st.sampled_from((" begin now\n1767225600\n", " begin", " begin \n", "", " ", "\n")),
    ),
    max_size=12,
)


@pytest.mark.slow
@given(pieces=PIECES, cut=st.integers(0, 40))
def test_any_order_of_what_slurm_said(pieces: list[str], cut: int) -> None:
    whole = "".join(MARK + piece for piece in pieces)
    for text in (whole, whole[: len(whole) - cut], whole[cut:]):
        with contextlib.suppress(SchedulerError):
            for identifier, job in parse_query(text).jobs.items():
                assert job.node in (None, f"node{identifier.partition(';')[0]}"), "the row of another cluster"
        parse_starts(text, {"a": ()})


def record(run_dir: str) -> str:
    heart = json.dumps({"step": len(run_dir)})
    return (
        f"{MARK} run {run_dir}\n{MARK} file heartbeat.json\n{heart}\n"
        f"{MARK} file submissions/0/answer\n{len(run_dir)}\n{MARK} file submissions/0/status\n0\n"
    )


@pytest.mark.slow
@given(order=st.lists(st.sampled_from(("/r/a", "/r/bb", "/r/ccc d")), max_size=6), data=st.data())
def test_records_of_several_runs(order: list[str], data: st.DataObject) -> None:
    text = f"{MARK} now 12\n" + "".join(map(record, order)) + f"{MARK} end\n"
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, len(text)))
    for part in (text, text[begin:end], text[:begin] + text[end:]):
        with contextlib.suppress(RunError):
            for run_dir, found in parse_records(part).items():
                job_id = found.submission.job_id(SlurmBackend()) if found.submission else None
                if run_dir in order and job_id is not None:
                    assert job_id in {str(len(path)) for path in order}
    records = parse_records(text)
    for run_dir in order:
        submission = records[run_dir].submission
        assert submission is not None
        assert submission.job_id(SlurmBackend()) == str(len(run_dir))
    with pytest.raises(RunError, match="/r/other"):
        records["/r/other"]


WORDS = (
    " begin me",
    " begin subject",
    " begin squeue",
    " probe query",
    " end",
    " begin",
    " run /r",
    " file asked",
    " now 1",
    " status 0",
    " sample 1",
    "",
)


def usage(text: str) -> object:
    return list(UsageReader().feed(text.encode()))


PARSERS: tuple[Callable[[str], object], ...] = (
    parse_records, parse_query, parse_survey, parse_evidence, parse_roster, parse_details,
    lambda text: parse_starts(text, {}),
    parse_limits, parse_answer, usage, LocalBackend().query([]).read,
)  # fmt: skip


def shown(parse: Callable[[str], object], text: str) -> str:
    """The message for a person, where the parser refuses a text."""
    try:
        parse(text)
    except ClusterkitError as error:
        return str(error)
    return ""


@pytest.mark.slow
@given(
    pieces=st.lists(
        st.one_of(
            st.sampled_from(WORDS).map(lambda word: f"{MARK}{word}"),
            st.sampled_from(("\n", " ", "1 2", "{}", "JobRequeue = 1", "a=b", "²")),
        ),
        max_size=20,
    )
)
def test_no_order_of_our_lines_is_a_traceback(pieces: list[str]) -> None:
    for text in ("".join(pieces), "\n".join(pieces) + "\n"):
        for parse in PARSERS:
            assert "clusterkit " not in shown(parse, text), "a line of our own, shown to a person"


def test_half_a_configuration_is_no_configuration() -> None:
    config = f"{MARK} begin config\nJobRequeue = 1\n{MARK} status 0\n"
    text = f"{config}{MARK} begin partitions\nPartitionName=g MaxTime=1"
    with pytest.raises(SchedulerError, match="does not report"):
        parse_limits(text)
    assert parse_limits(f"{text}-00:00:00\n{MARK} status 0\n").max_time == 86400


def test_last_words() -> None:
    assert last_words(f"{MARK} end\n") == "it printed nothing"
    assert last_words("a\x1b[31mb\n\n c ") == "a [31mb / c"
    assert len(last_words("x" * 1000)) == 200
