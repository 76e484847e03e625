"""A thread that samples one GPU through NVML, or AMD SMI in its place, more often than anyone reads it.

Learning uses the GPU in bursts, and NVML's own window is shorter than a second: one look a second misses
most of them. So utilisation and power are sampled several times a second; each reader gets their mean, and
the highest utilisation, since its own last reading.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from trainer.telemetry.amd import AmdSmi

SAMPLES_PER_SECOND = 5.0
NVML_TEMPERATURE_GPU = 0
"""NVML's number of the sensor on the chip."""


class GpuReader:
    """One reader's view of a sampler. Use `GpuSampler.reader`."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._busy: list[float] = []
        self._watts: list[float] = []

    def add(self, busy: float | None, watts: float | None) -> None:
        """Takes a sample: utilisation 0..1 and power, None where the GPU does not tell."""
        with self._lock:
            self._busy += [] if busy is None else [busy]
            self._watts += [] if watts is None else [watts]

    def read(self) -> dict[str, Any]:
        """Returns the GPU's activity since the last reading and its memory now.

        Returns:
            `name`, `utilization` and `utilization_max` (mean and maximum, 0..1), `memory_used_bytes`,
            `memory_total_bytes`, `power_watts` (mean) and `temperature_celsius`. A value the GPU does not
            tell (a MIG slice has no utilisation) is None.
        """
        with self._lock:
            busy, self._busy = self._busy, []
            watts, self._watts = self._watts, []
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        return {
            "name": self._ask("nvmlDeviceGetName"),
            "utilization": sum(busy) / len(busy) if busy else None,
            "utilization_max": max(busy, default=None),
            "memory_used_bytes": memory.used if memory else None,
            "memory_total_bytes": memory.total if memory else None,
            "power_watts": sum(watts) / len(watts) if watts else None,
            "temperature_celsius": self._ask("nvmlDeviceGetTemperature", NVML_TEMPERATURE_GPU),
        }


class GpuSampler:
    """Samples a GPU in the background until closed. Use `GpuSampler.start`."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._readers: list[GpuReader] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="gpu-sampler", daemon=True)
        self._thread.start()

    @classmethod
    def start(cls, uuid: str | None) -> GpuSampler | None:
        """Starts sampling a GPU, or a slice of one, by its UUID; one of AMD by its address on the PCI bus.

        NVML has `GPU-` or `MIG-` before a UUID, PyTorch nothing.

        Returns:
            None without either, without NVML (no driver, no `pynvml`), or when NVML does not know the GPU.
        """
        if uuid is None:
            return None
        if ":" in uuid:
            found = AmdSmi.find(uuid)
            return None if found is None else cls(*found)
        try:
            import pynvml  # type: ignore[import-untyped]
        except ImportError:
            return None
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return None
        by_uuid = uuid.startswith(("GPU-", "MIG-"))
        for name in [uuid] if by_uuid else [f"GPU-{uuid}", f"MIG-{uuid}"]:
            with contextlib.suppress(pynvml.NVMLError):
                return cls(pynvml, pynvml.nvmlDeviceGetHandleByUUID(name))
        return None

    def reader(self) -> GpuReader:
        """Returns a view with a last reading of its own."""
        self._readers.append(GpuReader(self._ask))
        return self._readers[-1]

    def close(self) -> None:
        """Ends the thread and lets NVML go; a second call does nothing."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join()
            self._nvml.nvmlShutdown()

    def _sample(self) -> None:
        while not self._stop.wait(1 / SAMPLES_PER_SECOND):
            rates = self._ask("nvmlDeviceGetUtilizationRates")
            milliwatts = self._ask("nvmlDeviceGetPowerUsage")
            busy = None if rates is None else rates.gpu / 100
            watts = None if milliwatts is None else milliwatts / 1000
            for reader in self._readers:
                reader.add(busy, watts)

    def _ask(self, question: str, *details: int) -> Any:
        try:
            return getattr(self._nvml, question)(self._handle, *details)
        except self._nvml.NVMLError:
            return None
