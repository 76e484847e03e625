"""NVML's questions, answered for a GPU of AMD by its library AMD SMI.

ROCm brings its Python package, `amdsmi`: https://rocm.docs.amd.com/projects/amdsmi/.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class AmdSmi:
    """Answers the questions that `GpuSampler` asks of NVML.

    Raises:
        NVMLError: the GPU does not tell it.
    """

    class NVMLError(Exception):
        """As NVML raises it."""

    def __init__(self, amdsmi: Any) -> None:
        self._amdsmi = amdsmi

    @classmethod
    def find(cls, address: str) -> tuple[AmdSmi, Any] | None:
        """Returns the library and its handle of a GPU; None without the library or such a GPU.

        Args:
            address: of the GPU on the PCI bus, such as `0000:c1:00.0`.
        """
        try:
            import amdsmi  # type: ignore[import-not-found]
        except (ImportError, OSError, KeyError):  # without ROCm it looks for its library in vain
            return None
        try:
            amdsmi.amdsmi_init()
            return cls(amdsmi), amdsmi.amdsmi_get_processor_handle_from_bdf(address)
        except amdsmi.AmdSmiException:
            return None

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> SimpleNamespace:
        """Returns its use in percent, `gpu`."""
        return SimpleNamespace(gpu=self._number("amdsmi_get_gpu_activity", handle, "gfx_activity"))

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> float:
        """Returns milliwatts."""
        keys = ("current_socket_power", "average_socket_power")
        return 1000 * self._number("amdsmi_get_power_info", handle, *keys)

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> float:
        """Returns degrees Celsius of the hottest place on the chip."""
        del sensor
        kinds = self._amdsmi
        details = (kinds.AmdSmiTemperatureType.JUNCTION, kinds.AmdSmiTemperatureMetric.CURRENT)
        found: float = self._ask("amdsmi_get_temp_metric", handle, *details)
        return found

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> SimpleNamespace:
        """Returns bytes, `used` and `total`."""
        used, total = (
            int(self._number("amdsmi_get_gpu_vram_usage", handle, key)) << 20
            for key in ("vram_used", "vram_total")
        )
        return SimpleNamespace(used=used, total=total)

    def nvmlDeviceGetName(self, handle: Any) -> str:
        """Returns its name, e.g. `AMD Instinct MI300X`."""
        return str(self._ask("amdsmi_get_gpu_asic_info", handle)["market_name"])

    def nvmlShutdown(self) -> None:
        """Lets the library go."""
        self._amdsmi.amdsmi_shut_down()

    def _number(self, question: str, handle: Any, *keys: str) -> float:
        """Returns the first of the values that is none of "N/A"."""
        told = self._ask(question, handle)
        for key in keys:
            if isinstance(value := told.get(key), int | float):
                return value
        raise self.NVMLError(question)

    def _ask(self, question: str, *details: Any) -> Any:
        try:
            return getattr(self._amdsmi, question)(*details)
        except self._amdsmi.AmdSmiException as error:
            raise self.NVMLError(question) from error
