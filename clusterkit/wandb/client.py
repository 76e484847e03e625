"""Runs the installed wandb client and judges the result.

`wandb sync` exits 0, prints "Finished syncing" and writes its marker even when the server refused the whole
history. Only its debug log shows every abandoned request, as an ERROR.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clusterkit.errors import WandbError
from clusterkit.untrusted import parse_object
from clusterkit.wandb.server import Credentials
from clusterkit_rl.distribution import install_command

OLDEST = (0, 28, 2)
"""The oldest supported client."""

NEWEST = (0, 31)
"""The newest tested release; the server's answers verify its later fixes."""

FIRST_LOOK, NEXT_LOOK = 5.0, 10.0
"""Seconds between two checks that the client makes progress."""

_KEPT = frozenset({"WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_INSECURE_DISABLE_SSL"})
"""The user's WANDB_ variables passed to the client; others, such as WANDB_MODE, would change the upload."""

_RETRIES = {
    f"WANDB_X_{what}_{name}": value
    for what in ("GRAPHQL", "FILE_STREAM", "FILE_TRANSFER")
    for name, value in (
        ("RETRY_MAX", "4"),
        ("RETRY_WAIT_MIN_SECONDS", "1"),
        ("RETRY_WAIT_MAX_SECONDS", "8"),
    )
}
"""Without bounds the client retries a refused history for up to seven days."""


@dataclass(frozen=True)
class ClientVerdict:
    """Whether an upload arrived, according to the client's traces."""

    ok: bool
    reason: str = ""
    """Why not; one line."""
    warnings: tuple[str, ...] = ()
    """Losses other than history: files that the server refused."""
    url: str | None = None
    """The client's URL of the run."""


def installed_version() -> str:
    """Returns the version of the wandb client of this interpreter.

    Raises:
        WandbError: it is missing or too old.
    """
    try:
        version = importlib.metadata.version("wandb")
    except importlib.metadata.PackageNotFoundError:
        raise WandbError(
            "the wandb client is not installed here, so offline runs cannot be uploaded",
            hint=f"{install_command(extra='train')}, or sync with --no-wandb",
        ) from None
    if _numbers(version) < OLDEST:
        raise WandbError(
            f"wandb {version} is too old to upload offline runs reliably",
            hint=f"upgrade it to {'.'.join(map(str, OLDEST))} or newer",
        )
    return version


def is_known(version: str) -> bool:
    """Returns whether the client's release was tested."""
    return _numbers(version)[:2] <= NEWEST


def unknown(version: str) -> str:
    """Returns the warning about a newer client; one line."""
    newest = ".".join(map(str, NEWEST))
    return (
        f"wandb {version} is newer than any tested version (up to {newest}); the server shows every step, "
        f"and if something else is wrong: pip install 'wandb=={newest}.*'"
    )


def environment(
    inherited: Mapping[str, str], credentials: Credentials, *, stage: Path, may_finish: bool
) -> dict[str, str]:
    """Returns the client's environment: the user's, with key, bounded retries and no other WANDB_ setting.

    Args:
        inherited: the environment of this process.
        credentials: server and key; the key is in no argument and no file.
        stage: folder the client may write to.
        may_finish: whether the end of the log ends the run; otherwise it stays `running`.
    """
    kept = {
        name: value for name, value in inherited.items() if not name.startswith("WANDB_") or name in _KEPT
    }
    ours = {
        "WANDB_API_KEY": credentials.key,
        "WANDB_BASE_URL": credentials.base_url,
        "WANDB_DIR": str(stage),
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_X_UPDATE_FINISH_STATE": "true" if may_finish else "false",
    }
    return {**kept, **ours, **_RETRIES}


def sync_argv(folders: Sequence[str], *, entity: str | None, project: str | None) -> list[str]:
    """Returns the argv of one upload; the folders hold the logs of one W&B run. It contains no key."""
    # -P: the current folder holds a folder `wandb`, which must not be taken for the client.
    argv = [sys.executable, "-P", "-m", "wandb", "sync"]
    argv += ["--entity", entity] if entity else []
    argv += ["--project", project] if project else []
    return [*argv, "--", *folders]


