from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.waiting import until
from trainer.telemetry import Telemetry
from trainer.telemetry.gpu import GpuSampler
from trainer.telemetry.usage import Clock, UsageMeter


def test_no_gpu_no_sampler() -> None:
    assert GpuSampler.start(None) is None


def test_a_gpu_that_nvml_does_not_know_is_no_fault() -> None:
    assert GpuSampler.start("GPU-00000000-0000-0000-0000-000000000000") is None


class Nvml:
    """A double of NVML for machines without a GPU: busy half of the time, and silent about its name."""

    class NVMLError(Exception):
        """As NVML raises it."""

    def __init__(self) -> None:
        self.asked = 0
        self.open = True

    def nvmlDeviceGetUtilizationRates(self, handle: object) -> Any:
        self.asked += 1
        return type("Rates", (), {"gpu": 80 * (self.asked % 2)})

    def nvmlDeviceGetPowerUsage(self, handle: object) -> int:
        return 100_000 + 200_000 * (self.asked % 2)

    def nvmlDeviceGetTemperature(self, handle: object, sensor: int) -> int:
        assert sensor == 0
        return 61

    def nvmlDeviceGetMemoryInfo(self, handle: object) -> Any:
        return type("Memory", (), {"used": 3, "total": 4})

    def nvmlDeviceGetName(self, handle: object) -> str:
        raise self.NVMLError

    def nvmlShutdown(self) -> None:
        self.open = False


class Slice(Nvml):
    """A MIG slice: it has memory, and tells nothing else."""

    def nvmlDeviceGetUtilizationRates(self, handle: object) -> Any:
        self.asked += 1
        raise self.NVMLError

    def nvmlDeviceGetPowerUsage(self, handle: object) -> int:
        raise self.NVMLError

    def nvmlDeviceGetTemperature(self, handle: object, sensor: int) -> int:
        raise self.NVMLError


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nvml]:
    monkeypatch.setattr("trainer.telemetry.gpu.SAMPLES_PER_SECOND", 500.0)
    return Nvml()


def test_a_reading_is_of_the_time_since_the_last_one(nvml: Nvml) -> None:
    sampler = GpuSampler(nvml, object())
    reader = sampler.reader()
    until(lambda: nvml.asked >= 20)
    seen = reader.read()
    assert 0.3 < seen.pop("utilization") < 0.5
    assert 180 < seen.pop("power_watts") < 220
    facts = {"name": None, "memory_used_bytes": 3, "memory_total_bytes": 4, "temperature_celsius": 61}
    assert seen == facts | {"utilization_max": 0.8}
    sampler.close()
    reader.read()
    nothing = {"utilization": None, "utilization_max": None, "power_watts": None}
    assert reader.read().items() >= nothing.items()
    assert not nvml.open
    sampler.close()


def test_readers_do_not_take_from_each_other(nvml: Nvml) -> None:
    sampler = GpuSampler(nvml, object())
    often, seldom = sampler.reader(), sampler.reader()
    until(lambda: nvml.asked >= 20)
    often.read()
    sampler.close()
    often.read()
    assert often.read()["utilization_max"] is None
    assert seldom.read()["utilization_max"] == 0.8


def test_what_a_gpu_does_not_tell_is_left_out_of_a_line(nvml: Nvml) -> None:
    del nvml
    for known, double in (
        ({"utilization", "utilization_max", "power_watts", "temperature_celsius", "memory_bytes"}, Nvml()),
        ({"memory_bytes"}, Slice()),
    ):
        sampler = GpuSampler(double, object())
        usage = UsageMeter(sampler)
        until(lambda double=double: double.asked >= 4)
        time.sleep(0.3)
        line = usage.read()
        sampler.close()
        assert {key.removeprefix("gpu/") for key in line if key.startswith("gpu/")} == known
        assert line.keys() >= {"cpu/share", "memory/rss_bytes"}
    assert not [key for key in UsageMeter(None).read() if key.startswith("gpu/")]


def test_the_heartbeat_and_the_log_have_it(
    nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GpuSampler, "start", lambda uuid: GpuSampler(nvml, object()))
    with Telemetry.open(tmp_path, {}, 100, 0, "disabled", stream=io.StringIO()) as telemetry:
        until(lambda: nvml.asked >= 4)
        telemetry.train(1, {"loss/critic": 0.5})
        telemetry.heartbeat(step=1)
    line = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[1])
    values = {"loss/critic": 0.5, "gpu/utilization_max": 0.8, "gpu/memory_bytes": 3}
    assert line.items() >= (values | {"gpu/temperature_celsius": 61}).items()
    assert line["gpu/power_watts"] == pytest.approx(200, abs=100)
    gpu = json.loads((tmp_path / "heartbeat.json").read_text())["gpu"]
    keys = {"name", "utilization", "utilization_max", "memory_used_bytes", "memory_total_bytes"}
    assert gpu.keys() == keys | {"power_watts", "temperature_celsius"}


@pytest.mark.parametrize("name", ["GPU-5ad", "MIG-5ad"])
@pytest.mark.parametrize("known", [True, False], ids=["with its prefix", "as PyTorch has it"])
def test_a_gpu_is_found_whole_or_as_a_slice(monkeypatch: pytest.MonkeyPatch, name: str, known: bool) -> None:
    asked = []

    class Named(Nvml):
        def nvmlInit(self) -> None:
            pass

        def nvmlDeviceGetHandleByUUID(self, uuid: str) -> object:
            asked.append(uuid)
            if uuid != name:
                raise self.NVMLError
            return object()

    monkeypatch.setitem(sys.modules, "pynvml", Named())
    sampler = GpuSampler.start(name if known else "5ad")
    assert sampler is not None
    sampler.close()
    assert asked[-1] == name


