"""What the rules make of logs: one line a cause, in a real run directory, through the real script."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from clusterkit.backends.slurm import why
from clusterkit.backends.submission import Submission
from clusterkit.diagnosis import CAUSES, Diagnosis, Sure, diagnose, parse_evidence
from clusterkit.errors import RunError
from tests.diagnosis.run_dirs import RECORDED, ask, diagnosis_of, evidence_of, make_run, recorded

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    main()\n'

SAID = {
    "gpu-out-of-memory": (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "RuntimeError: CUDA out of memory",
        "trainer: the device's memory is too small for this recipe: CUDA out of memory.",
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total",
        "RuntimeError: HIP error: out of memory",
    ),
    "driver-too-old": (
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
        "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
    ),
    "no-gpu": (
        "RuntimeError: No CUDA GPUs are available",
        "AssertionError: Torch not compiled with CUDA enabled",
        "RuntimeError: No HIP GPUs are available",
        "RuntimeError: HIP error: no ROCm-capable device is detected",
        "terminate called after throwing an instance of 'hipError': hipErrorNoDevice",
        "Unable to open /dev/kfd read-write: No such file or directory",
    ),
    "gpu-refused": (
        "Unable to open /dev/kfd read-write: Permission denied",
        "sh: /dev/kfd: Permission denied",
    ),
    "gpu-unsupported": (
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "NVIDIA B200 with CUDA capability sm_100 is not compatible with the current PyTorch installation.",
        '"hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"',
        "RuntimeError: HIP error: invalid device function",
    ),
    "no-internet": (
        "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443):"
        " Max retries exceeded with url: /api/models",
    ),
    "process-limit": (
        "OSError: [Errno 24] Too many open files: '/tmp/x'",
        "RuntimeError: can't start new thread",
    ),
    "gpu-broken": ("RuntimeError: CUDA error: uncorrectable ECC error encountered",),
    "cuda-error": (
        "RuntimeError: CUDA error: device-side assert triggered",
        "RuntimeError: HIP error: an illegal memory access was encountered",
        "Memory access fault by GPU node-4 (Agent handle: 0x55d0) on address 0x7f00. Reason: Unknown.",
    ),
    "import-error": (
        "ModuleNotFoundError: No module named 'metaworld'",
        "ImportError: cannot import name 'make' from 'gym'",
    ),
    "library-missing": (
        "ImportError: libOSMesa.so.8: cannot open shared object file: No such file or directory",
    ),
    "library-too-old": (
        "ImportError: /lib64/libc.so.6: version `GLIBC_2.32' not found (required by /env/x.so)",
        "ImportError: /lib64/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by /env/x.so)",
        "python: /lib64/libstdc++.so.6: version `CXXABI_1.3.13' not found (required by python)",
    ),
    "memory-refused": (
        "MemoryError",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 37.3 GiB for an array",
    ),
    "out-of-memory": ("RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed.",),
    "shared-memory": (
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that"
        " dataloader's workers are out of shared memory. Please try to raise your shared memory limit."
        " insufficient shared memory (shm)",
    ),
    "diverged": (
        "trainer: 100 updates in a row had a loss or gradient that is not finite",
        "ValueError: Expected parameter loc to satisfy the constraint Real(), but found invalid values:",
    ),
    "worker-died": (
        "trainer: the environment worker of reach-v3 (pid 77) died by SIGSEGV",
        "trainer: an environment of reach-v3 in this process has not answered for 60 s",
        "trainer: an environment of reach-v3 failed: ValueError: the drawer fell off",
    ),
    "leader-gone": (
        "trainer: the process that trained this run, that of a-20260102-030405-k3f9-0, is gone",
        "trainer: the process that trained this run, that of a-0, has failed: the device is gone",
    ),
    "ended-too-soon": (
        "[clusterkit] the trainer's process ended with exit code 0 before it was done, at step 3000 of 24576:"
        " an environment may have ended it",
    ),
    "checkpoint-unusable": ("trainer: none of the checkpoints in /r/checkpoints can be used",),
    "no-display": ("mujoco.FatalError: an OpenGL platform library has not been loaded into this process",),
    "wandb-login": (
        "wandb: ERROR Unable to authenticate",
        "wandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=...)",
    ),
    "wandb-network": (
        "wandb.errors.CommError: Run initialization has timed out after 90.0 sec.",
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='api.wandb.ai', port=443):"
        " Max retries exceeded with url: /graphql",
    ),
    "wrong-argument": ("ValueError: batch_size must divide total_batch",),
    "home-full": ("OSError: [Errno 122] Disk quota exceeded",),
    "scratch-full": ("OSError: [Errno 28] No space left on device: '/tmp/replay.npy'",),
    "changeable": (
        "[clusterkit] another user could change /share/lab (group drwxrwsr-x pi lab); clusterkit doctor says"
        " more",
    ),
    "not-writable": ("PermissionError: [Errno 13] Permission denied: '/share/other/x'",),
    "prelude-ended": (
        "[clusterkit] the prelude ended its shell with status 0: the program was not started",
        "[rank 1] [clusterkit] the prelude ended its shell by SIGKILL: the program was not started",
    ),
    "program-missing": (
        "[clusterkit] the program 'trian.py' does not exist here (PATH=/usr/bin)",
        "[clusterkit] the interpreter of './run.sh', '/bin/bash\\r', does not exist here; its lines end",
    ),
    "code-missing": (
        "[clusterkit] the code folder /share/s/x does not exist on a40n1: submit the run again",
    ),
    "nodes-apart": (
        "[rank 1] [clusterkit] the nodes cannot meet: on n2, there is no network interface ib9 here",
    ),
    "still-runs": (
        "[clusterkit] attempt 0 still runs on a40n1: end its processes there, then resume the run",
    ),
    "launcher-failed": ("[clusterkit] cannot read /r/run.json: FileNotFoundError()",),
    "no-interpreter": (
        "bash: python3: command not found\n"
        "[clusterkit] python3 did not start the launcher: see the line above",
    ),
    "program-failed": (
        "ZeroDivisionError: division by zero",
        # Common last lines that no cause of their own explains: none may get the cure of another.
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x512 and 256x10)",
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/x.npy'",
        "ValueError: Input X contains NaN.",
        "ImportError: /env/flash_attn.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
        "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp, unhandled system error",
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE)",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        "OSError: [Errno 98] Address already in use",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD",
        "mpirun noticed that process rank 1 with PID 7 on node n1 exited on signal 11 (Segmentation fault).",
        "terminate called after throwing an instance of 'c10::Error'",
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 180224",
        "_pickle.UnpicklingError: invalid load key, '<'.",
    ),
}

REFUSED = {
    "the image /share/images/x.sif does not exist on a40n1: run clusterkit deploy": "image-missing",
    "the image /share/images/x.sif has 12 bytes, not 40960: run clusterkit deploy": "image-damaged",
    "the image /i/sha256-aa.sif is for x86_64, and node1 is aarch64: build it there": "image-architecture",
    "run.json records the image aa, and this script runs bb: submit the run again": "image-changed",
    "apptainer is not on PATH on a40n1: add what provides it (module load ...) to the cluster's prelude": (
        "runtime-missing"
    ),
    "srun on a40n1 has no --container-image: it lacks Pyxis": "runtime-missing",
    "something new": "container-failed",
}

WAITS = {
    "BadConstraints": "never-fits",
    "PartitionDown": "partition-closed",
    "JobHoldMaxRequeue": "launch-failed",
    "InvalidAccount": "bad-account",
    "InvalidQOS": "bad-account",
    "MaxJobsPerAccount": "association-limit",
    "AssocGrpCPUMinutesLimit": "association-limit",
    "QOSMaxJobsPerUserLimit": "qos-limit",
    "Dependency": "dependency",
    "ReqNodeNotAvail, Reserved for maintenance": "reserved",
    "Resources": "waiting",
    "Priority": "waiting",
    "SomethingNew": "waiting",
}


@pytest.mark.slow
@pytest.mark.parametrize(("slug", "text"), [(slug, text) for slug, texts in SAID.items() for text in texts])
def test_a_log_names_the_cause(slug: str, text: str, tmp_path: Path) -> None:
    diagnosis = diagnosis_of(make_run(tmp_path, f"starting\n{TRACEBACK}{text}\n"))
    assert diagnosis.finding.cause.slug == slug, diagnosis.finding
    assert any(line.source == "attempts/0/log" for line in diagnosis.finding.evidence)


@pytest.mark.parametrize("detail", REFUSED)
def test_the_exit_record_names_the_cause_of_a_container_that_did_not_start(
    detail: str, tmp_path: Path
) -> None:
    ended = {"code": 125, "why": "container", "detail": detail}
    assert diagnosis_of(make_run(tmp_path, ended=ended)).finding.cause.slug == REFUSED[detail]


NOT_BUILT = {
    "packages": "environment-packages",
    "compile": "environment-packages",
    "network": "environment-network",
    "python": "environment-python",
    "venv": "environment-tools",
    "conda": "environment-tools",
    "hash": "environment-hash",
    "disk": "environment-disk",
    "other": "environment-failed",
}


@pytest.mark.parametrize("cause", NOT_BUILT)
def test_the_exit_record_names_the_cause_of_an_environment_that_was_not_built(
    cause: str, tmp_path: Path
) -> None:
    detail = f"the environment of uv.lock could not be built ({cause}): ERROR: (so) it is"
    finding = diagnosis_of(make_run(tmp_path, ended={"code": 1, "why": "failed", "detail": detail})).finding
    assert finding.cause.slug == NOT_BUILT[cause]
    assert [line.text for line in finding.evidence] == ["ERROR: (so) it is"]


@pytest.mark.parametrize("reason", WAITS)
def test_the_schedulers_reason_names_the_cause(reason: str) -> None:
    text = recorded("waiting--").replace("BeginTime", reason)
    finding = diagnose(parse_evidence(text)).finding
    assert finding.cause.slug == WAITS[reason]
    assert finding.evidence


@pytest.mark.parametrize(
    ("ended", "slug"),
    [
        ({"code": 139, "why": "signalled", "signal": "SEGV"}, "killed-by-signal"),
        ({"code": 130, "why": "signalled", "signal": "INT"}, "interrupted"),
        ({"code": 143, "why": "signalled", "signal": "TERM"}, "interrupted"),
        ({"code": 152, "why": "signalled", "signal": "XCPU"}, "killed-by-signal"),
        ({"code": 137, "why": "signalled", "signal": "KILL"}, "out-of-memory"),
        ({"code": 124, "why": "timeout", "signal": "TERM"}, "time-limit"),
        ({"code": 0, "why": "completed"}, "completed"),
        ({"code": 2}, "program-failed"),
    ],
)
def test_the_exit_record_alone(ended: dict[str, object], slug: str, tmp_path: Path) -> None:
    assert diagnosis_of(make_run(tmp_path, "hello\n", ended=ended)).finding.cause.slug == slug


@pytest.mark.parametrize(
    "ended",
    [
        {"code": 143, "why": "signalled", "signal": "TERM"},
        {"code": 137, "why": "signalled", "signal": "KILL"},
        {"code": 85, "why": "requeue", "signal": "TERM"},
        {},
    ],
    ids=["ended", "killed", "saved", "no record"],
)
def test_a_killed_supervisor_explains_how_its_own_job_ended(ended: dict[str, object], tmp_path: Path) -> None:
    run = make_run(tmp_path, "hello\n", ended=ended)
    start = run / "attempts" / "0" / "start.json"
    start.write_text(start.read_text().replace('"job_id": ""', '"job_id": "999999-2"'))
    if not ended:
        (run / "attempts" / "0" / "exit.json").unlink()
    for job, explains in (("999999-2", True), ("999999-1", False)):
        said = f"[clusterkit] the supervisor of job {job} was killed, so the job is ended\n"
        (run / "slurm.log").write_text(said)
        assert (diagnosis_of(run).finding.cause.slug == "supervisor-killed") is explains


def test_a_job_that_has_lost_its_supervisor_is_no_job_that_is_well(tmp_path: Path) -> None:
    run = make_run(tmp_path, "hello\n")
    start = run / "attempts" / "0" / "start.json"
    start.write_text(start.read_text().replace('"job_id": ""', '"job_id": "999999-2"'))
    (run / "attempts" / "0" / "exit.json").unlink(missing_ok=True)
    left = subprocess.Popen(
        ["sleep", "60"], env={"PATH": os.environ["PATH"], "CLUSTERKIT_JOB_ID": "999999-2"}
    )
    try:
        finding = diagnose(parse_evidence(ask(run, "999999-2"))).finding
        assert finding.cause.slug == "unsupervised"
    finally:
        left.kill()
        left.wait()


@pytest.mark.parametrize(
    ("log", "sender"),
    [
        ("[clusterkit] caught SIGINT\nKeyboardInterrupt\n", "`scancel --signal`"),
        ("KeyboardInterrupt\n", "`kill` on the node"),
    ],
)
def test_an_interruption_names_who_may_have_sent_it(log: str, sender: str, tmp_path: Path) -> None:
    ended = {"code": 130, "why": "signalled", "signal": "INT"}
    finding = diagnosis_of(make_run(tmp_path, log, ended=ended)).finding
    assert sender in finding.cure
    assert "SEGV" not in finding.cure
    assert finding.evidence[1].text in log


def test_the_scheduler_is_surer_than_a_log() -> None:
    text = recorded("time-limit--").replace(
        "attempts/0/log\n", "attempts/0/log\nRuntimeError: CUDA out of memory\n", 1
    )
    diagnosis = diagnose(parse_evidence(text))
    assert diagnosis.finding.cause.slug == "time-limit"
    assert [other.cause.slug for other in diagnosis.also] == ["gpu-out-of-memory"]


def test_what_a_program_has_coped_with_is_not_the_cause(tmp_path: Path) -> None:
    went_on = "".join(f"step {number}\n" for number in range(100))
    log = (
        f"RuntimeError: CUDA out of memory\n{went_on}{TRACEBACK}ModuleNotFoundError: No module named 'cv2'\n"
    )
    diagnosis = diagnosis_of(make_run(tmp_path, log))
    assert diagnosis.finding.cause.slug == "import-error"
    assert [other.sure for other in diagnosis.also] == [Sure.SEEN]


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory", True),
        ("KeyError: 'lr'", True),
        ("AssertionError", True),
        ("UserWarning: this is slow", False),
        ("no Error: 0 of 3", False),
        ("KeyError: 'lr'\nbut it went on", False),
    ],
)
def test_a_completed_run_whose_log_ends_with_an_exception_says_so(
    tmp_path: Path, last: str, told: bool
) -> None:
    """`python train.py | tee log` ends with tee's exit code."""
    end = "[clusterkit] the program ended\n[clusterkit] attempt 0 ended: completed, exit code 0"
    log = f"Traceback (most recent call last):\n{last}\n{end}\n"
    finding = diagnosis_of(make_run(tmp_path, log, ended={"code": 0, "why": "completed"})).finding
    assert finding.cause.slug == "completed"
    assert ("ends with an error" in finding.sentence) == told
    assert finding.next == ("clusterkit logs r-1" if told else "clusterkit sync-results r-1")


