"""A run's use of its machine, as fields of a `train` line."""

from __future__ import annotations

from trainer.telemetry.gpu import GpuSampler
from trainer.telemetry.processes import ProcessorMeter, resident_bytes

_GPU = {
    "utilization": "gpu/utilization",
    "utilization_max": "gpu/utilization_max",
    "memory_used_bytes": "gpu/memory_bytes",
    "power_watts": "gpu/power_watts",
    "temperature_celsius": "gpu/temperature_celsius",
}


class UsageMeter:
    """Reads GPU, processors and memory; a reading covers the time since the one before.

    Args:
        gpu: the sampler, if there is a GPU.
    """

    def __init__(self, gpu: GpuSampler | None) -> None:
        self._gpu = gpu.reader() if gpu else None
        self._processors = ProcessorMeter()

    def read(self) -> dict[str, float]:
        """Returns `gpu/...`, `cpu/share` and `memory/rss_bytes`; unknown values are left out."""
        gpu = self._gpu.read() if self._gpu else {}
        found = {field: gpu.get(key) for key, field in _GPU.items()}
        found |= {"cpu/share": self._processors.read(), "memory/rss_bytes": resident_bytes()}
        return {field: value for field, value in found.items() if value is not None}