class Amd:
    """A double of amdsmi that answers as its reference says: an MI250X, whose second die tells no power."""

    AmdSmiException = type("AmdSmiException", (Exception,), {})
    AmdSmiTemperatureType = SimpleNamespace(JUNCTION="junction")
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT="current")

    def __init__(self) -> None:
        self.open = False

    def amdsmi_init(self) -> None:
        self.open = True

    def amdsmi_shut_down(self) -> None:
        self.open = False

    def amdsmi_get_processor_handle_from_bdf(self, address: str) -> str:
        if address not in ("0000:c1:00.0", "0000:c6:00.0"):
            raise self.AmdSmiException
        return address

    def amdsmi_get_gpu_activity(self, handle: str) -> dict[str, Any]:
        return {"gfx_activity": 80, "umc_activity": 3, "mm_activity": "N/A"}

    def amdsmi_get_power_info(self, handle: str) -> dict[str, Any]:
        watts = 302 if handle == "0000:c1:00.0" else "N/A"
        return {"current_socket_power": "N/A", "average_socket_power": watts, "gfx_voltage": 793}

    def amdsmi_get_temp_metric(self, handle: str, sensor: str, metric: str) -> int:
        assert (sensor, metric) == ("junction", "current")
        return 41

    def amdsmi_get_gpu_vram_usage(self, handle: str) -> dict[str, Any]:
        return {"vram_total": 65520, "vram_used": 300}

    def amdsmi_get_gpu_asic_info(self, handle: str) -> dict[str, Any]:
        raise self.AmdSmiException


@pytest.mark.parametrize(("address", "watts"), [("0000:c1:00.0", 302), ("0000:c6:00.0", None)])
def test_a_gpu_of_amd(monkeypatch: pytest.MonkeyPatch, address: str, watts: int | None) -> None:
    amd = Amd()
    monkeypatch.setitem(sys.modules, "amdsmi", amd)
    monkeypatch.setattr("trainer.telemetry.gpu.SAMPLES_PER_SECOND", 500.0)
    sampler = GpuSampler.start(address)
    assert sampler is not None
    reader, read = sampler.reader(), {}

    def sampled() -> bool:
        read.update(reader.read())
        return read["utilization"] is not None

    until(sampled)
    sampler.close()
    facts = {"name": None, "memory_used_bytes": 300 << 20, "memory_total_bytes": 65520 << 20}
    assert read == facts | {
        "utilization": pytest.approx(0.8),
        "utilization_max": 0.8,
        "power_watts": watts and pytest.approx(watts),
        "temperature_celsius": 41,
    }
    assert not amd.open
    assert GpuSampler.start("0000:ff:00.0") is None


def test_without_amdsmi_a_gpu_of_amd_is_not_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    assert GpuSampler.start("0000:c1:00.0") is None


class Now:
    """A clock to set by hand, in nanoseconds."""

    def __init__(self) -> None:
        self.time = 10**18

    def __call__(self) -> int:
        return self.time


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Now:
    now = Now()
    monkeypatch.setattr("trainer.telemetry.usage.perf_counter_ns", now)
    return now


def spend(clock: Clock, now: Now, name: str, nanoseconds: int) -> None:
    with clock(name):
        now.time += nanoseconds


def test_shares_are_exact_however_many_parts_there_were(now: Now) -> None:
    clock = Clock()
    for _ in range(10_000):
        spend(clock, now, "env", 3)
        spend(clock, now, "learn", 5)
        now.time += 2
    assert clock.drain() == {"time/env": 0.3, "time/learn": 0.5, "time/other": 0.2}


def test_each_line_is_of_its_own_stretch_and_has_all_parts_seen(now: Now) -> None:
    clock = Clock()
    assert clock.drain() == {}
    now.time += 60
    assert clock.drain() == {}
    spend(clock, now, "evaluate", 40)
    assert clock.drain() == {"time/evaluate": 1.0, "time/other": 0.0}
    spend(clock, now, "learn", 1)
    now.time += 3
    assert clock.drain() == {"time/evaluate": 0.0, "time/learn": 0.25, "time/other": 0.75}
    assert clock.drain() == {}  # no time has passed


def test_a_part_that_runs_counts_so_far(now: Now) -> None:
    clock = Clock()
    with clock("checkpoint"):
        now.time += 8
        assert clock.drain() == {"time/checkpoint": 1.0, "time/other": 0.0}
        now.time += 3
    now.time += 1
    assert clock.drain() == {"time/checkpoint": 0.75, "time/other": 0.25}


def test_parts_do_not_lie_within_each_other(now: Now) -> None:
    clock = Clock()
    with clock("env"):
        now.time += 1
        with pytest.raises(RuntimeError, match="the clock runs for 'env': 'learn' cannot begin"):
            clock("learn")
    spend(clock, now, "learn", 1)
    assert clock.drain() == {"time/env": 0.5, "time/learn": 0.5, "time/other": 0.0}


def test_a_part_that_fails_counts_and_ends(now: Now) -> None:
    clock = Clock()

    def fail() -> None:
        with clock("env"):
            now.time += 1
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        fail()
    spend(clock, now, "env", 2)
    now.time += 1
    assert clock.drain() == {"time/env": 0.75, "time/other": 0.25}


def test_real_time() -> None:
    clock = Clock()
    with clock("env"):
        time.sleep(0.2)
    shares = clock.drain()
    assert shares["time/env"] > 0.5
    assert sum(shares.values()) == pytest.approx(1, abs=1e-12)