def test_a_completed_run_may_have_lost_its_curves(tmp_path: Path) -> None:
    log = "W&B is off: no disk\nstep 1\n"
    diagnosis = diagnosis_of(make_run(tmp_path, log, ended={"code": 0, "why": "completed"}))
    assert diagnosis.finding.cause.slug == "completed"
    assert [other.cause.slug for other in diagnosis.also] == ["wandb-lost"]


@pytest.mark.parametrize(
    ("log", "ended", "causes"),
    [
        ("fine\n", {"code": 0, "why": "completed"}, ["completed", "prelude-failed"]),
        ("hello\n", {"code": 2}, ["prelude-failed"]),
        ("ModuleNotFoundError: No module named 'torch'\n", {}, ["prelude-failed", "import-error"]),
        ("RuntimeError: CUDA out of memory\n", {}, ["gpu-out-of-memory", "prelude-failed"]),
        ("", {"detail": "the prelude failed, and strict_prelude is set: `x`"}, ["prelude-failed"]),
    ],
)
def test_a_line_of_the_prelude_that_failed(
    tmp_path: Path, log: str, ended: dict[str, object], causes: list[str]
) -> None:
    fault = "`source /x/activate` ended with status 1"
    run = make_run(tmp_path, f"[clusterkit] prelude: {fault}\n{log}", ended={"prelude": fault, **ended})
    diagnosis = diagnosis_of(run)
    found = [diagnosis.finding, *diagnosis.also]
    assert [finding.cause.slug for finding in found] == causes
    assert fault in next(finding for finding in found if finding.cause.slug == "prelude-failed").sentence


