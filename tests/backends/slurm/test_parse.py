"""The parsers, on recorded answers (Slurm 24.11) and on answers written after the documentation of others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.backends.jobs import Job, JobState
from clusterkit.backends.slurm.backend import SlurmBackend
from clusterkit.backends.slurm.parse import parse_query
from clusterkit.backends.slurm.rows import job_state, parse_time
from clusterkit.errors import SchedulerError
from tests.backends.slurm.answers import MARK, RECORDED_24_11, answer

ROW = "{0}|{0}|{1}|{2}|gpu|node1|1:00|10:00|2026-01-02T03:04:05|N/A|job"
BOOKED = "{0}|{1}|0:0|2026-01-02T03:04:05|Unknown|60|10|gpu|node1|job"


@pytest.mark.parametrize(
    ("stdout", "job_id"),
    [
        ("123\n", "123"),
        ("123;hpc-2\n", "123;hpc-2"),
        ("Welcome to the cluster 2024!\n\n42\n", "42"),
        ("42\nlua: your job was moved to partition gpu\n", "42"),
        ("  7 \r\n", "7"),
    ],
)
def test_submit(stdout: str, job_id: str) -> None:
    assert SlurmBackend().accepted(stdout) == job_id


@pytest.mark.parametrize("stdout", ["", "Submitted batch job", "error 3 of 4", "12;a b"])
def test_submit_without_an_id(stdout: str) -> None:
    assert SlurmBackend().accepted(stdout) is None


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("RUNNING", JobState.RUNNING),
        ("CANCELLED by 1000", JobState.CANCELLED),
        ("CANCELLED+", JobState.CANCELLED),
        ("OUT_OF_ME+", JobState.OUT_OF_MEMORY),
        ("COMPLETED", JobState.COMPLETED),
        ("COMPLETING", JobState.COMPLETING),
        ("REQUEUE_HOLD", JobState.PENDING),
        ("CONFIGURING", JobState.PENDING),
        ("BOOT_FAIL", JobState.NODE_FAIL),
        ("DEADLINE", JobState.TIMEOUT),
        ("RESIZING", JobState.RUNNING),
        ("COMPLET+", JobState.UNKNOWN),
        ("HIBERNATED", JobState.UNKNOWN),
        ("UNKNOWN", JobState.UNKNOWN),
        ("", JobState.UNKNOWN),
        ("+", JobState.UNKNOWN),
    ],
)
def test_states(text: str, state: JobState) -> None:
    assert job_state(text) is state


def recorded(job_id: str) -> Job:
    return parse_query(answer(job_id, **RECORDED_24_11)).jobs[job_id]


@pytest.mark.parametrize(
    ("job_id", "state", "reason", "exit_code"),
    [
        ("2", "RUNNING", None, None),
        ("3", "PENDING", "Resources", None),
        ("4", "COMPLETED", None, "0:0"),
        ("5", "FAILED", "NonZeroExitCode", "3:0"),
        ("6", "PENDING", "DependencyNeverSatisfied", None),
        ("7", "FAILED", "RaisedSignal:11(Segmentation fault)", "0:11"),
        ("8", "OUT_OF_MEMORY", "OutOfMemory", "0:125"),
        ("10", "TIMEOUT", "TimeLimit", "0:0"),
        ("11", "CANCELLED", None, "0:0"),
        ("12", "PENDING", "JobHeldUser", None),
        ("14", "PENDING", "BeginTime", None),
        ("18", "PENDING", "PartitionTimeLimit", None),
        ("19", "FAILED", "BadConstraints", None),
        ("27", "NODE_FAIL", "NodeDown", "1:0"),
    ],
)
def test_recorded(job_id: str, state: str, reason: str | None, exit_code: str | None) -> None:
    job = recorded(job_id)
    assert (job.job_id, job.state, job.reason, job.exit_code) == (job_id, state, reason, exit_code)


def test_recorded_details() -> None:
    assert recorded("2") == Job(
        "2",
        JobState.RUNNING,
        "RUNNING",
        partition="gpu-a100",
        node="a100n1",
        start="2026-11-20T05:29:02",
        end="2026-11-20T05:59:02",
        elapsed_seconds=12,
        limit_seconds=1800,
        name="job",
    )
    assert recorded("3").node is None
    assert recorded("18").start is None
    assert recorded("18").limit_seconds == 3 * 86400
    assert recorded("11").raw_state == "CANCELLED by 2001"
    assert recorded("10").elapsed_seconds == 78


def test_arrays() -> None:
    assert recorded("13_0").state is JobState.COMPLETED
    assert recorded("13_2").state is JobState.RUNNING
    assert recorded("13").state is JobState.RUNNING  # the array runs as long as one of its tasks does
    done = parse_query(answer("13", sacct="13_0|COMPLETED|0:0|||5|1|g|n|j\n13_1|FAILED|1:0|||5|1|g|n|j")).jobs
    assert done["13"].state is JobState.FAILED


def test_the_pending_rest_of_an_array_counts_for_all_of_it() -> None:
    pending = parse_query(answer("9", squeue="9_[2-40%2]|9|PENDING|Resources|gpu||0:00|10:00|N/A|N/A|j")).jobs
    assert pending["9"].state is JobState.PENDING


def test_recorded_accounting_off() -> None:
    off = {"sacct_status": 1, "sacct_error": "Slurm accounting storage is disabled"}
    jobs = parse_query(answer("2 10 999", squeue=RECORDED_24_11["squeue"], **off)).jobs  # type: ignore[arg-type]
    assert (jobs["2"].state, jobs["10"].state) == (JobState.RUNNING, JobState.TIMEOUT)
    assert "999" not in jobs  # forgotten: the exit record decides


@pytest.mark.parametrize(
    ("status", "error", "reason"),
    [
        (
            1,
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            "Unable to contact",
        ),
        (124, "", "no answer in time"),
        (127, "sh: 1: squeue: not found", "squeue: not found"),
        (1, "", "exit code 1"),
    ],
)
def test_controller_down(status: int, error: str, reason: str) -> None:
    """Message texts after Slurm 23.11's source."""
    down = answer("4 2 3 999", squeue_status=status, squeue_error=error, sacct=RECORDED_24_11["sacct"])
    jobs = parse_query(down).jobs
    assert jobs["4"].state is JobState.COMPLETED
    assert jobs["4"].reason is None
    assert jobs["2"].state is JobState.RUNNING
    assert "according to sacct; squeue failed" in str(jobs["2"].reason)
    assert jobs["999"].state is JobState.UNKNOWN
    assert reason in str(jobs["999"].reason)
    assert not any(job.confirmed for job in jobs.values())
    assert reason in str(parse_query(down).trouble)


