"""What a run tells the outside: metrics, heartbeat, progress and W&B, all behind `Telemetry`."""

from trainer.telemetry.session import Telemetry
from trainer.telemetry.silent import SilentTelemetry

__all__ = ["SilentTelemetry", "Telemetry"]