def test_a_run_nobody_understands_shows_its_last_lines(tmp_path: Path) -> None:
    diagnosis = diagnosis_of(make_run(tmp_path, "one\ntwo\n", ended={"why": "strange"}))
    assert diagnosis.finding.cause.slug == "unknown"
    assert [line.text for line in diagnosis.finding.evidence] == ["one", "two"]


def alive(run: Path) -> Diagnosis:
    """Of a run whose job runs."""
    (run / "attempts/0/exit.json").unlink()
    text = ask(run, "12-34").replace("clusterkit begin jobs\n", "clusterkit begin jobs\n12-34\n")
    return diagnose(parse_evidence(text))


def test_a_run_that_is_alive_is_well(tmp_path: Path) -> None:
    run = make_run(tmp_path, heartbeat={"time": time.time(), "step": 5, "total_steps": 10})
    finding = alive(run).finding
    assert finding.cause.slug == "running"
    assert "50%" in finding.sentence


def test_a_hang_shows_what_it_met_before(tmp_path: Path) -> None:
    log = "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed.\n"
    run = make_run(tmp_path, log, heartbeat={"time": time.time() - 500, "step": 5, "total_steps": 10})
    diagnosis = alive(run)
    assert diagnosis.finding.cause.slug == "hangs"
    assert [other.cause.slug for other in diagnosis.also] == ["out-of-memory"]


