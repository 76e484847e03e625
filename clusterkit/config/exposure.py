"""Finds secrets in places that others could read. Pure.

A job script, run.json and request.json are kept for ever, and Slurm shows a job's options and comment to
other users (squeue, sacct's SubmitLine). Secrets are recognised by name here; `clusterkit.runs.shown`
compares the values of those that are known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

HINT = "put its name into `names` of [secrets]: the program gets the value, and nobody else sees it"
_NAME = r"(?:API|ACCESS|SECRET|PRIVATE)_?KEY|SECRET|TOKEN|PASSPHRASE"
_SECRET_NAME = re.compile(rf"(?:(?:^|_)(?:{_NAME})|PASSWORD|PASSWD|SSHPASS)$", re.IGNORECASE)
# A value that begins with `$` is looked up where the text runs; an empty one gives nothing away.
_VALUE = r"""\+?=(?:""|'')*(?:["'](?![\s$"']|$)|\$["'](?!["'])|(?![\s$,;"']|$))"""
_VARIABLE = re.compile(rf"(?<![A-Za-z0-9_])([A-Za-z_][A-Za-z0-9_]*){_VALUE}")
# Among the arguments of a program a token may be a word of a text, so only what names a key counts there.
_KEY = re.compile(
    r"(?:^|[-_.+])(?:(?:api|access|secret)[-_]?key|(?:hf|access)[-_]token|client[-_]secret|password|passwd)$",
    re.IGNORECASE,
)
_GIVEN = re.compile(_VALUE)


def names_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret.

    >>> [names_secret(name) for name in ("WANDB_API_KEY", "token", "TOKENIZERS_PARALLELISM")]
    [True, True, False]
    """
    return _SECRET_NAME.search(name) is not None


def assigned_secret(text: str) -> str | None:
    """The name of a secret that is assigned in a text; None without one.

    >>> [assigned_secret(text) for text in ("ALL,HF_TOKEN=abc", "HF_TOKEN", "HF_TOKEN=$(cat ~/.hf)", "A=1")]
    ['HF_TOKEN', None, None, None]
    """
    return next((name for name in _VARIABLE.findall(text) if names_secret(name)), None)


def secret_argument(argv: Sequence[str]) -> str | None:
    """The name of a secret among a program's arguments: `HF_TOKEN=...`, `--api-key=...`, `--api-key ...`.

    A lower-case name such as `pad_token=...` does not count as a secret.
    """
    for word, after in zip(argv, [*argv[1:], ""], strict=False):
        for name in _VARIABLE.findall(word):
            if name.isupper() and names_secret(name):
                return str(name)
        option, equals, _ = word.partition("=")
        given = bool(equals) and _GIVEN.search(word) is not None
        follows = word.startswith("-") and not equals and after != "" and not after.startswith(("-", "$"))
        if (given or follows) and _KEY.search(option):
            return option
    return None
