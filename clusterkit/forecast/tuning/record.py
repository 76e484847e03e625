"""Turns a bench's measurements into lines of the record. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from clusterkit.forecast.measurements import Measurement
from clusterkit.forecast.tuning.bench import Bench, same


def measurements(bench: Bench, cluster: str, version: str) -> list[Measurement]:
    """One measurement per setting; none for a modified recipe.

    Measurements of environments or learner alone are joined to their whole loops.

    Args:
        bench: what was measured.
        cluster: where.
        version: of clusterkit.
    """
    if bench.modified:
        return []
    date = datetime.fromtimestamp(bench.time, UTC).isoformat(timespec="seconds")
    settings = dict.fromkeys(
        row.setting for row in bench.rows if row.error is None and row.kind in ("loop", "envs")
    )
    found = []
    for setting in settings:
        loop, envs, updates = (bench.of(kind, setting) for kind in ("loop", "envs", "updates"))
        if loop is None and any(
            same("envs", other, setting) and bench.of("loop", other) for other in settings
        ):
            continue  # it is in the line of that loop
        whole = loop or envs
        found.append(
            Measurement(
                date=date,
                cluster=cluster,
                node=bench.node,
                gpu=bench.device if bench.gpu_bytes is not None else None,
                recipe=bench.recipe,
                num_envs=setting.num_envs,
                workers=setting.workers,
                precision=setting.precision,
                env_steps_per_second=envs.env_steps_per_second if envs else None,
                updates_per_second=updates.updates_per_second if updates and loop else None,
                steps_per_second=loop.steps_per_second if loop else None,
                host_bytes=bench.memory(loop) if loop else whole.host_bytes if whole else None,
                device_bytes=loop.device_bytes if loop else None,
                clusterkit=version,
            )
        )
    return found