def test_a_run_directory_that_is_gone(tmp_path: Path) -> None:
    text = ask(tmp_path / "nowhere", "12-34")
    assert diagnose(parse_evidence(text)).finding.cause.slug == "run-directory-gone"


@pytest.mark.slow
def test_the_answer_is_bounded_and_a_log_cannot_imitate_it(tmp_path: Path) -> None:
    line = "\x1eclusterkit status 0\n\x1eclusterkit end\n" + "x" * 200 + "\n"
    run = make_run(tmp_path, line * 5000, slurm_log="y" * 10**6)
    assert len(ask(run)) < 100_000
    assert evidence_of(run).exit["code"] == 1


@pytest.mark.parametrize("scheduler", ["local", "slurm"])
def test_a_run_of_this_machine_is_not_sent_to_this_machine(tmp_path: Path, scheduler: str) -> None:
    evidence = evidence_of(make_run(tmp_path))
    there = replace(evidence, subject=replace(evidence.subject, scheduler=scheduler))
    finding = diagnose(there).finding
    assert finding.cause.slug == "program-failed"
    assert ("--cluster local" in finding.cure) is (scheduler == "slurm")


@pytest.mark.parametrize(
    "lines",
    [
        ('  File "{}syn.py", line 2', "    x = (1,", "        ^", "SyntaxError: '(' was never closed"),
        ('  File "{}a.py", line 1, in <module>', "    1 / 0", "ZeroDivisionError: division by zero"),
        ('  File "{}b.py", line 1, in f', "KeyError: 'a'"),
    ],
)
def test_an_exception_shows_its_place(tmp_path: Path, lines: tuple[str, ...]) -> None:
    run = make_run(tmp_path)
    log = "\n".join(("x", *lines, ""))
    (run / "attempts/0/log").write_text(log.format(f"{run}/work/"))
    shown = [line.text for line in diagnosis_of(run).finding.evidence]
    assert shown[:-1] == [line.format("") for line in lines]


