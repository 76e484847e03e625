"""What runs teach about the next one: each rule with the numbers that set it off, and those that do not."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from clusterkit.backends.submission import Submission
from clusterkit.report.advice import GroupAdvice, RuleCheck, advise
from clusterkit.report.evidence import RunEvidence, asked, read_evidence
from clusterkit.report.groups import read_runs
from clusterkit.report.measured import Measured, measure
from clusterkit.report.needs import ResourceNeed
from tests.results.run_dirs import STARTED, evaluation, make_run_dir, write_metrics

GIB = 1 << 30
PROFILE = {"gpu": "a40", "gpus": 1, "cpus": 16, "memory": 64 * GIB, "time": 36_000}
HEADER = {
    "num_envs": 10,
    "precision": "fp32",
    "device": "NVIDIA A40",
    "processors": 16,
    "versions": {"capability": "8.6", "memory_bytes": 48 * GIB},
}
VALUES = {"tasks": ["MT10"], "env_steps_per_update": 10.0}


def split(**parts: float) -> dict[str, float]:
    """A time split: the parts named, and the rest as `other`."""
    whole = {f"time/{name}": 0.0 for name in ("learn", "act", "env", "evaluate", "checkpoint")}
    whole |= {f"time/{name}": part for name, part in parts.items()}
    return whole | {"time/other": 1 - sum(parts.values())}


def evidence(results: Path, name: str = "a", **machine: Any) -> RunEvidence:
    """A run on an A40 whose training lines say these things."""
    header, profile = HEADER | machine.pop("header", {}), PROFILE | machine.pop("profile", {})
    speed, diagnostics = machine.pop("speed", 4000.0), machine.pop("diagnostics", {})
    folder = make_run_dir(
        results,
        name,
        name=name,
        values=VALUES,
        profile=profile,
        header=header,
        machine=machine.pop("machine", {}) | machine,
        diagnostics=diagnostics,
        speed=speed,
        restarted_at=machine.get("restarted_at"),
    )
    return read_evidence(read_runs([folder])[0])


def one(*runs: RunEvidence) -> GroupAdvice:
    return next(iter(advise({"a": [measure(run) for run in runs]})))


def check(advice: GroupAdvice, beginning: str) -> RuleCheck | None:
    return next((check for check in advice.checks if check.rule.startswith(beginning)), None)


def need(advice: GroupAdvice, resource: str) -> ResourceNeed:
    return next(need for need in advice.needs if need.resource == resource)


def settings(advice: GroupAdvice) -> dict[str, float]:
    return {change.setting: change.factor for change in advice.changes}


@pytest.mark.parametrize(
    ("parts", "gpu", "part"),
    [
        ({"learn": 0.8, "env": 0.1}, None, "learn"),
        ({"learn": 0.2, "env": 0.6}, 0.2, "env"),
        ({"learn": 0.1, "act": 0.6, "env": 0.2}, 0.3, "act"),
        ({"learn": 0.1, "act": 0.6, "env": 0.2}, 0.9, "learn"),  # the wait for a busy GPU shows in `act`
        ({"learn": 0.2, "evaluate": 0.7}, 0.2, "evaluate"),
        ({"learn": 0.2, "checkpoint": 0.7}, 0.2, "checkpoint"),
    ],
)
def test_what_binds(tmp_path: Path, parts: dict[str, float], gpu: float | None, part: str) -> None:
    machine = split(**parts) | ({} if gpu is None else {"gpu/utilization": gpu})
    advice = one(evidence(tmp_path, machine=machine))
    assert advice.bottleneck.part == part


def test_a_program_that_times_nothing_gets_no_guess(tmp_path: Path) -> None:
    advice = one(evidence(tmp_path))
    assert advice.bottleneck is None
    assert advice.changes == ()
    assert check(advice, "Slower") is None


def test_physics_on_too_few_processors_wants_processors(tmp_path: Path) -> None:
    machine = split(env=0.6, act=0.1, learn=0.2)
    advice = one(evidence(tmp_path, machine=machine, header={"num_envs": 30, "precision": "bf16"}))
    assert settings(advice) == pytest.approx({"cpus = 32": 1 / 0.7, "num_envs = 60": 1 / 0.95})


def test_physics_with_a_processor_each_wants_more_environments(tmp_path: Path) -> None:
    machine = split(env=0.6, act=0.1, learn=0.2)
    advice = one(evidence(tmp_path, machine=machine, header={"precision": "bf16"}))
    assert settings(advice) == pytest.approx({"num_envs = 20": 1 / 0.65})
    assert "multiple of the 10 tasks" in advice.changes[0].why


def test_a_learner_that_fills_the_gpu_wants_cheaper_updates(tmp_path: Path) -> None:
    machine = split(learn=0.5, act=0.3, env=0.1) | {"gpu/utilization": 0.9}
    advice = one(evidence(tmp_path, machine=machine))
    assert settings(advice)['precision = "tf32"'] == pytest.approx(1 / 0.6)
    assert "only cheaper ones help" in advice.changes[0].why


@pytest.mark.parametrize(
    ("header", "gpu"),
    [({"precision": "bf16"}, 0.9), ({"versions": {"capability": "7.0"}}, 0.9), ({}, 0.3)],
    ids=["nothing is cheaper", "a GPU without TF32", "kernels that do not fill it"],
)
def test_no_precision_where_it_would_not_help(tmp_path: Path, header: dict[str, Any], gpu: float) -> None:
    machine = split(learn=0.8) | {"gpu/utilization": gpu}
    advice = one(evidence(tmp_path, machine=machine, header=header))
    assert not [name for name in settings(advice) if "precision" in name]


def test_small_gains_are_not_worth_a_sentence(tmp_path: Path) -> None:
    machine = split(learn=0.9, env=0.02, act=0.02, evaluate=0.03, checkpoint=0.03)
    advice = one(evidence(tmp_path, machine=machine, header={"precision": "bf16"}))
    assert advice.changes == ()


def test_what_another_group_showed_is_measured(tmp_path: Path) -> None:
    slow = evidence(tmp_path, "slow", machine=split(env=0.6), speed=1000.0)
    quick = evidence(tmp_path, "quick", machine=split(env=0.3), header={"num_envs": 40}, speed=3000.0)
    groups = {name: [measure(run)] for name, run in (("slow", slow), ("quick", quick))}
    first, second = advise(groups)
    (change,) = [change for change in first.changes if change.measured]
    assert change.setting == "num_envs = 40"
    assert change.factor == pytest.approx(3.0, rel=0.1)
    assert "times as fast" in change.gain
    assert "at most" not in change.gain
    assert not [change for change in second.changes if change.measured]


def test_groups_whose_speeds_overlap_show_nothing(tmp_path: Path) -> None:
    header = {"num_envs": 40}
    ours = [evidence(tmp_path, f"a{n}", speed=speed) for n, speed in enumerate((1000.0, 2500.0))]
    theirs = [
        evidence(tmp_path, f"b{n}", speed=speed, header=header) for n, speed in enumerate((2000.0, 5000.0))
    ]
    groups = {name: [measure(run) for run in runs] for name, runs in (("a", ours), ("b", theirs))}
    assert [change for one in advise(groups) for change in one.changes if change.measured] == []


def test_processors_that_others_use(tmp_path: Path) -> None:
    header = {"processors": 2, "versions": {"capability": None}}
    for name, share, verdict in (("a", 0.2, "act"), ("b", 0.6, "fine")):
        machine = split(learn=0.8, act=0.1) | {"cpu/share": share}
        found = check(
            one(evidence(tmp_path, name, machine=machine, header=header)), "Slower than expected: the pro"
        )
        assert found.verdict == verdict
        assert (
            found.measured
            == f"90% of the time is learning, acting and physics, by {2 * share:.1f} processors"
        )


def test_dormant_neurons(tmp_path: Path) -> None:
    key = "diagnostics/dormant/critic"
    many = check(one(evidence(tmp_path, "a", diagnostics={key: 0.49})), "Plasticity")
    few = check(one(evidence(tmp_path, "b", diagnostics={key: 0.15})), "Plasticity")
    assert (many.verdict, few.verdict) == ("act", "fine")
    assert many.measured.startswith("49%")
    assert check(one(evidence(tmp_path, "c")), "Plasticity") is None


def test_skipped_updates(tmp_path: Path) -> None:
    found = check(one(evidence(tmp_path, machine={"updates_skipped": 7})), "Training unstable")
    assert found.measured == "7 updates were skipped"


@pytest.mark.parametrize(
    ("line", "short"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", ["GPU memory"]),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0", ["memory"]),
        ("all is well", []),
    ],
)
def test_out_of_memory_is_read_from_the_log(tmp_path: Path, line: str, short: list[str]) -> None:
    run = evidence(tmp_path, machine={"memory/rss_bytes": 20 * GIB, "gpu/memory_bytes": 40 * GIB})
    (run.run.directory.path / "attempts" / "0" / "log").write_text(f"start\n{line}\n")
    assert [need.resource for need in one(read_evidence(run.run)).short] == short


def test_memory_for_the_next_run(tmp_path: Path) -> None:
    advice = one(*(evidence(tmp_path, f"r{n}", machine={"memory/rss_bytes": n * GIB}) for n in (3, 10)))
    found = need(advice, "memory")
    assert (found.requested, found.used) == ("64 GiB", "10 GiB, 16%")
    assert (found.enough, found.setting) == ("13 GiB", 'memory = "13G"')


def test_a_request_that_fits_is_left_alone(tmp_path: Path) -> None:
    machine = {"memory/rss_bytes": 45 * GIB, "cpu/share": 0.8} | split(learn=0.9)
    header = {"num_envs": 20}
    advice = one(evidence(tmp_path, machine=machine, header=header, profile={"time": 5000}))
    assert {found.resource: found.setting for found in advice.needs} == dict.fromkeys(
        ("memory", "CPUs", "time")
    )


def test_processors(tmp_path: Path) -> None:
    idle = {"cpu/share": 0.25} | split(learn=0.9)
    assert need(one(evidence(tmp_path, "a", machine=idle)), "CPUs").setting == "cpus = 5"
    waits = {"cpu/share": 0.25} | split(env=0.5)
    bound = need(one(evidence(tmp_path, "b", machine=waits, header={"num_envs": 30})), "CPUs")
    assert (bound.enough, bound.setting) == ("16", None)
    more = need(one(evidence(tmp_path, "c", machine=waits, header={"num_envs": 4})), "CPUs")
    assert more.setting == "cpus = 6"  # more than environments, learner and evaluation lie idle


def test_time_of_a_finished_and_of_a_stopped_run(tmp_path: Path) -> None:
    done = need(one(evidence(tmp_path, "a")), "time")  # 3,723 s, and a quarter more
    assert (done.requested, done.used, done.setting) == ("10h 00m", "1h 02m in all", 'time = "1h30m"')
    run = evidence(tmp_path, "b", profile={"time": 3600})
    folder = run.run.directory.path
    rows = [{"kind": "train", "step": 64_000, "time": STARTED + 3600, "attempt": 0}]
    write_metrics(folder, rows)  # a quarter of its steps
    (folder / "attempts/0/exit.json").write_text(json.dumps({"why": "timeout", "ended": STARTED + 3600}))
    short = need(one(read_evidence(read_runs([folder])[0])), "time")
    assert short.too_little
    assert short.setting == 'time = "5h"'


def test_a_smaller_gpu_would_do(tmp_path: Path) -> None:
    machine = {"gpu/utilization": 0.1, "gpu/memory_bytes": 3 * GIB}
    advice = one(evidence(tmp_path, machine=machine, profile={"gpus": 2}))
    assert need(advice, "GPU memory").enough == "a GPU or slice of 6 GiB"
    assert need(advice, "GPU").setting == "gpus = 1"
    assert need(advice, "GPU").enough == "1 for 4 runs: submit --pack 4"


def test_the_newest_submission_is_what_was_asked_for(tmp_path: Path) -> None:
    run = evidence(tmp_path)
    for number, memory in ((0, "8192M"), (2, "30720M"), (10, "16384M")):
        folder = run.run.directory.path / "submissions" / str(number)
        folder.mkdir(parents=True)
        options = [f"--mem={memory}", "--cpus-per-task=8", "--time=1-00:00:00", "--requeue"]
        (folder / "request.json").write_text(json.dumps({"options": options}))
    found = read_evidence(run.run).asked
    assert (found.memory, found.cpus, found.seconds) == (16 * GIB, 8, 86_400)


def test_nothing_known_is_no_request() -> None:
    found = asked(
        {"profile": None}, Submission(0, options=("--mem=lots", "--time=soon", "--cpus-per-task=all"))
    )
    assert dataclasses.astuple(found) == (None, None, None, None, 0, 1, 1, None)


def test_a_pack_shares_what_its_job_asked_for() -> None:
    found = asked({"profile": PROFILE}, Submission(0, options=("--mem=65536M", "--cpus-per-task=16"), pack=4))
    assert (found.memory, found.cpus, found.pack, found.in_one) == (16 * GIB, 4, 4, 1)
    assert asked({}, Submission(0, in_one=4)).in_one == 4


@pytest.mark.parametrize(
    ("cluster", "options", "processors"),
    [
        ("local", ["--cpus-per-task=8", "--time=01:00:00"], 8),
        ("datalab", ["--time-limit=3600"], None),
        (
            "datalab",
            ["--time-limit=3600", "--cpus-per-task=8"],
            None,
        ),  # of --sbatch: means nothing
    ],
)
def test_processors_a_scheduler_hands_out_are_known_by_its_options(
    tmp_path: Path, cluster: str, options: list[str], processors: int | None
) -> None:
    folder = make_run_dir(tmp_path, "a", cluster=cluster, profile=PROFILE)
    submission = folder / "submissions" / "0"
    submission.mkdir(parents=True)
    (submission / "request.json").write_text(json.dumps({"options": options}))
    assert measure(read_evidence(read_runs([folder])[0])).processors == processors


def test_of_runs_in_one_process_each_needs_a_part_of_what_it_reports(tmp_path: Path) -> None:
    machine = {"memory/rss_bytes": 45 * GIB, "cpu/share": 0.8} | split(learn=0.9)
    run = evidence(tmp_path, machine=machine)
    shared = dataclasses.replace(run, asked=dataclasses.replace(run.asked, in_one=4))
    whole, part = need(one(run), "memory"), need(one(shared), "memory")
    assert (whole.enough, part.enough) == ("59 GiB", "15 GiB")
    cpus = [float(need(one(each), "CPUs").used.split()[0]) for each in (run, shared)]
    assert cpus[0] == pytest.approx(4 * cpus[1], abs=0.3)


def test_attempts_and_lost_work(tmp_path: Path) -> None:
    folder = make_run_dir(tmp_path, "a", restarted_at=96_000)  # the first attempt came to 128,000
    found = measure(read_evidence(read_runs([folder])[0]))
    assert (found.repeated_steps, found.waited, found.running) == (32_000, 277, 2 * 3723)
    assert found.completed
    advice = one(read_evidence(read_runs([folder])[0]))
    lost = check(advice, "Work lost")
    assert lost.verdict == "act"
    assert (
        lost.measured
        == "32,000 steps done twice (12%), 4m 37s between attempts, 0.6% of their time is starting and ending"
    )


def test_work_lost_by_a_program_that_says_nothing_of_its_start(tmp_path: Path) -> None:
    folder = make_run_dir(tmp_path, "a", recipe=None)
    steps = [(0, 10), (0, 70), (1, 32), (1, 60), (1, 95)]
    rows = [{"kind": "train", "step": step, "time": STARTED, "attempt": attempt} for attempt, step in steps]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert measure(read_evidence(read_runs([folder])[0])).repeated_steps == 38


def test_headlines_are_few_and_the_urgent_come_first(tmp_path: Path) -> None:
    machine = split(env=0.6, learn=0.3) | {"gpu/utilization": 0.1, "memory/rss_bytes": 63 * GIB}
    first, second, *others = one(evidence(tmp_path, machine=machine)).headlines
    assert first == 'memory was too little: memory = "82G"'
    assert second.startswith("the physics binds: 30% of the loop goes into updates")
    assert len(others) <= 4


def test_a_run_without_metrics(tmp_path: Path) -> None:
    folder = make_run_dir(tmp_path, "a")
    (folder / "metrics.jsonl").unlink()
    advice = one(read_evidence(read_runs([folder])[0]))
    assert advice.bottleneck is None
    assert isinstance(advice.measured[0], Measured)


@pytest.mark.parametrize("rubbish", [None, 17, "x", [1], {"a": {}}])
def test_files_of_other_programs_do_no_harm(tmp_path: Path, rubbish: object) -> None:
    folder = make_run_dir(tmp_path, "a")
    document = json.loads((folder / "run.json").read_text())
    document |= {"profile": rubbish, "created": rubbish, "time_limit_seconds": rubbish}
    (folder / "run.json").write_text(json.dumps(document))
    (folder / "heartbeat.json").write_text(json.dumps({"gpu": rubbish, "rss_bytes": rubbish}))
    header = {"kind": "run", "step": 0, "time": 1.0, "versions": rubbish, "num_envs": rubbish}
    train = {"kind": "train", "step": 5, "time": 2.0, "cpu/share": rubbish, "time/learn": rubbish}
    write_metrics(folder, [header, train, evaluation(5, {"x": 0.5})])
    assert one(read_evidence(read_runs([folder])[0])).checks
