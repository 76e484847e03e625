"""Which GPU types a site has for a user, where, and how each is asked for."""

from __future__ import annotations

import pytest

from clusterkit.backends.slurm.survey.gpus import Offer, gpu_types
from clusterkit.backends.slurm.survey.parse import parse
from clusterkit.hardware import least_memory_of, memory_of, recognise, slice_memory
from tests.survey.sites import EMPTY, LABELLED, MANY_RULES, TESTBED, UNIVERSITY, Parts, answer


def types(parts: Parts, *partitions: str) -> dict[str, Offer]:
    return {one.name: one for one in gpu_types(parse(answer(parts)), partitions=partitions)}


@pytest.mark.parametrize(
    ("spelled", "name", "gigabytes"),
    [
        ("a100", "a100", None),
        ("nvidia_a100-sxm4-80gb", "a100", 80),
        ("tesla:V100-PCIE-32GB", "v100", 32),
        ("gpu-a40", "a40", 48),
        ("GPU_SKU:A100_SXM4", "a100", None),
        ("nvidia_h100_80gb_hbm3", "h100", 80),
        ("geforce_rtx_2080_ti", "rtx2080ti", 11),
        ("nvidia_rtx_6000_ada_generation", "rtx6000ada", 48),
        ("rtx_pro_6000_blackwell", "rtxpro6000", 96),
        ("quadro_rtx_6000", "rtx6000", None),
        ("l40s", "l40s", 48),
        ("L40", "l40", 48),
        ("3090", "rtx3090", 24),
    ],
)
def test_cards(spelled: str, name: str, gigabytes: int | None) -> None:
    assert recognise(spelled) == (name, None if gigabytes is None else gigabytes * 2**30)


@pytest.mark.parametrize(
    "text", ["small", "mem512g", "avx512", "skylake", "a100_3g.20gb", "gpu", "node-a2000x"]
)
def test_words_that_are_no_card(text: str) -> None:
    assert recognise(text) is None


def test_a_slice_has_its_own_memory() -> None:
    assert slice_memory("a100_3g.20gb") == 20 * 2**30
    assert slice_memory("a100") is None


def test_one_type_a_partition() -> None:
    found = types(TESTBED)
    assert {name: one.partition.name for name, one in found.items()} == {
        "a40": "gpu-a40",
        "a100": "gpu-a100",
    }
    assert found["a40"].request == "--gres=gpu:{type}:{count}"


def test_ordinary_partitions_are_preferred_and_the_others_named() -> None:
    (v100,) = types(UNIVERSITY).values()
    assert v100.partition.name == "gpu"
    assert [other.partition.name for other in v100.others] == ["gputest"]
    assert v100.memory == 32 * 2**30


def test_a_partition_asked_for_wins_where_it_has_the_type() -> None:
    (v100,) = types(UNIVERSITY, "gputest").values()
    assert v100.partition.name == "gputest"


def test_gpus_without_types_are_told_apart_by_features() -> None:
    found = types(LABELLED)
    assert set(found) == {"v100", "p40"}
    v100 = found["v100"]
    assert v100.request == "--gres=gpu:{count}"
    assert v100.constraint == "GPU_SKU:V100_PCIE|GPU_SKU:V100_SXM2"
    assert (v100.memory, v100.cpus) == (16 * 2**30, 20)
    assert not found["p40"].working


def test_partitions_that_refuse_the_user_are_not_offered() -> None:
    found = types(MANY_RULES)
    assert {name: one.partition.name for name, one in found.items()} == {
        "h100": "h100",
        "a100": "gpu",
        "a100_3g.20gb": "gpu",
        "a100-40g": "gpu",
    }
    assert found["a100"].request == "--gres=gpu:nvidia_a100-sxm4-80gb:{count}"
    assert [other.partition.name for other in found["a100"].others] == ["scavenge_gpu"]


def test_a_partitions_name_tells_where_nothing_else_does() -> None:
    nodes = "gpu-a40|1|idle|8|64000|gpu:4|(null)\ngpu-a100|1|idle|8|64000|gpu:2|(null)\n"
    assert set(types(TESTBED | {"nodes": nodes})) == {"a40", "a100"}
    unnamed = "main|1|idle|8|64000|gpu:4|(null)\n"
    assert set(types(TESTBED | {"nodes": unnamed, "partitions": ""})) == {"gpu"}


def test_no_slurm_no_gpus() -> None:
    assert types(EMPTY) == {}


@pytest.mark.parametrize(
    ("gpu", "known", "least"),
    [
        ("a40", 48, 48),
        ("nvidia_a100_80gb_pcie", 80, 80),
        ("a100", None, 40),
        ("a100_3g.20gb", 20, 20),
        ("rtx4070", None, 8),
        ("gh200", None, 96),
        ("gb200", None, None),
        ("mi300", None, None),
        ("", None, None),
    ],
)
def test_memory_by_name(gpu: str, known: int | None, least: int | None) -> None:
    assert memory_of(gpu) == (known and known * 2**30)
    assert least_memory_of(gpu) == (least and least * 2**30)
