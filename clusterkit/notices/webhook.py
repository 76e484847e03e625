"""Posts a notice to a webhook: ntfy, Slack, Teams, or JSON for a program of one's own."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from clusterkit import __version__
from clusterkit.config.notify import WebhookKind
from clusterkit.notices.notice import Notice

SECONDS = 10.0
"""Of waiting for a webhook, in all."""


def request(url: str, kind: WebhookKind, notice: Notice) -> Request:
    """Returns the request that posts a notice. Pure."""
    headers = {"User-Agent": f"clusterkit/{__version__}", "Content-Type": "application/json"}
    if kind == "ntfy":
        headers |= {"Content-Type": "text/plain; charset=utf-8", "Title": notice.title}
        body = notice.text
    else:
        body = json.dumps(_SHAPES[kind](notice))
    return Request(url, data=body.encode(), headers=headers, method="POST")  # noqa: S310 - http(s), checked


def post(url: str, kind: WebhookKind, notice: Notice, *, seconds: float = SECONDS) -> str | None:
    """Posts a notice once; returns why it did not arrive, without the address, or None."""
    answers: list[str | None] = []

    def deliver() -> None:
        answers.append(_posted(request(url, kind, notice), seconds))

    # A thread, because no timeout of a socket bounds the search for a name, or an answer byte by byte.
    worker = threading.Thread(target=deliver, daemon=True)
    worker.start()
    worker.join(seconds)
    return answers[0] if answers else f"no answer in {seconds:g} s"


def _posted(what: Request, seconds: float) -> str | None:
    try:
        with build_opener(_NoRedirect).open(what, timeout=seconds):
            return None
    except HTTPError as error:
        error.close()
        return f"the server answered {error.code}"
    except URLError as error:
        reason = error.reason
        return str(getattr(reason, "strerror", None) or reason)
    except Exception as error:
        return type(error).__name__


class _NoRedirect(HTTPRedirectHandler):
    """Follows nothing: a redirected POST would become a GET, and the notice would be lost unseen."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _slack(notice: Notice) -> Mapping[str, Any]:
    text = f"{notice.title}\n{notice.text}"
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):  # no mention, no link
        text = text.replace(sign, entity)
    return {"text": text}


def _teams(notice: Notice) -> Mapping[str, Any]:
    lines = [{"type": "TextRun", "text": notice.title, "weight": "bolder"}]
    lines += [{"type": "TextRun", "text": line} for line in notice.lines]
    card = {
        "type": "AdaptiveCard",
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "version": "1.2",
        "body": [{"type": "RichTextBlock", "inlines": [line]} for line in lines],  # which knows no markup
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [attachment]}


def _json(notice: Notice) -> Mapping[str, Any]:
    return {
        "schema": 1,
        "event": notice.event,
        "title": notice.title,
        "text": notice.text,
        "runs": list(notice.runs),
    }


_SHAPES = {"slack": _slack, "teams": _teams, "json": _json}