def test_a_module_is_missing_from_the_python_that_runs_the_program(tmp_path: Path) -> None:
    log = "ModuleNotFoundError: No module named 'cv2.x'\n"
    run = make_run(tmp_path / "bare", log, script="python=/opt/py/bin/python\n")
    assert "`/opt/py/bin/python -m pip install cv2`" in diagnosis_of(run).finding.cure
    run = make_run(tmp_path / "image", log, script="python=python\nimage=/x/i.sif\n")
    assert "to the image (`clusterkit build`)" in diagnosis_of(run).finding.cure


def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "attempts/0/log").write_bytes(b"\xff\xfe\x00\x1b[31mred\n")
    assert diagnosis_of(run).finding.cause.slug == "program-failed"


def test_a_damaged_job_script_does_no_harm(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "job.sh").write_text("#!/bin/bash\nscratch_root='no end\nimage=$(exit 3)\nsnapshot=(\n")
    assert diagnosis_of(run).finding.cause.slug == "program-failed"


def test_a_gpu_that_is_hardly_used_is_said(tmp_path: Path) -> None:
    gpu = {"name": "NVIDIA A40", "utilization": 0.12}
    beat = {
        "time": time.time(),
        "step": 5,
        "total_steps": 10,
        "phase": "train",
        "gpu": gpu,
        "cpu_share": 0.97,
    }
    run = make_run(tmp_path, heartbeat=beat)
    diagnosis = alive(run)
    assert diagnosis.finding.cause.slug == "running"
    assert [other.cause.slug for other in diagnosis.also] == ["gpu-idle"]
    assert "12%" in diagnosis.also[0].sentence


