"""One object for all that a run tells: it writes each fact wherever it belongs."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from trainer.telemetry.gpu import GpuSampler
from trainer.telemetry.heartbeat import Heartbeat
from trainer.telemetry.metrics import Metrics
from trainer.telemetry.progress import Opens, Progress, open_progress
from trainer.telemetry.usage import Clock, UsageMeter
from trainer.telemetry.wandb_run import WandbLostError, WandbRun, open_wandb


class Telemetry:
    """Metrics, heartbeat, progress and W&B of one attempt. Use `Telemetry.open`, as a context manager.

    Leaving the context closes everything: W&B gets exit code 0, or that of the `SystemExit`, 130 for a
    `KeyboardInterrupt` and 1 for any other exception that leaves it. Call `close` with another code before,
    if there is one.

    Attributes:
        progress: what shows progress; `heartbeat` feeds it.
        clock: times the parts of the loop; `train` records their shares.
    """

    def __init__(
        self, metrics: Metrics, heartbeat: Heartbeat, gpu: GpuSampler | None, progress: Progress
    ) -> None:
        self.progress = progress
        self.clock = Clock()
        self._usage = UsageMeter(gpu)
        self._metrics = metrics
        self._heartbeat = heartbeat
        self._gpu = gpu
        self._wandb: WandbRun | None = None
        self._success: float | None = None
        self._phase = "start"
        self._step = 0
        self._shown = True
        self._closed = False

    @classmethod
    def open(
        cls,
        run_dir: Path,
        run_header: Mapping[str, Any],
        total_steps: int,
        attempt: int = 0,
        wandb_mode: str = "auto",
        *,
        step: int = 0,
        config: Mapping[str, Any] | None = None,
        gpu_uuid: str | None = None,
        stream: TextIO | None = None,
        name: str | None = None,
        wandb_id: str | None = None,
        opens: Opens | None = None,
    ) -> Self:
        """Opens everything and writes the `run` line.

        Args:
            run_dir: the run directory; made (mode 0700) if missing.
            run_header: the fields of the `run` line, as docs/run-directory.md lists them.
            total_steps: environment steps the run is to make.
            attempt: the number of this start of the run.
            wandb_mode: see `open_wandb`.
            step: the environment step this attempt starts from.
            config: the recipe's values, for W&B; the header and the profile of `run.json` are added.
            gpu_uuid: the GPU to sample, or None.
            stream: where progress goes; standard output by default.
            name: of the run; by default its directory's.
            wandb_id: W&B's id of the run, see `open_wandb`.
            opens: what shows progress instead of a bar or lines there.

        Raises:
            OSError: the run directory cannot be written.
            ValueError: an unknown W&B mode.
        """
        run_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        gpu = GpuSampler.start(gpu_uuid)
        telemetry = cls(
            Metrics(run_dir / "metrics.jsonl", attempt),
            Heartbeat(run_dir / "heartbeat.json", attempt, total_steps, step=step, gpu=gpu),
            gpu,
            opens(total_steps, step) if opens else open_progress(total_steps, step, stream),
        )
        telemetry._step = step
        try:
            telemetry._metrics.write("run", step, run_header)
            telemetry._wandb, said = open_wandb(
                wandb_mode,
                run_dir,
                name=name or run_dir.resolve().name,
                config={**(config or {}), **run_header, **_profile(run_dir)},
                tags=_tags(run_header),
                run_id=wandb_id,
            )
            for sentence in said:
                telemetry.event(step, sentence)
        except BaseException:
            telemetry.close(exit_code=1)
            raise
        return telemetry

    def train(self, step: int, values: Mapping[str, Any]) -> None:
        """Records training metrics at an environment step, the shares of time and the use of the machine."""
        self._record("train", step, {**values, **self.clock.drain(), **self._usage.read()})
        self._heartbeat.update(**{"return": values.get("return/mean")})

    def evaluation(self, step: int, values: Mapping[str, Any]) -> None:
        """Records an evaluation, with the keys that docs/run-directory.md lists."""
        self._record("eval", step, values)
        self._success = values.get("success/mean", self._success)
        tasks = {
            key.removeprefix("success/"): value for key, value in values.items() if key.startswith("success/")
        }
        mean = tasks.pop("mean", None)
        if mean is not None:
            rates = ", ".join(f"{task.removesuffix('-v3')} {value:.0%}" for task, value in tasks.items())
            self.progress.say(
                f"evaluation at {step:,} steps: success {mean:.1%}" + (f" ({rates})" if rates else "")
            )
        self.heartbeat(success=self._success)  # the step may be one that training has left behind

    def checkpoint(self, step: int, path: Path | str, size: int, seconds: float) -> None:
        """Records a checkpoint: path relative to the run directory, size in bytes, seconds taken."""
        self._record("checkpoint", step, {"path": str(path), "bytes": size, "seconds": seconds})
        self.heartbeat(checkpoint=str(path))

    def event(self, step: int, message: str) -> None:
        """Records something a person should know: a resumption, a fallback, a warning."""
        self._metrics.write("event", step, {"message": message})
        self.progress.say(message)

    def heartbeat(
        self,
        *,
        step: int | None = None,
        updates: int | None = None,
        phase: str | None = None,
        success: float | None = None,
        checkpoint: str | None = None,
    ) -> None:
        """Says where the program is. Cheap: call it at every step; None changes nothing."""
        due = phase not in (None, self._phase) or time.monotonic() >= self.progress.due
        self._step = self._step if step is None else step
        self._phase = phase or self._phase
        self._success = self._success if success is None else success
        facts = {
            "step": step,
            "updates": updates,
            "phase": phase,
            "success": success,
            "checkpoint": checkpoint,
        }
        self._heartbeat.update(**facts)
        self._shown = due
        if due:
            self._show()
        if self._heartbeat.fault is not None:
            fault = self._heartbeat.take_fault()
            self.event(self._step, f"the heartbeat could not be written: {fault}")

    def close(self, exit_code: int = 0) -> None:
        """Closes everything, telling W&B how the attempt ended; a second call does nothing.

        Raises:
            OSError: the last heartbeat or the metrics cannot be brought to disk.
        """
        if self._closed:
            return
        self._closed = True
        with contextlib.ExitStack() as stack:
            stack.callback(self._metrics.close)
            stack.callback(self.progress.close)
            if not self._shown:
                stack.callback(self._show)
            if self._gpu is not None:
                stack.callback(self._gpu.close)
            stack.callback(self._heartbeat.close)
            if self._wandb is not None:
                try:
                    self._wandb.finish(exit_code)
                except WandbLostError as fault:
                    self.event(self._step, str(fault))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, SystemExit):
            self.close(error.code if isinstance(error.code, int) else int(error.code is not None))
        elif isinstance(error, KeyboardInterrupt):
            self.close(130)
        else:
            self.close(int(error is not None))

    def _show(self) -> None:
        self.progress.update(self._step, self._phase, self._heartbeat.steps_per_second, self._success)

    def _record(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        self._metrics.write(kind, step, values)
        if self._wandb is None:
            return
        try:
            # Text belongs in metrics.jsonl; W&B would make a column of paths of it.
            numbers = {key: value for key, value in values.items() if not isinstance(value, str)}
            self._wandb.log(step, {f"{kind}/{key}": value for key, value in numbers.items()})
        except WandbLostError as fault:
            self._wandb = None
            self.event(step, str(fault))


class SilentTelemetry(Telemetry):
    """The telemetry of a rank that writes no file: it only prints events, with its rank.

    Args:
        rank: of this process.
    """

    def __init__(self, rank: int) -> None:
        self.clock = Clock()
        self._rank = rank

    def train(self, step: int, values: Mapping[str, Any]) -> None:
        """Does nothing."""

    def evaluation(self, step: int, values: Mapping[str, Any]) -> None:
        """Does nothing."""

    def checkpoint(self, step: int, path: Path | str, size: int, seconds: float) -> None:
        """Does nothing."""

    def event(self, step: int, message: str) -> None:  # noqa: ARG002 - a print has no column for it
        """Prints the message."""
        sys.stdout.write(f"[rank {self._rank}] {message}\n")
        sys.stdout.flush()

    def heartbeat(self, **facts: Any) -> None:
        """Does nothing."""

    def close(self, exit_code: int = 0) -> None:
        """Does nothing."""


def _tags(run_header: Mapping[str, Any]) -> list[str]:
    tags = [str(run_header[key]) for key in ("recipe", "label") if run_header.get(key)]
    return [*tags, "modified"] if run_header.get("modified") else tags


def _profile(run_dir: Path) -> dict[str, Any]:
    """Returns what `run.json`, where there is one, says of the hardware and the code."""
    try:
        run = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as fault:
        sys.stderr.write(f"run.json cannot be read: {fault}\n")
        return {}
    return {key: run[key] for key in ("profile", "cluster", "image", "snapshot", "seed") if key in run}
