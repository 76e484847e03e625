"""Sends a notice by the settings' webhook and command, in bounded time. Nothing here raises."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from clusterkit.config.notify import kind_of, url_fault, without_secret
from clusterkit.errors import NotAllowedError
from clusterkit.node.webhook import SECONDS, post, request
from clusterkit.notices.notice import Notice
from clusterkit.untrusted import one_line

if TYPE_CHECKING:
    from clusterkit.config.held import LocalProgram
    from clusterkit.config.notify import Notify


def send(notify: Notify, notice: Notice) -> list[tuple[str, str | None]]:
    """Sends a notice once to each place; returns the places, each with why nothing arrived there, or None."""
    ways: list[Callable[[Notify, Notice], tuple[str, str | None]]] = []
    if notify.webhook or notify.webhook_command:
        ways.append(_by_webhook)
    if notify.command:
        ways.append(_by_command)
    return [way(notify, notice) for way in ways]


def _by_webhook(notify: Notify, notice: Notice) -> tuple[str, str | None]:
    url = notify.webhook or ""
    if notify.webhook_command is not None:
        place = f"webhook of {notify.webhook_command.argv[0]}"
        said, fault = _run(notify.webhook_command)
        if fault:
            return place, fault
        url = said.strip()
        if fault := url_fault(url):
            return place, f"what it printed {fault}"
    place = f"webhook {without_secret(url)}"
    kind = notify.webhook_kind or kind_of(url)
    if kind is None:
        return place, "its host does not tell what it expects: set notify.webhook_kind"
    what = request(url, kind, notice.event, notice.title, notice.lines, notice.runs)
    return place, post(what)


def _by_command(notify: Notify, notice: Notice) -> tuple[str, str | None]:
    program = notify.command
    assert program is not None
    variables = {
        "CLUSTERKIT_NOTICE_EVENT": notice.event,
        "CLUSTERKIT_NOTICE_TITLE": notice.title,
        "CLUSTERKIT_NOTICE_TEXT": notice.text,
        "CLUSTERKIT_NOTICE_RUNS": " ".join(notice.runs),
    }
    # Not among the arguments: there, a text that begins with a dash is an option.
    _, fault = _run(program, variables, said=f"{notice.title}\n{notice.text}\n")
    return f"command {program.argv[0]}", fault


def _run(
    program: LocalProgram, variables: dict[str, str] | None = None, said: str = ""
) -> tuple[str, str | None]:
    """Runs a program for at most `SECONDS`; returns its output, and what went wrong, or None."""
    try:
        process = subprocess.Popen(
            program.allowed(),
            cwd=program.folder,
            env={**os.environ, **(variables or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except NotAllowedError:
        return "", "you have not allowed it: `clusterkit config allow` shows it"
    except (OSError, ValueError) as error:
        return "", getattr(error, "strerror", None) or "it cannot be started"
    with process:
        try:
            out, err = process.communicate(said.encode(), timeout=SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            return "", f"it had not ended after {SECONDS:g} s"
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        last = err.decode(errors="replace").strip().splitlines()[-1:]
        return "", one_line(": ".join((f"it ended with code {process.returncode}", *last)))
    return out.decode(errors="replace"), None