def test_an_answer_cut_short_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="could not be read"):
        parse_evidence(ask(make_run(tmp_path))[:800])


def submitted(run: Path, **files: str) -> Path:
    """The same run before its first start, with one submission."""
    shutil.rmtree(run / "attempts")
    (run / "submissions/0").mkdir(parents=True)
    for name, text in {"request.json": '{"options": ["--nosuch=3"]}', **files}.items():
        (run / "submissions/0" / name).write_text(text)
    return run


def test_a_refused_submission_shows_the_words_and_the_cure(tmp_path: Path) -> None:
    error = "sbatch: unrecognized option '--nosuch=3'\nTry \"sbatch --help\" for more information\n"
    run = submitted(make_run(tmp_path), asked="5", status="1", answer="", error=error)
    finding = diagnose(parse_evidence(ask(run, scheduler="slurm"))).finding
    assert finding.cause.slug == "submission-refused"
    assert finding.sentence.endswith("it: unrecognized option '--nosuch=3'")
    assert "`sbatch` table" in finding.cure
    assert "--nosuch=3" in str(finding.evidence[-1])


@pytest.mark.parametrize(
    ("files", "slug"),
    [
        ({}, "never-submitted"),
        ({"asked": "NOW"}, "submitting"),
        ({"request.json": '{"fed": true}'}, "deferred"),
    ],
)
def test_a_submission_says_how_far_it_came(tmp_path: Path, files: dict[str, str], slug: str) -> None:
    now = {name: text.replace("NOW", str(int(time.time()))) for name, text in files.items()}
    assert diagnosis_of(submitted(make_run(tmp_path), **now)).finding.cause.slug == slug


def test_a_submission_that_was_interrupted_before_anything_was_written(tmp_path: Path) -> None:
    finding = diagnose(parse_evidence(ask(tmp_path / "runs" / "r-1"))).finding
    assert finding.cause.slug == "never-submitted"
    assert finding.next == "clusterkit submit --profile tiny"
    assert "does not exist" in finding.evidence[0].text


OOM = "slurmstepd-a40n1: error: Detected 1 oom_kill event in StepId=25.batch. Some of the step tasks have"
PREEMPTED = (
    "slurmstepd-a40n1: error: *** JOB 25 ON a40n1 CANCELLED AT 2026-11-20T12:43:13 DUE TO PREEMPTION ***"
)


def forgotten_by_slurm(run: Path, job_id: str) -> str:
    """The answer about a run whose job Slurm does not know any more."""
    return ask(run, scheduler="slurm").replace("\njob \n", f"\njob {job_id}\n")


def start_again(run: Path, job_id: str, log: str) -> None:
    """Another start, which the program ended with exit code 1."""
    first, again = run / "attempts" / "0", run / "attempts" / "1"
    shutil.copytree(first, again)
    start = json.loads((first / "start.json").read_text())
    (first / "start.json").write_text(json.dumps(start | {"job_id": "25"}))
    (again / "start.json").write_text(json.dumps(start | {"attempt": 1, "job_id": job_id}))
    (again / "log").write_text(log)


def test_what_became_of_an_earlier_job_is_not_the_cause(tmp_path: Path) -> None:
    run = make_run(tmp_path, slurm_log=f"{OOM}\n")
    start_again(run, "30", f"{TRACEBACK}ModuleNotFoundError: No module named 'cv2'\n")
    diagnosis = diagnose(parse_evidence(forgotten_by_slurm(run, "30")))
    assert diagnosis.finding.cause.slug == "import-error"
    assert diagnosis.also == ()


def test_a_preemption_before_the_last_start_is_not_the_cause(tmp_path: Path) -> None:
    run = make_run(tmp_path, slurm_log=f"{PREEMPTED}\n")
    start_again(run, "25", f"{TRACEBACK}ModuleNotFoundError: No module named 'cv2'\n")
    finding = diagnose(parse_evidence(forgotten_by_slurm(run, "25"))).finding
    assert finding.cause.slug == "import-error"


def test_a_preemption_that_only_the_log_tells_of_is_the_cause(tmp_path: Path) -> None:
    run = make_run(tmp_path, ended={"code": 143, "why": "signalled", "signal": "TERM"}, slurm_log=PREEMPTED)
    finding = diagnose(parse_evidence(forgotten_by_slurm(run, "25"))).finding
    assert finding.cause.slug == "preempted"
    assert "DUE TO PREEMPTION" in finding.evidence[0].text