def test_jobs_nobody_asked_about_are_told_as_well() -> None:
    """A run's next job may be waiting while only its last one is known here."""
    text = answer("2", **RECORDED_24_11)
    jobs = parse_query(text).jobs
    assert jobs["3"] == recorded("3")
    assert jobs["13_2"].job_id == "13_2"
    assert all(job.confirmed for job in jobs.values())
    assert parse_query(text).trouble is None


def test_a_job_that_another_cluster_of_the_federation_took() -> None:
    """State names after the documentation of federations; the run goes on elsewhere."""
    revoked = ROW.format(1, "REVOKED", "None")
    job = parse_query(answer("1", squeue=revoked)).jobs["1"]
    assert (job.state, job.reason, job.confirmed) == (JobState.UNKNOWN, "REVOKED", False)
    there = ROW.format(1, "RUNNING", "None")
    for rows in (f"{revoked}\n{there}", f"{there}\n{revoked}"):
        assert parse_query(answer("1", squeue=rows)).jobs["1"].state is JobState.RUNNING


def test_both_down() -> None:
    jobs = parse_query(answer("1 2", squeue_status=1, squeue_error="a\nb", sacct_status=1)).jobs
    assert {job.state for job in jobs.values()} == {JobState.UNKNOWN}
    assert jobs["1"].reason == "squeue failed: b"


def test_purged_and_unknown_ids_are_absent() -> None:
    assert parse_query(answer("1 2")).jobs == {}


def test_accounting_that_lags_behind_the_queue() -> None:
    jobs = parse_query(
        answer("1", squeue=ROW.format(1, "COMPLETED", "None"), sacct=BOOKED.format(1, "RUNNING"))
    ).jobs
    assert jobs["1"].state is JobState.COMPLETED
    jobs = parse_query(answer("1", sacct=BOOKED.format(1, "RUNNING"))).jobs
    assert jobs["1"].state is JobState.UNKNOWN
    assert "lags" in str(jobs["1"].reason)


def test_a_requeued_id_waits_again_though_accounting_knows_its_end() -> None:
    """As Slurm 22.05 shows a job between its preemption and its next start."""
    jobs = parse_query(
        answer("1", squeue=ROW.format(1, "PENDING", "BeginTime"), sacct=BOOKED.format(1, "PREEMPTED"))
    ).jobs
    assert jobs["1"].state is JobState.PENDING


