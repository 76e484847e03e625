"""Which GPU types a site has for a user, where, and how each is asked for."""

from __future__ import annotations

import pytest

from clusterkit.backends.slurm.survey.gpus import Offer, gpu_types
from clusterkit.backends.slurm.survey.parse import parse
from clusterkit.hardware import least_memory_of, memory_of, recognise, slice_memory
from tests.backends.slurm.survey.sites import EMPTY, LABELLED, MANY_RULES, TESTBED, UNIVERSITY, Parts, answer


def types(parts: Parts, *partitions: str) -> dict[str, Offer]:
    return {one.name: one for one in gpu_types(parse(answer(parts)), partitions=partitions)}


@pytest.mark.parametrize(
    ("spelled", "name", "gigabytes"),
    [
        # Slurm's types and nodes' features, as public job scripts and sites' pages have them.
        ("a100", "a100", None),
        ("tesla_a100", "a100", None),
        ("NVIDIA_A100", "a100", None),
        ("nvidia_a100-sxm4", "a100", None),
        ("A100_SXM4", "a100", None),
        ("GPU_SKU:A100_SXM4", "a100", None),
        ("a100_80g", "a100", 80),
        ("a100-80g", "a100", 80),
        ("A100_80GB", "a100", 80),
        ("a100_40gb", "a100", 40),
        ("nvidia_a100-sxm4-40gb", "a100", 40),
        ("nvidia_a100-sxm4-80gb", "a100", 80),
        ("nvidia_a100_80gb_pcie", "a100", 80),
        ("nvidia_h100", "h100", 80),
        ("h100_sxm5", "h100", 80),
        ("h100sxm", "h100", 80),
        ("nvidia_h100_pcie", "h100", 80),
        ("nvidia_h100_80gb", "h100", 80),
        ("nvidia_h100_80gb_hbm3", "h100", 80),
        ("h100_96gb", "h100", 96),
        ("nvidia_h100_nvl", "h100-nvl", 94),
        ("nvidia_h200", "h200", 141),
        ("nvidia_h200_nvl", "h200", 141),
        ("nvidia_b200", "b200", 180),
        ("nvidia_gh200", "gh200", None),
        ("nvidia_gh200_120gb", "gh200", 96),
        ("nvidia_gh200_480gb", "gh200", 96),
        ("nvidia_gh200_144g_hbm3e", "gh200", 144),
        ("tesla:V100-PCIE-32GB", "v100", 32),
        ("v100-sxm2-32G", "v100", 32),
        ("tesla_v100-sxm2-16gb", "v100", 16),
        ("tesla_v100s-pcie-32gb", "v100", 32),
        ("p100-sxm2-16gb", "p100", 16),
        ("tesla_p100", "p100", None),
        ("tesla_t4", "t4", 16),
        ("gpu-a40", "a40", 48),
        ("nvidia_a30", "a30", 24),
        ("nvidia_a10g", "a10", 24),
        ("NVIDIA_L40S", "l40s", 48),
        ("L40", "l40", 48),
        ("nvidia_rtx_a6000", "a6000", 48),
        ("geforce_rtx_2080_ti", "rtx2080ti", 11),
        ("nvidia_geforce_gtx_1080_ti", "gtx1080ti", 11),
        ("nvidia_geforce_gtx_titan_x", "titanxp", 12),
        ("quadro_rtx_6000", "rtx6000", None),
        ("quadro-rtx8000", "rtx8000", 48),
        ("nvidia_rtx_6000_ada_generation", "rtx6000ada", 48),
        ("rtx_pro_6000_blackwell", "rtxpro6000", 96),
        ("nvidia_geforce_rtx_4090", "rtx4090", 24),
        ("3090", "rtx3090", 24),
        ("mi100", "mi100", 32),
        ("amd_instinct_mi210", "mi210", 64),
        ("mi250", "mi250", 64),
        ("MI250X", "mi250x", 64),
        ("mi300", "mi300", None),
        ("AMD_Instinct_MI300A", "mi300a", 128),
        ("mi300x", "mi300x", 192),
        ("mi325x", "mi325x", 256),
        ("mi355x", "mi355x", 288),
        # nvidia-smi's.
        ("NVIDIA A100-SXM4-80GB", "a100", 80),
        ("NVIDIA A100-SXM-64GB", "a100", 64),
        ("NVIDIA H100 80GB HBM3", "h100", 80),
        ("NVIDIA GH200 480GB", "gh200", 96),
        ("NVIDIA GH200 144G HBM3e", "gh200", 144),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtxpro6000", 96),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtxpro6000", 96),
        ("NVIDIA GeForce RTX 3080 Ti", "rtx3080ti", 12),
        ("NVIDIA GeForce RTX 4080 SUPER", "rtx4080", 16),
        ("Tesla P100-PCIE-12GB", "p100", 12),
    ],
)
def test_cards(spelled: str, name: str, gigabytes: int | None) -> None:
    assert recognise(spelled) == (name, None if gigabytes is None else gigabytes * 2**30)
    assert slice_memory(spelled) is None


