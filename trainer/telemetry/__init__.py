"""What a run reports: metrics, heartbeat, progress and W&B, all behind `Telemetry`."""

from trainer.telemetry.progress import Opens, Progress, SharedProgress, open_progress
from trainer.telemetry.session import SilentTelemetry, Telemetry

__all__ = ["Opens", "Progress", "SharedProgress", "SilentTelemetry", "Telemetry", "open_progress"]