@pytest.mark.parametrize(
    ("ended", "slug"),
    [({}, "import-error"), ({"code": 137, "why": "signalled", "signal": "KILL"}, "out-of-memory")],
)
def test_of_a_pack_the_one_that_was_killed_had_too_little_memory(
    ended: dict[str, object], slug: str, tmp_path: Path
) -> None:
    log = f"{TRACEBACK}ModuleNotFoundError: No module named 'cv2'\n" if not ended else "step 1\n"
    run = make_run(tmp_path, log, ended=ended, slurm_log=f"{OOM}\n")
    (run / "submissions" / "0").mkdir(parents=True)
    (run / "submissions" / "0" / "request.json").write_text(json.dumps({"number": 0, "pack": 2}))
    assert diagnose(parse_evidence(forgotten_by_slurm(run, ""))).finding.cause.slug == slug


def test_of_an_array_the_task_that_runs_counts() -> None:
    text = recorded("running--")
    (row,) = re.findall(r"(?<=begin squeue\n).*", text)
    job_id = row.partition("\x1f")[0]
    waiting = f"{job_id}_[1-9%1]\x1fPENDING\x1fJobArrayTaskLimit\x1fgpu\x1f\x1fN/A\x1f0:00\x1f10:00"
    array = text.replace(row, f"{waiting}\n{row.replace(job_id, f'{job_id}_0', 1)}")
    array = array.replace("part job\n", f"part job\nJobId={job_id}\n   JobState=PENDING Reason=None\n\n")
    finding = diagnose(parse_evidence(array)).finding
    assert finding == diagnose(parse_evidence(text)).finding
    assert finding.cause.slug == "running"


def test_a_run_that_was_stopped_for_making_no_progress(tmp_path: Path) -> None:
    run = make_run(tmp_path, ended={"code": 85, "why": "requeue"})
    (run / "stopped.json").write_text('{"why": "no progress in two attempts at step 5", "time": 1}')
    finding = diagnosis_of(run).finding
    assert finding.cause.slug == "no-progress"
    assert "two attempts at step 5" in finding.sentence


def test_a_run_that_left_the_queue_without_a_start(tmp_path: Path) -> None:
    run = make_run(tmp_path, slurm_log="slurmstepd: error: execve(): bash: Permission denied\n")
    shutil.rmtree(run / "attempts")
    finding = diagnose(parse_evidence(ask(run, "12-34"))).finding
    assert finding.cause.slug == "never-started"
    assert "execve" in finding.evidence[0].text


def test_a_run_directory_on_a_full_disk(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "attempts/0/log").write_text(f"cp: error writing '{run}/checkpoints/x': No space left on device\n")
    assert diagnosis_of(run).finding.cause.slug == "root-full"


@pytest.mark.parametrize(
    ("name", "said", "instead", "slug"),
    [
        ("running--", "\x1fRUNNING\x1f", "\x1fSUSPENDED\x1f", "suspended"),
        ("running--", "\x1fRUNNING\x1f", "\x1fCOMPLETING\x1f", "ending"),
        ("time-limit--", "TIMEOUT", "DEADLINE", "deadline"),
        ("cancelled-by-other--", "CANCELLED by 0", "CANCELLED", "cancelled"),  # nobody knows by whom
    ],
)
def test_the_schedulers_state_names_the_cause(name: str, said: str, instead: str, slug: str) -> None:
    text = recorded(name).replace(said, instead, 1 if "running" in name else -1)
    assert diagnose(parse_evidence(text)).finding.cause.slug == slug


def saying(text: str, words: str, *parts: str) -> str:
    """A recorded answer in which Slurm's commands, by default all of them, have said this instead."""
    for part in parts or ("squeue", "sacct", "job"):
        text = re.sub(rf"(begin {part}\n).*?(?=\n\x1e)", rf"\1{words}\n", text, flags=re.S)
    return text


def test_accounting_that_lags_behind_is_not_believed() -> None:
    lagging = saying(recorded("node-failed--"), "", "squeue", "job").replace("NODE_FAIL", "RUNNING")
    assert diagnose(parse_evidence(lagging)).finding.cause.slug == "node-failed"