@pytest.mark.parametrize(
    ("spelled", "gigabytes"),
    [
        ("a100_3g.20gb", 20),
        ("a100_1g_5gb", 5),
        ("nvidia_a100_80gb_pcie_1g.10gb", 10),
        ("nvidia_h100_80gb_hbm3_3g.40gb", 40),
        ("nvidia_h100_nvl_1g.24gb", 24),
        ("H100 MIG 3g.47gb", 47),
        ("nvidia_h200_2g.35gb", 35),
        ("nvidia_b200_3g.90gb", 90),
        ("1g.10gb", 10),
        ("NVIDIA A100-PCIE-40GB MIG 1g.5gb", 5),
        ("nvidia_a40-12q", 12),
        ("NVIDIA A40-48Q", 48),
        ("GRID A100-4C", 4),
        ("GRID A100D-10C", 10),
        ("GRID A100D-1-20C", 20),
        ("GRID T4-1Q", 1),
        ("NVIDIA A16-8A", 8),
        ("GRID T4-2B4", 2),
        ("NVIDIA RTX6000-Ada-24Q", 24),
        ("NVIDIA H100XM-80C", 80),
    ],
)
def test_slices_and_virtual_gpus_have_their_own_memory(spelled: str, gigabytes: int) -> None:
    assert recognise(spelled) is None
    assert slice_memory(spelled) == memory_of(spelled) == gigabytes * 2**30


@pytest.mark.parametrize(
    "spelled",
    [
        "h100-47",  # half a card
        "h100-96",
        "h100_47gb",
        "a100-80",  # no unit
        "a100_20gb",
        "a100_half",
        "a100_mig",
        "a100_1g",
        "rtx3090_12gb",
        "a40-24gb",
        "gh200_96",
        "gh200_480gb_2",
        "k80_24gb",  # of two GPUs
        "a100-40gb-80gb",
        "v100-a100",
        "GRID A100",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4060 Ti",
        "NVIDIA GeForce RTX 4070 Ti SUPER",
        "mi300x_cpx",  # an eighth of the card
        "pro6000b_96gb",
        "a100l_vgpu",
    ],
)
def test_the_memory_of_names_that_may_mean_something_else_is_not_known(spelled: str) -> None:
    assert recognise(spelled) is None
    assert memory_of(spelled) is None
    assert least_memory_of(spelled) is None


@pytest.mark.parametrize("text", ["small", "mem512g", "avx512", "skylake", "gpu", "node-a2000x"])
def test_words_that_are_no_card(text: str) -> None:
    assert recognise(text) is None


def test_the_memory_of_what_sinfo_names() -> None:
    spelled = ("nvidia_gh200_480gb", "h100-47", "h100", "nvidia_a40-12q", "a40")
    nodes = "".join(f"gpu|1|idle|8|64000|gpu:{name}:4|(null)\n" for name in spelled)
    found = types(TESTBED | {"nodes": nodes, "partitions": ""})
    memory = {name: offer.memory and offer.memory >> 30 for name, offer in found.items()}
    assert memory == {"gh200": 96, "h100-47": None, "h100": 80, "nvidia_a40-12q": 12, "a40": 48}


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


def test_who_made_them() -> None:
    nodes = "gpu|1|idle|8|64000|gpu:{}:8|amd_epyc\n"
    for spelled, vendor in (
        ("mi250", "amd"),
        ("amd_instinct_mi210", "amd"),
        ("gfx90a", "amd"),
        ("a100", "nvidia"),
        ("nvidia_h100", "nvidia"),
        ("gpu", "nvidia"),
    ):
        (offer,) = types(TESTBED | {"nodes": nodes.format(spelled), "partitions": ""}).values()
        assert offer.vendor == vendor
    featured = "gpu|1|idle|8|64000|gpu:8|amd_epyc,mi300a\n"
    (offer,) = types(TESTBED | {"nodes": featured, "partitions": ""}).values()
    assert (offer.name, offer.vendor, offer.memory) == ("mi300a", "amd", 128 << 30)


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
        ("mi300", None, 128),
        ("", None, None),
    ],
)
def test_memory_by_name(gpu: str, known: int | None, least: int | None) -> None:
    assert memory_of(gpu) == (known and known * 2**30)
    assert least_memory_of(gpu) == (least and least * 2**30)
