"""Which names stay here: patterns, what is never sent, and what looks like a secret. Pure."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

from clusterkit.errors import ConfigError

ALWAYS_EXCLUDED = (
    ".git", ".clusterkit", ".venv*", "__pycache__", "*.pyc", "/wandb", "*.sif",
    ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "node_modules",
)  # fmt: skip

SECRETS = (
    ".env", ".env.*", ".envrc", "*.env",
    ".netrc", "_netrc", ".git-credentials", ".pgpass", ".pypirc", ".npmrc",
    "*.pem", "*.key", "*.p12", "*.pfx", "*.ppk", "*.jks", "*.keystore", "*.kdbx", "*.gpg",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*",
    ".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker/config.json", ".config/gcloud",
    "credentials", "credentials.json", "*_credentials.json", "client_secret*.json",
    "service[-_]account*.json", "secrets", ".secrets", "secrets.[jty]*", "*.tfstate", ".vault-token",
    "*api[-_]key", "*api[-_]key.txt", "*.token", ".huggingface",
)  # fmt: skip
"""The deny list, whatever git says; upper and lower case are the same. docs/security.md shows it."""

_EXAMPLES = re.compile(r"\.(example|sample|template|dist)$", re.IGNORECASE)


class Patterns:
    """Shell patterns that match a relative path, one of its folders, or any single part of it.

    A pattern that begins with a slash counts from the top of the project; `*` also matches slashes.

    >>> Patterns(["notes/", "/data", "*.mp4"]).match("a/notes/x.txt")
    True
    >>> Patterns(["/data"]).match("a/data")
    False
    """

    def __init__(self, patterns: Iterable[str], *, ignore_case: bool = False) -> None:
        texts = [fnmatch.translate(pattern.rstrip("/")) for pattern in patterns]
        self._regex = re.compile("|".join(texts) or "(?!)", re.IGNORECASE if ignore_case else 0)
        self._folders: dict[str, bool] = {"": False}

    def match(self, name: str) -> bool:
        """Whether the path or one of its folders is meant."""
        folder, _, last = name.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = self.match(folder)
        return self._folders[folder] or any(self._regex.match(text) for text in (last, name, f"/{name}"))


_secrets = Patterns(SECRETS, ignore_case=True)


def looks_secret(name: str) -> bool:
    """Whether a path is on the deny list; an example (`.env.example`) is not.

    >>> [looks_secret(name) for name in ("a/.env", "ID_RSA", "secrets.yaml", "secrets.py", ".env.example")]
    [True, True, True, False, False]
    """
    return _secrets.match(name) and not _EXAMPLES.search(name)


def ignore_file(text: str, where: str) -> tuple[str, ...]:
    """The patterns of a .clusterkitignore: one a line, `#` begins a comment.

    Raises:
        ConfigError: a line takes something back with `!`.
    """
    lines = [line.strip() for line in text.splitlines()]
    for number, line in enumerate(lines, 1):
        if line.startswith("!"):
            raise ConfigError(
                f"{where}:{number}: {line}: a pattern here cannot be taken back",
                hint="name what may travel under `include` of [project] in clusterkit.toml",
            )
    return tuple(line for line in lines if line and not line.startswith("#"))
