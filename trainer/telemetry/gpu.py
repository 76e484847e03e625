"""A thread that samples one GPU through NVML, more often than anyone reads it.

Learning uses the GPU in bursts, and NVML's own window is shorter than a second: one look a second misses
most of them. So utilisation is sampled several times a second and read as the mean since the last reading.
"""

from __future__ import annotations

import threading
from typing import Any

SAMPLES_PER_SECOND = 5.0


class GpuSampler:
    """Samples a GPU in the background until closed. Use `GpuSampler.start`."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._lock = threading.Lock()
        self._busy: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="gpu-sampler", daemon=True)
        self._thread.start()

    @classmethod
    def start(cls, uuid: str | None) -> GpuSampler | None:
        """Starts sampling the GPU of this UUID, with NVML's `GPU-` before it or, as PyTorch has it, without.

        Returns:
            None without a UUID, without NVML (no driver, no `pynvml`), or when NVML does not know the GPU.
        """
        if uuid is None:
            return None
        try:
            import pynvml  # type: ignore[import-untyped]
        except ImportError:
            return None
        try:
            pynvml.nvmlInit()
            return cls(
                pynvml,
                pynvml.nvmlDeviceGetHandleByUUID(
                    uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
                ),
            )
        except pynvml.NVMLError:
            return None

    def read(self) -> dict[str, Any]:
        """Returns `name`, `utilization`, `memory_used_bytes` and `memory_total_bytes`.

        The utilisation is the mean since the last reading, 0..1. A value the GPU does not tell (a MIG slice
        has no utilisation) is None.
        """
        with self._lock:
            busy, self._busy = self._busy, []
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        return {
            "name": self._ask("nvmlDeviceGetName"),
            "utilization": sum(busy) / len(busy) if busy else None,
            "memory_used_bytes": memory.used if memory else None,
            "memory_total_bytes": memory.total if memory else None,
        }

    def close(self) -> None:
        """Ends the thread and lets NVML go; a second call does nothing."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join()
            self._nvml.nvmlShutdown()

    def _sample(self) -> None:
        while not self._stop.wait(1 / SAMPLES_PER_SECOND):
            rates = self._ask("nvmlDeviceGetUtilizationRates")
            if rates is not None:
                with self._lock:
                    self._busy.append(rates.gpu / 100)

    def _ask(self, question: str) -> Any:
        try:
            return getattr(self._nvml, question)(self._handle)
        except self._nvml.NVMLError:
            return None
