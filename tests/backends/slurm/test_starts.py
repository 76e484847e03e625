"""The question when jobs would start, in a real shell, and its answers."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from clusterkit.backends.jobs import Predictions
from clusterkit.backends.slurm.starts import billing, parse_starts, probe
from clusterkit.probes import script
from tests.programs import write_program

PARTITION = (
    "PartitionName=gpu-a40 AllowGroups=ALL Default=YES MaxTime=1-00:00:00 State=UP "
    "TRESBillingWeights=CPU=1.0,Mem=0.25G,GRES/gpu=10\n"
    "PartitionName=long MaxTime=UNLIMITED Default=NO"
)
SAYS = (
    "sbatch: Job 7 to start at 2026-01-02T03:04:05 using 4 processors on nodes a40n[1-2] in partition gpu-a40"
)
TOOLS = {
    "scontrol": f'case $3 in partition) echo "{PARTITION}" ;; *) echo "PriorityFlags = " ;; esac',
    "sshare": 'echo "lab|alice|1|99|0.25|0.75"; echo "lab||1|99|1.0|"',
    "sbatch": f'cat >/dev/null; echo "$*" >> "$0.calls"; echo "{SAYS}" >&2',
    "squeue": "echo gpu-a40; echo gpu-a40,long",
}
REQUESTS = {
    "a40/3600": ("--time=01:00:00", "--comment=a b", "--cpus-per-task=4", "--mem=8G"),
    "a40/60": ("--time=00:01:00",),
    "a40/90000": ("--time=1-01:00:00",),
}


def ask(folder: Path, **tools: str) -> Predictions:
    for name, body in {**TOOLS, **tools}.items():
        write_program(folder, name, body)
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "SBATCH_PARTITION": "wrong", "TZ": "Pacific/Auckland"}
    fragment = script([probe(REQUESTS)])
    done = subprocess.run(["sh"], input=fragment, env=env, capture_output=True, text=True, check=True)
    return parse_starts("a banner\n" + done.stdout, REQUESTS)


def test_starts_limits_shares_and_weights_in_one_go(tmp_path: Path) -> None:
    write_program(tmp_path, "date", "echo 1767322045")
    told = ask(tmp_path)
    start = told.starts["a40/60"]
    assert start.moment == 1767323045.0, "UTC, wherever the login node is"
    assert start.wait == 1000.0
    assert (start.partition, start.waiting, start.words) == ("gpu-a40", 2, "")
    assert told.starts["a40/90000"].wait is None
    assert "never start" in told.starts["a40/90000"].words
    (share,) = told.shares
    assert (share.account, share.factor, share.used) == ("lab", 0.75, 0.25)
    assert told.billing == {"a40/3600": 4 + 8 * 0.25, "a40/60": 1.0, "a40/90000": 1.0}
    calls = (tmp_path / "sbatch.calls").read_text().splitlines()
    assert calls[:2] == [
        "--test-only --time=01:00:00 --comment=a b --cpus-per-task=4 --mem=8G",
        "--test-only --time=00:01:00",
    ]


def test_a_start_that_has_passed_is_now(tmp_path: Path) -> None:
    assert ask(tmp_path).starts["a40/60"].wait == max(0.0, 1767323045.0 - time.time())


def test_a_refusal_is_in_slurm_s_words(tmp_path: Path) -> None:
    lines = "sbatch: error: invalid partition: nope", "allocation failure: Invalid name"
    said = "; ".join(f"echo '{line}' >&2" for line in lines)
    start = ask(tmp_path, sbatch=f"{said}; exit 1").starts["a40/60"]
    assert start.wait is None
    assert start.words == "invalid partition: nope; Invalid name"
    assert ask(tmp_path, sbatch="exit 1").starts["a40/60"].words == "sbatch printed nothing"


def test_a_silent_controller_is_asked_once(tmp_path: Path) -> None:
    word = 'echo "$0" >> "$(dirname "$0")/all"'
    silent = f"{word}; echo 'slurm_load_partitions: Unable to contact slurm controller' >&2; exit 1"
    told = ask(tmp_path, scontrol=silent, sbatch=word)
    assert (tmp_path / "all").read_text().count("\n") == 1
    assert {start.words for start in told.starts.values()} == {
        "Slurm does not answer: slurm_load_partitions: Unable to contact slurm controller"
    }
    assert (told.billing, told.shares) == ({}, ())


def test_a_site_without_these_tools_says_so(tmp_path: Path) -> None:
    assert "not found" in ask(tmp_path, sbatch="sbatch_").starts["a40/60"].words
    assert parse_starts("", REQUESTS) == Predictions()


def test_billing_is_a_sum_or_the_dearest() -> None:
    weights = {"cpu": 1.0, "mem": 0.25, "gres/gpu": 10.0, "gres/gpu:h100": 40.0}
    asked = {"cpu": 16.0, "mem": 32.0, "gres/gpu": 2.0, "node": 1.0}
    assert billing(weights, asked, highest_only=False) == 16 + 8 + 20
    assert billing(weights, asked, highest_only=True) == 20
    assert billing({}, asked, highest_only=False) is None


@pytest.mark.parametrize(
    ("text", "by_the_gib"), [("0.25G", 0.25), ("0.001", 1.024), ("0.001M", 1.024), ("512T", 0.5)]
)
def test_weights_of_memory_come_in_several_units(tmp_path: Path, text: str, by_the_gib: float) -> None:
    line = f"PartitionName=p Default=YES MaxTime=1:00 TRESBillingWeights=CPU=1.0,Mem={text}"
    told = ask(tmp_path, scontrol=f"echo '{line}'")
    assert told.billing["a40/3600"] == pytest.approx(4 + 8 * by_the_gib)
