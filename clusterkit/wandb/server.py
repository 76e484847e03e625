"""Where W&B is and which key opens it, found and never asked for; and how much of a run the server holds.

What the server says is the only verification independent of the client.
"""

from __future__ import annotations

import base64
import configparser
import json
import netrc
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from clusterkit import folders
from clusterkit.errors import WandbError

_QUERY = """
query RunResumeStatus($project: String, $entity: String, $name: String!) {
  model(name: $project, entityName: $entity) {
    bucket(name: $name, missingOk: true) { historyLineCount }
  }
}
"""
"""The client's own query before it resumes a run."""
DEFAULT_URL = "https://api.wandb.ai"


def history_lines(
    credentials: Credentials, *, entity: str | None, project: str | None, run_id: str, timeout: float
) -> int | None:
    """Returns the number of history lines that the server holds for a run; 0 without the run.

    Returns:
        None if the server's answer does not tell.

    Raises:
        WandbError: the server cannot be reached, or refuses the key.
    """
    import http.client  # as slow to import as a whole sync that finds nothing is quick
    import urllib.error
    import urllib.request

    variables = {"project": project, "entity": entity, "name": run_id}
    question = {"operationName": "RunResumeStatus", "query": _QUERY, "variables": variables}
    token = base64.b64encode(f"api:{credentials.key}".encode()).decode()
    request = urllib.request.Request(  # noqa: S310 - the scheme is checked where the address is found
        f"{credentials.base_url}/graphql",
        data=json.dumps(question).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Basic {token}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:  # noqa: S310
            return _count(json.load(response))
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            raise WandbError(
                f"{credentials.base_url} refuses the W&B key ({error.code})",
                hint="check WANDB_API_KEY or ~/.netrc, and that the key may write to this entity",
            ) from error
        return None
    except OSError as error:
        raise _unreachable(credentials.base_url, error) from error
    except (ValueError, http.client.HTTPException):  # no JSON, or no HTTP
        return None


def answers(url: str, *, timeout: float) -> None:
    """Checks that the server speaks HTTP; no key is sent.

    Raises:
        WandbError: it cannot be reached.
    """
    import http.client
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=timeout):  # noqa: S310 - as above
            return
    except urllib.error.HTTPError:
        return
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(url, error) from error


def _unreachable(url: str, error: Exception) -> WandbError:
    reason = getattr(error, "reason", error)
    return WandbError(
        f"{url} cannot be reached: {getattr(reason, 'strerror', None) or reason}",
        hint="the results are safe on this machine; `clusterkit sync-results` uploads them when it can",
    )


def _count(reply: Any) -> int | None:
    """Returns the line count in a GraphQL reply; a project or run that does not exist yet counts as 0."""
    if not isinstance(reply, dict) or reply.get("errors") or not isinstance(reply.get("data"), dict):
        return None
    model = reply["data"].get("model")
    bucket = model.get("bucket") if isinstance(model, dict) else None
    count = bucket.get("historyLineCount") if isinstance(bucket, dict) else 0
    return count if isinstance(count, int) else None


@dataclass(frozen=True)
class Credentials:
    """A W&B server and the key for it."""

    base_url: str
    key: str = field(repr=False)

    def redact(self, text: str) -> str:
        """Returns the text without the key."""
        return text.replace(self.key, "***")


def base_url(environment: Mapping[str, str], home: Path) -> str:
    """Returns the server in use: WANDB_BASE_URL, else what `wandb login --host` has saved, else wandb.ai."""
    saved = configparser.ConfigParser(interpolation=None)
    folder = Path(environment.get("WANDB_CONFIG_DIR") or home / ".config" / "wandb")
    try:
        saved.read(folder / "settings", encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise WandbError(f"{folder / 'settings'}: not readable as W&B settings: {error}") from error
    url = environment.get("WANDB_BASE_URL") or saved.get("default", "base_url", fallback="") or DEFAULT_URL
    if urlsplit(url).scheme not in ("http", "https"):
        raise WandbError(f"the W&B server {url!r} is not an http(s) address", hint="mend WANDB_BASE_URL")
    return url.rstrip("/")


def find_credentials(environment: Mapping[str, str], home: Path) -> Credentials | None:
    """Returns the key for the server in use: WANDB_API_KEY, else its netrc entry; None when there is neither.

    Raises:
        WandbError: a file that should tell is damaged.
    """
    url = base_url(environment, home)
    key = environment.get("WANDB_API_KEY", "").strip()
    if not key:
        path = folders.expanded(environment.get("NETRC") or str(home / ".netrc"))
        try:
            entry = netrc.netrc(path).authenticators(urlsplit(url).hostname or "")
        except FileNotFoundError:
            return None
        except (netrc.NetrcParseError, OSError) as error:
            raise WandbError(
                f"{path}: not readable: {error}", hint="correct it, or set WANDB_API_KEY"
            ) from error
        key = entry[2] if entry and entry[2] else ""
    return Credentials(url, key) if key else None