def test_a_scheduler_that_gives_no_answer_is_said(tmp_path: Path) -> None:
    text = recorded("waiting--")
    silent = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    finding = diagnose(parse_evidence(saying(text, silent))).finding
    assert finding.cause.slug == "scheduler-silent"
    assert finding.next.endswith("scontrol ping")


def test_a_log_does_not_tell_whether_a_run_of_a_silent_scheduler_has_ended() -> None:
    text = recorded("hangs--").replace("step 40, sampling a batch", "RuntimeError: CUDA out of memory")
    diagnosis = diagnose(parse_evidence(saying(text, "no answer within 10 s")))
    assert diagnosis.finding.cause.slug == "scheduler-silent"
    assert [other.cause.slug for other in diagnosis.also] == ["gpu-out-of-memory"]


def test_a_silent_scheduler_does_not_matter_when_the_exit_record_tells(tmp_path: Path) -> None:
    text = saying(recorded("import-error--"), "no answer within 10 s")
    assert diagnose(parse_evidence(text)).finding.cause.slug == "import-error"


def test_every_cause_has_a_test() -> None:
    slugs = [cause.slug for cause in (*CAUSES, *why.CAUSES)]
    assert len(slugs) == len(set(slugs))
    real = {path.stem.partition("--")[0] for path in RECORDED.glob("*.txt")}
    text = Path(__file__).read_text()
    assert [slug for slug in slugs if slug not in real and f'"{slug}"' not in text] == []


@pytest.mark.slow
def test_without_an_image_a_missing_gpu_is_no_matter_of_an_image(tmp_path: Path) -> None:
    said = "trainer: CUDA is requested, but PyTorch 2.13.0+cpu sees no GPU\n  this one has none\n"
    finding = diagnose(parse_evidence(ask(make_run(tmp_path / "bare", said)))).finding
    assert finding.cause.slug == "no-gpu"
    assert finding.next == "clusterkit profiles"
    assert "local-demo" in finding.cure
    contained = make_run(tmp_path / "sif", said, script="image=/share/x.sif\n")
    assert diagnose(parse_evidence(ask(contained))).finding.next == "clusterkit build --help"


@pytest.mark.parametrize(
    ("name", "line"), [("node-failed--", "node_failures = 2"), ("out-of-memory--", 'memory_up_to = "120M"')]
)
def test_what_could_be_tried_again_is_offered(name: str, line: str) -> None:
    assert f"`{line}` in [profiles." in diagnose(parse_evidence(recorded(name))).finding.cure


def test_a_run_that_was_tried_again_says_so() -> None:
    evidence = parse_evidence(recorded("out-of-memory--"))
    again = Submission(9, "retry", retry="with 120M after out of memory")
    ended = {"why": "signalled", "detail": "not tried again: 120M is the most that memory_up_to allows"}
    attempts = tuple(replace(attempt, exit=ended) for attempt in evidence.record.attempts)
    record = replace(evidence.record, attempts=attempts, submissions=(again,))
    finding = diagnose(replace(evidence, record=record)).finding
    assert [line.text for line in finding.evidence][-2:] == [
        ended["detail"],
        "try 2, with 120M after out of memory",
    ]
    assert finding.cure == finding.cause.cure


@pytest.mark.parametrize(
    ("log", "exit_record", "words"),
    [
        ("RuntimeError: CUDA out of memory\n", {}, "num_envs"),
        ("", {"code": 137, "why": "signalled", "signal": "KILL"}, "replay buffer"),
    ],
)
def test_only_a_run_of_a_recipe_is_told_of_the_trainers_settings(
    tmp_path: Path, log: str, exit_record: dict[str, object], words: str
) -> None:
    evidence = evidence_of(make_run(tmp_path, log, ended=exit_record))
    own = diagnose(evidence).finding
    of_recipe = diagnose(replace(evidence, subject=replace(evidence.subject, recipe="sac"))).finding
    assert own.cause == of_recipe.cause
    assert words not in own.cure
    assert words in of_recipe.cure
    assert of_recipe.cure.startswith(own.cure)


def test_no_cure_for_every_program_names_a_setting_of_the_trainer() -> None:
    trainers = r"`(num_envs|workers|eval_\w+|checkpoint_every|max_grad_norm|precision)`|replay|trainer's"
    for cause in CAUSES:
        assert cause.slug == "ended-too-soon" or not re.search(trainers, cause.cure), cause.slug
