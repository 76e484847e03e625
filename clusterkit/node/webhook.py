"""Posts a notice to a webhook: ntfy, Slack, Teams, or JSON for a program of one's own.

A job that sends the notice of its own end runs this file, copied beside its encrypted secrets, with the
Python of the node: `python3 webhook.py RUN_DIR ATTEMPT EVENT`, and what is known of the end on standard
input. So it uses only the standard library of Python 3.8 and, of clusterkit, only `with_secrets`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

SECONDS = 10.0
"""Of waiting for a webhook, in all."""
_LAST_BYTES = 4096
"""Of a program's standard error, in which its last line is looked for."""
_LONGEST = 300
"""Characters of that line."""


def request(
    url: str, kind: str, event: str, title: str, lines: Sequence[str], runs: Sequence[str]
) -> Request:
    """Returns the request that posts a notice. Pure.

    Args:
        url: the webhook's address.
        kind: what it expects.
        event: what happened, for a program.
        title: one line, in ASCII.
        lines: the text.
        runs: ids of runs or of a group.
    """
    headers = {"User-Agent": "clusterkit", "Content-Type": "application/json"}
    text = "\n".join(lines)
    if kind == "ntfy":
        headers.update({"Content-Type": "text/plain; charset=utf-8", "Title": title})
        body = text
    elif kind == "slack":
        body = json.dumps(_slack(f"{title}\n{text}"))
    elif kind == "teams":
        body = json.dumps(_teams(title, lines))
    else:
        body = json.dumps({"schema": 1, "event": event, "title": title, "text": text, "runs": list(runs)})
    return Request(url, data=body.encode(), headers=headers, method="POST")  # noqa: S310 - http(s), checked


def post(what: Request, *, seconds: float = SECONDS) -> str | None:
    """Posts a notice once; returns why it did not arrive, without the address, or None."""
    answers: list[str | None] = []

    def deliver() -> None:
        answers.append(_posted(what, seconds))

    # A thread, because no timeout of a socket bounds the search for a name, or an answer byte by byte.
    worker = threading.Thread(target=deliver, daemon=True)
    worker.start()
    worker.join(seconds)
    return answers[0] if answers else _silent(seconds)


def _silent(seconds: float) -> str:
    return f"no answer in {seconds:g} s"


def _posted(what: Request, seconds: float) -> str | None:
    try:
        with build_opener(_NoRedirect).open(what, timeout=seconds):
            return None
    except HTTPError as error:
        error.close()
        return f"the server answered {error.code}"
    except (URLError, TimeoutError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            return _silent(seconds)
        return str(getattr(reason, "strerror", None) or reason)
    except Exception as error:
        return type(error).__name__


class _NoRedirect(HTTPRedirectHandler):
    """Follows nothing: a redirected POST would become a GET, and the notice would be lost unseen."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _slack(text: str) -> Mapping[str, Any]:
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):  # no mention, no link
        text = text.replace(sign, entity)
    return {"text": text}


def _teams(title: str, lines: Sequence[str]) -> Mapping[str, Any]:
    runs = [{"type": "TextRun", "text": title, "weight": "bolder"}]
    runs += [{"type": "TextRun", "text": line} for line in lines]
    card = {
        "type": "AdaptiveCard",
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "version": "1.2",
        "body": [{"type": "RichTextBlock", "inlines": [run]} for run in runs],  # which knows no markup
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [attachment]}


def last_line(path: str) -> str:
    """The last line of a file that has words, printable and bounded; empty without one."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - _LAST_BYTES))
            lines = file.read(_LAST_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    plain = ("".join(char if char.isprintable() else " " for char in line).strip() for line in lines)
    return next((line for line in reversed(list(plain)) if line), "")[:_LONGEST]


def main(arguments: list[str]) -> int:
    """Send the notice of a run's end from its job; returns 0 if it has arrived."""
    from with_secrets import read  # type: ignore[import-not-found]  # it lies beside this file there

    run_dir, attempt, event = arguments
    webhook = read(run_dir)["webhook"]
    if event not in webhook["on"]:
        return 1
    with open(os.path.join(run_dir, "run.json"), encoding="utf-8", errors="surrogateescape") as file:
        run = json.load(file)
    run_id, said = str(run["run_id"]), sys.stdin.read(_LONGEST).strip()
    if event == "failed":
        stderr = os.path.join(run_dir, "attempts", attempt, "stderr")
        title, command = f"{run_id} failed on {run['cluster']}", "why"
        lines = [said or last_line(stderr)]
    else:
        title, command, lines = f"{run_id} completed on {run['cluster']}", "sync-results", [said]
    lines = [*filter(None, lines), f"next: clusterkit {command} {run_id}"]
    title = title.encode("ascii", "replace").decode("ascii")
    fault = post(request(webhook["url"], webhook["kind"], event, title, lines, [run_id]))
    print("[clusterkit] the notice " + (f"was not sent: {fault}" if fault else "was sent"), flush=True)
    return 1 if fault else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
