"""Where W&B is and which key opens it; found, never asked for."""

from __future__ import annotations

import configparser
import netrc
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from clusterkit import folders
from clusterkit.errors import WandbError

DEFAULT_URL = "https://api.wandb.ai"


@dataclass(frozen=True)
class Credentials:
    """A W&B server and the key for it."""

    base_url: str
    key: str = field(repr=False)

    def redact(self, text: str) -> str:
        """The text without the key."""
        return text.replace(self.key, "***")


def base_url(environment: Mapping[str, str], home: Path) -> str:
    """The server in use: WANDB_BASE_URL, else what `wandb login --host` has saved, else wandb.ai."""
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


def find(environment: Mapping[str, str], home: Path) -> Credentials | None:
    """The key for the server in use: WANDB_API_KEY, else its netrc entry; None when there is neither.

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
