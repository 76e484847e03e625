"""The grammar of values that a user lists, `VALUE,VALUE`: splits the text, and writes it. Pure.

Commas in brackets and quotes belong to a value. A value is the text as written; only quotes around a whole
value are removed, as a shell does, so that any text can be a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from clusterkit.errors import ConfigError

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_TOKEN = re.compile(
    r"""(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<quote>['"])|(?P<open>[(\[{])|(?P<close>[)\]}])"""
    r"|(?P<comma>,)|(?P<other>[^'\"(\[{)\]},]+)",
    re.DOTALL,
)


def split_values(text: str, option: str) -> tuple[str, ...]:
    r"""Splits a list of values.

    >>> split_values("(0.9,0.999), {a: [1,2]},'a,b',x['a,b'],\"it's\"", "--sweep x")
    ('(0.9,0.999)', '{a: [1,2]}', 'a,b', "x['a,b']", "it's")

    Args:
        text: the values, separated by commas.
        option: what the user typed, for messages.

    Raises:
        ConfigError: a value is missing, or a bracket or quote has no counterpart.
    """
    written = _written(text, option)
    if not all(written):
        raise ConfigError(f"{option}: a value is missing", hint="write VALUE,VALUE; '' is an empty value")
    return tuple(map(_bare, written))


def write_values(values: Iterable[str]) -> str:
    """Returns the text that `split_values` splits into these values."""
    return ",".join(map(_quoted, values))


def _written(text: str, option: str) -> list[str]:
    """Returns the values with their quotes."""
    values, value = [], ""
    brackets: list[str] = []
    for token in _TOKEN.finditer(text):
        kind, word = token.lastgroup, token[0]
        if kind == "comma" and not brackets:
            values.append(value.strip())
            value = ""
            continue
        value += word
        if kind == "open":
            brackets.append(word)
        elif kind == "quote" or (kind == "close" and (not brackets or _CLOSING[brackets.pop()] != word)):
            raise _unbalanced(option, word)
    if brackets:
        raise _unbalanced(option, brackets[-1])
    return [*values, value.strip()]


def _unbalanced(option: str, mark: str) -> ConfigError:
    quote = '"' if mark == "'" else "'"
    what = "quote" if mark in "'\"" else "bracket"
    return ConfigError(
        f"{option}: the {what} {mark} has no counterpart",
        hint=f"in a value that is meant so, quote the value: {quote}VALUE{quote}; "
        "commas in (), [], {} and quotes belong to a value, e.g. (0.9,0.999),(0.5,0.9)",
    )


def _bare(value: str) -> str:
    """Returns a value without the quotes around it; in them, a backslash precedes a quote or a backslash."""
    token = _TOKEN.fullmatch(value)
    if token is None or token["quoted"] is None:
        return value
    return re.sub(rf"\\([\\{value[0]}])", r"\1", value[1:-1])


def _quoted(value: str) -> str:
    """Returns a value as a list of values holds it, in quotes only where it needs them."""
    try:
        if split_values(value, "") == (value,):
            return value
    except ConfigError:
        pass
    quote = '"' if "'" in value and '"' not in value else "'"
    return quote + re.sub(rf"([\\{quote}])", r"\\\1", value) + quote