def sync(
    folders: Sequence[str],
    *,
    stage: Path,
    credentials: Credentials,
    entity: str | None = None,
    project: str | None = None,
    may_finish: bool = True,
    keep_open: Sequence[int] = (),
    watch: Callable[[float], str | None] = lambda _: None,
) -> ClientVerdict:
    """Uploads staged run folders of one W&B run with the installed client.

    Args:
        folders: names below `stage`, each holding one whole log.
        stage: the client's working folder; its markers and logs stay in it.
        credentials: server and key.
        entity: upload there instead of where the log says.
        project: upload there instead of where the log says.
        may_finish: see `environment`.
        keep_open: file descriptors the client inherits.
        watch: called regularly with the elapsed seconds; a returned reason ends the client.
    """
    (stage / "wandb").mkdir()  # without it, the client puts a log into the folder for temporary files
    output = stage / "said.txt"
    # Not a pipe: a client whose pipe is closed, since we were killed, hangs for ever.
    with output.open("wb") as words:
        process = subprocess.Popen(
            sync_argv(folders, entity=entity, project=project),
            cwd=stage,
            env=environment(os.environ, credentials, stage=stage, may_finish=may_finish),
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=keep_open,
        )
    try:
        reason = _wait(process, watch)
    except BaseException:
        _end(process)
        raise
    if reason is not None:
        _end(process)
        return ClientVerdict(False, reason)
    debug = [path.read_text("utf-8", "replace") for path in sorted(stage.rglob("debug-sync*.log"))]
    marked = all(any((stage / folder).glob("*.wandb.synced")) for folder in folders)
    return judge(
        process.returncode,
        credentials.redact(output.read_text("utf-8", "replace")),
        [credentials.redact(line) for text in debug for line in text.splitlines()],
        marked=marked,
    )


def _wait(process: subprocess.Popen[bytes], watch: Callable[[float], str | None]) -> str | None:
    """Waits for the client to end; returns why it was stopped if it made no progress."""
    begun = time.monotonic()
    pause = FIRST_LOOK
    while True:
        try:
            process.wait(pause)
        except subprocess.TimeoutExpired:
            reason = watch(time.monotonic() - begun)
            if reason is not None:
                return reason
            pause = NEXT_LOOK
        else:
            return None


def judge(returncode: int, output: str, debug_lines: Iterable[str], *, marked: bool) -> ClientVerdict:
    """Judges one upload by the client's traces. Pure.

    Args:
        returncode: its exit status.
        output: what it printed.
        debug_lines: its debug log, JSON lines.
        marked: whether it wrote its marker beside every log.
    """
    entries = [entry for line in debug_lines if (entry := parse_object(line))]
    errors = [entry for entry in entries if str(entry.get("level", "")).startswith("ERROR")]
    printed = [line.partition("ERROR")[2].strip() for line in output.splitlines() if "ERROR" in line]
    lost = [entry for entry in errors if _is_history(entry)]
    if lost:
        return ClientVerdict(False, f"the server refused the history: {_describe(lost[0])}")
    if returncode != 0 or not marked:
        causes = [*printed, *map(_describe, errors), *reversed(output.strip().splitlines())]
        return ClientVerdict(False, next(filter(None, causes), f"the client ended with status {returncode}"))
    if not entries:
        return ClientVerdict(
            False, "the client left no debug log, so nothing proves that the history arrived"
        )
    seen = re.search(r"View run .* at (https?://\S+)", output)
    return ClientVerdict(
        True, warnings=tuple(dict.fromkeys(map(_describe, errors))), url=seen[1] if seen else None
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _is_history(entry: Mapping[str, object]) -> bool:
    return str(entry.get("url", "")).endswith("/file_stream") or "filestream" in str(entry.get("msg", ""))


def _describe(entry: Mapping[str, object]) -> str:
    if "status" in entry:
        return f"{entry['status']} for {entry.get('method', 'a request')} {entry.get('url', '')}".strip()
    text = str(entry.get("error") or entry.get("msg") or "unknown error")
    return text.splitlines()[0][:200]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the client; its helper process leaves by itself when the client is gone."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