def test_duplicates_of_a_requeued_id() -> None:
    """As `sacct --duplicates` and Slurm 20.11 in some settings print them: the newest comes last."""
    rows = "\n".join(BOOKED.format(1, state) for state in ("NODE_FAIL", "PREEMPTED", "COMPLETED"))
    job = parse_query(answer("1", sacct=rows)).jobs["1"]
    assert (job.state, job.restarts) == (JobState.COMPLETED, 2)


def test_memory_kill_booked_on_the_step_only() -> None:
    """As reported for Slurm 20.11 with jobacct_gather/cgroup: the job is FAILED, its step OUT_OF_MEMORY."""
    rows = BOOKED.format(1, "FAILED") + "\n" + BOOKED.format("1.batch", "OUT_OF_MEMORY")
    assert parse_query(answer("1", sacct=rows)).jobs["1"].state is JobState.OUT_OF_MEMORY
    rows = BOOKED.format(1, "COMPLETED") + "\n" + BOOKED.format("1.0", "OUT_OF_ME+")
    assert parse_query(answer("1", sacct=rows)).jobs["1"].state is JobState.COMPLETED


@pytest.mark.parametrize("limit", ["UNLIMITED", "NOT_SET", "Partition_Limit", "INVALID"])
def test_times_without_a_number(limit: str) -> None:
    """Slurm 20.11 writes NOT_SET and INVALID; sacct writes UNLIMITED and Partition_Limit."""
    row = ROW.format(1, "RUNNING", "None").replace("1:00|10:00", f"INVALID|{limit}")
    job = parse_query(answer("1", squeue=row)).jobs["1"]
    assert (job.elapsed_seconds, job.limit_seconds) == (None, None)


def test_a_reason_full_of_commas_and_blanks() -> None:
    """Slurm 22.05: `ReqNodeNotAvail, UnavailableNodes:n[1-3]`."""
    row = ROW.format(1, "PENDING", "ReqNodeNotAvail, UnavailableNodes:n[1-3]")
    assert parse_query(answer("1", squeue=row)).jobs["1"].reason == "ReqNodeNotAvail, UnavailableNodes:n[1-3]"


def test_unknown_states_keep_slurms_own_text() -> None:
    """Slurm 26.05 may bring states that nobody knows yet."""
    job = parse_query(answer("1", squeue=ROW.format(1, "HIBERNATED", "Cold"))).jobs["1"]
    assert (job.state, job.raw_state, job.reason) == (JobState.UNKNOWN, "HIBERNATED", "Cold")


def test_multi_cluster_ids_and_headers() -> None:
    text = f"""{MARK} ids 5;north
{MARK} begin squeue north
CLUSTER: north
{ROW.format(5, "RUNNING", "None")}
{MARK} status 0

{MARK} begin sacct north
{MARK} status 1
sacct: error
{MARK} end
""".replace("|", "\x1f")
    jobs = parse_query(text).jobs
    assert jobs["5;north"].state is JobState.RUNNING
    assert jobs["5;north"].job_id == "5;north"


def test_banners_and_line_ends_do_not_matter() -> None:
    text = "Welcome!\nPENDING 5\n" + answer("2", **RECORDED_24_11).replace("\n", "\r\n") + "bye\n"
    assert parse_query(text).jobs["2"].state is JobState.RUNNING
    with pytest.raises(SchedulerError):
        parse_query("Welcome!\n")


@given(cut=st.floats(0, 0.999))
def test_an_answer_cut_short_is_an_error_never_a_wrong_state(cut: float) -> None:
    text = answer("2 3", **RECORDED_24_11).rstrip("\n")
    with pytest.raises(SchedulerError, match="cut short"):
        parse_query(text[: int(len(text) * cut)])


@given(noise=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\x1e")), max_size=5))
def test_rows_that_make_no_sense_are_passed_over(noise: list[str]) -> None:
    for rows in ([RECORDED_24_11["squeue"], *noise], [*noise, RECORDED_24_11["squeue"]]):
        assert parse_query(answer("2", squeue="\n".join(rows))).jobs["2"].state is JobState.RUNNING


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 300),
        ("5:30", 330),
        ("1:00:00", 3600),
        ("1-2", 93600),
        ("1-2:3", 93780),
        ("1-2:3:4", 93784),
        ("UNLIMITED", None),
        ("", None),
        ("1:2:3:4", None),
    ],
)
def test_parse_time(text: str, seconds: int | None) -> None:
    assert parse_time(text) == seconds
