"""What a run tells the outside: metrics, heartbeat, progress and W&B, all behind `Telemetry`."""

from trainer.telemetry.session import Telemetry

__all__ = ["Telemetry"]
