"""What a job asks for, read back from its options."""

from __future__ import annotations

import pytest

from clusterkit.backends.slurm.request import Gpus, node_gpus, read, trackable


@pytest.mark.parametrize(
    ("option", "gpus"),
    [
        ("--gres=gpu:a40:2", Gpus("a40", 2)),
        ("--gres=gpu:4", Gpus("", 4)),
        ("--gres=gpu:a40", Gpus("a40", 1)),
        ("--gres=gpu", Gpus("", 1)),
        ("--gpus=a100:1", Gpus("a100", 1)),
        ("--gpus=2", Gpus("", 2)),
        ("--gpus-per-node=nvidia_a100_3g.20gb:1", Gpus("nvidia_a100_3g.20gb", 1)),
        ("--gres=shard:1", None),
        ("--mem=3G", None),
    ],
)
def test_gpus(option: str, gpus: Gpus | None) -> None:
    assert read([option]).gpus == gpus


def test_everything_else() -> None:
    asked = read(["--partition=a,b", "--account=lab", "--time=1-00:00:00", "--cpus-per-task=4", "--mem=1500"])
    assert (asked.partition, asked.account, asked.qos) == ("a", "lab", "")
    assert (asked.seconds, asked.cpus, asked.memory) == (86400, 4, 1500 << 20)


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:a40:4(S:0-1)", [Gpus("a40", 4)]),
        ("gpu:4", [Gpus("", 4)]),
        ("gpu:a100:2(IDX:0,1),gpu:a40:1,shard:8", [Gpus("a100", 2), Gpus("a40", 1)]),
        ("(null)", []),
        ("", []),
        ("gpu:a100:no_consume:4,nvme:1", [Gpus("a100", 4)]),
        ("gpu:a100_3g.20gb:2(S:0),gpu:a100:1(S:1,3)", [Gpus("a100_3g.20gb", 2), Gpus("a100", 1)]),
        ("shard:a40:16,mps:400,gpu:a40:2", [Gpus("a40", 2)]),
        ("gpu:nvidia_a100-sxm4-80gb:4(S:0-3)", [Gpus("nvidia_a100-sxm4-80gb", 4)]),
        ("gpu:h100:0", []),
    ],
)
def test_what_a_node_has(gres: str, gpus: list[Gpus]) -> None:
    assert node_gpus(gres) == tuple(gpus)


def test_what_slurm_counts_names_a_gpu_as_the_site_does() -> None:
    asked = read(["--cpus-per-task=4", "--mem=3G", "--gres=gpu:NVIDIA_a100-sxm4-80gb:2"])
    gpus = {"gres/gpu": 2.0, "gres/gpu:nvidia_a100-sxm4-80gb": 2.0}
    assert trackable(asked) == {"cpu": 4.0, "node": 1.0, "mem": 3.0, **gpus}
    assert trackable(read(["--mem=0"])) == {"cpu": 1.0, "node": 1.0}
