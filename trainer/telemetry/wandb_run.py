"""The W&B run: offline unless asked otherwise, one id for all attempts, never a reason to stop.

Rows carry explicit steps, which every version of the client uploads as they are, and `env_steps` besides:
an attempt that resumes from a checkpoint repeats steps, and newer clients then move W&B's own step axis
(measured with the clients 0.28.2 to 0.31.0 against a loopback server).

The client raises errors of many classes, some private and some of asyncio. None may end a run of many
hours, so each call here catches them all and says what happened.
"""

from __future__ import annotations

import contextlib
import netrc
import os
import secrets
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

MODES = ("auto", "offline", "online", "disabled")
STEP_METRIC = "env_steps"
PROJECT = "clusterkit"
INIT_SECONDS = 30.0
FLUSH_SECONDS = 2.0
FINISH_SECONDS = 30.0
"""An online run that is not uploaded by then stays on disk; `clusterkit sync-results` sends the rest.

Less than a scheduler leaves after its warning: the exit code, with which a run is requeued, comes after it.
"""


_open: set[str] = set()
"""The ids of the runs that this process has open; one client serves them all."""


class WandbLostError(RuntimeError):
    """The W&B client has died or refuses a row; nothing more reaches this run."""


class WandbRun:
    """An open W&B run. Use `open_wandb`."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._step = -1

    @property
    def id(self) -> str:
        """The W&B run id."""
        return str(self._run.id)

    def log(self, step: int, values: Mapping[str, Any]) -> None:
        """Adds values to the row of a step; rows of one step become one row.

        The client drops a step that is lower than the last one. Should that happen, the values take the
        next step that is free: their `env_steps` still tells the truth.

        Raises:
            WandbLostError: the client is gone.
        """
        row = self._step + 1 if step < self._step else step
        self._step = row
        try:
            self._run.log({**values, STEP_METRIC: step}, step=row)
        except Exception as fault:
            self._abandon()
            raise WandbLostError(f"W&B takes no more ({_line(fault)}); metrics.jsonl has it all") from fault

    def finish(self, exit_code: int) -> None:
        """Closes the run; that of a process's last one returns when all of all of them is on disk.

        Args:
            exit_code: anything but 0 shows as failed until a later attempt ends well.

        Raises:
            WandbLostError: the client is gone, and its last rows with it.
        """
        import wandb

        try:
            self._run.finish(exit_code=exit_code)
            _open.discard(self.id)
            if not _open:  # The helper process writes on after `finish`; only its end is the end.
                wandb.teardown()
        except (Exception, SystemExit) as fault:
            self._abandon()
            raise WandbLostError(f"W&B could not close its run ({_line(fault)})") from fault

    def _abandon(self) -> None:
        _open.discard(self.id)
        _abandon()


def open_wandb(
    mode: str,
    run_dir: Path,
    *,
    name: str,
    config: Mapping[str, Any],
    tags: Sequence[str] = (),
    run_id: str | None = None,
) -> tuple[WandbRun | None, list[str]]:
    """Opens the W&B run of a run directory.

    The id is the one given, else that of an earlier attempt in the directory, else a new one; project and
    entity are `$WANDB_PROJECT` (`clusterkit` without it) and `$WANDB_ENTITY`.

    Args:
        mode: one of `MODES`. `auto` is `$WANDB_MODE` or else offline. Whatever cannot be had becomes the
            next best thing: online that fails is offline, a missing client is disabled.
        run_dir: where the client's `wandb/` folder goes.
        name: what W&B shows.
        config: plain JSON; never secrets.
        tags: short words to filter by.
        run_id: what the run is called by W&B itself.

    Returns:
        The run, or None where there is none, and sentences that say what was not as asked.

    Raises:
        ValueError: an unknown mode.
    """
    if mode not in MODES:
        raise ValueError(f"W&B mode {mode!r} is not one of {', '.join(MODES)}")
    said: list[str] = []
    if mode == "auto":
        mode = os.environ.get("WANDB_MODE") or "offline"
        if mode not in MODES[1:]:
            said.append(f"WANDB_MODE={mode} is not known here; W&B runs offline")
            mode = "offline"
    if mode == "disabled":
        return None, said
    try:
        import wandb
    except ImportError as fault:
        return None, [*said, f"W&B is off: {_line(fault)}"]
    run_id = run_id or _earlier_id(run_dir) or _new_id()
    if mode == "online" and not _has_key():
        said.append("no W&B API key is set; W&B runs offline")
        mode = "offline"
    for candidate in dict.fromkeys((mode, "offline")):
        try:
            run = wandb.init(
                dir=run_dir,
                id=run_id,
                resume="allow",
                reinit="create_new",  # beside those of other runs in this process
                project=os.environ.get("WANDB_PROJECT") or PROJECT,
                entity=os.environ.get("WANDB_ENTITY") or None,
                mode=candidate,  # type: ignore[arg-type]
                name=name,
                config=dict(config),
                tags=list(tags),
                settings=_settings(),
            )
        except Exception as fault:
            _abandon()
            said.append(f"W&B cannot be opened {candidate} ({_line(fault)})")
            continue
        run.define_metric("*", step_metric=STEP_METRIC)
        _open.add(run_id)
        return WandbRun(run), said
    return None, [*said, "W&B is off"]


def _settings() -> Any:
    import wandb

    wanted = {
        "silent": True,
        "console": "off",
        "init_timeout": INIT_SECONDS,
        "finish_timeout": FINISH_SECONDS,
        "finish_timeout_raises": True,
        # Nothing about the user's machine, repository or code leaves with the metrics.
        "disable_git": True,
        "disable_code": True,
        "save_code": False,
        "disable_job_creation": True,
        "x_disable_meta": True,
        "x_save_requirements": False,
        # A killed job loses what was not flushed; before 0.31 the client has no such setting.
        "x_transaction_log_flush_interval": FLUSH_SECONDS,
    }
    fields = wandb.Settings.model_fields
    return wandb.Settings(**{key: value for key, value in wanted.items() if key in fields})


def _abandon() -> None:
    """Ends a broken client, which would print a traceback at exit and keep the run id taken.

    Not while it serves other runs: if it is gone, each of them will notice.
    """
    import wandb

    if _open:
        return
    with contextlib.suppress(Exception, SystemExit):
        wandb.teardown()


def _earlier_id(run_dir: Path) -> str | None:
    runs = sorted(
        path for path in (run_dir / "wandb").glob("*run-*-*") if path.is_dir() and not path.is_symlink()
    )
    return runs[-1].name.split("-", 3 if runs[-1].name.startswith("offline") else 2)[-1] if runs else None


def _has_key() -> bool:
    """Tells whether the client will find a key; without one it would prompt, and nobody may answer."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname or ""
    places = (os.environ.get("NETRC"), "~/.netrc", "~/_netrc")
    for path in (Path(place).expanduser() for place in places if place):
        with contextlib.suppress(OSError, netrc.NetrcParseError):
            if netrc.netrc(path).authenticators(host):
                return True
    return False


def _new_id() -> str:
    return "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(8))


def _line(fault: BaseException) -> str:
    return " ".join(str(fault).split()) or type(fault).__name__
