"""Refuses what would show a secret's value to others: a plan, a command's words, the files of a snapshot.

Values are compared in memory alone. Neither they nor anything computed from them is kept, and no message
repeats one. `secrets` are the values, by the name of each in a message.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from clusterkit.errors import ConfigError
from clusterkit.node.with_secrets import Masker, Texts, forms

_Path = tuple[str | int, ...]
_KEY = "(key)"
"""In a path: the name of an entry, and not its value."""
_SHORTEST_LINE = 16
"""Bytes; a shorter line of a value may be in many files."""
_CHUNK = 1 << 20
_NAMED = 3
"""Files in a message."""


def refuse_shown(secrets: Mapping[str, str], shown: Mapping[str, object]) -> None:
    """See `SecretValues.refuse_shown`."""
    owners, texts = _owners(secrets), list(_texts(shown, (), set()))
    known = Texts(owners)
    if known.any(b"\0".join(text for _, text in texts)) is None:
        return
    for place, text in texts:
        if (value := known.any(text)) is not None:
            raise _refusal(secrets, owners[value], _words(place, text))


def refuse_in_files(secrets: Mapping[str, str], root: Path, names: Iterable[str]) -> None:
    """See `SecretValues.refuse_in_files`."""
    owners = _owners(secrets)
    known, overlap = Texts(owners), max(map(len, owners)) - 1
    found: dict[str, str] = {}
    for file in names:
        for text in (os.fsencode(file), *_pieces(root, file, overlap)):
            if (value := known.any(text)) is not None:
                found.setdefault(file, owners[value])
    if found:
        first, name = next(iter(found.items()))
        more = f" and {len(found) - _NAMED} more files" if len(found) > _NAMED else ""
        exclude = f'; or add "/{first}" to `exclude` in clusterkit.toml'
        raise _refusal(secrets, name, ", ".join([*found][:_NAMED]) + more, also=exclude)


def _refusal(secrets: Mapping[str, str], name: str, place: str, also: str = "") -> ConfigError:
    what, gets = f"the value of {name}", f": the program gets it in its environment, as {name}"
    if not name.isidentifier():  # it is no variable
        what, gets = name, ""
    cause, hint = f"{what} is in {place}, where others could read it", f"take it out{gets}{also}"
    return ConfigError(masked(secrets, cause), hint=masked(secrets, hint))


def masked(secrets: Mapping[str, str], text: str) -> str:
    """See `SecretValues.masked`."""
    masker = Masker([_raw(value) for value in secrets.values()])
    return (masker.add(_raw(text)) + masker.end()).decode("utf-8", "surrogateescape")


def _owners(secrets: Mapping[str, str]) -> dict[bytes, str]:
    """Returns what each value may look like, and whose it is."""
    owners: dict[bytes, str] = {}
    for name, value in secrets.items():
        raw = _raw(value).strip()
        longest = max((line.strip() for line in raw.splitlines()), key=len)
        for text in {raw, longest} if len(longest) >= _SHORTEST_LINE else {raw}:
            owners |= dict.fromkeys((*forms(text), *_encoded(text)), name)
    return owners


def _encoded(raw: bytes) -> Iterator[bytes]:
    """Yields a value in UTF-16, as hexadecimal digits, and in Base64 wherever it begins in a longer text."""
    text = raw.decode("utf-8", "surrogateescape")
    for encoding in ("utf-16-le", "utf-16-be"):
        yield text.encode(encoding, "surrogatepass")
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    for before in range(3):
        letters = base64.b64encode(bytes(before) + raw)
        own = letters[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
        yield own
        yield own.translate(bytes.maketrans(b"+/", b"-_"))


def _texts(value: object, path: _Path, seen: set[int]) -> Iterator[tuple[_Path, bytes]]:
    """Yields every text in an object and where it is."""
    inner: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, bytes):
        yield path, value
    elif isinstance(value, str | os.PathLike):
        yield path, os.fsencode(value)
    elif isinstance(value, Mapping):
        for key in value:
            yield from _texts(key, (*path, _KEY), seen)
        inner = ((str(key), content) for key, content in value.items())
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        inner = zip(value._fields, value, strict=True)
    elif isinstance(value, list | tuple | set | frozenset):
        inner = enumerate(value)
    elif id(value) not in seen:
        seen.add(id(value))
        inner = _fields(value)
        path = _of_settings(value, path)
    for name, content in inner:
        yield from _texts(content, (*path, name), seen)


def _fields(value: object) -> Iterator[tuple[str, Any]]:
    names: Iterable[str] = ()
    if is_dataclass(value):
        names = (field.name for field in fields(value))
    elif hasattr(type(value), "model_fields"):
        names = vars(value)
    return ((name, getattr(value, name)) for name in names)


def _of_settings(value: object, path: _Path) -> _Path:
    """Returns the path of a profile or cluster in the settings; of another object the given one."""
    table = {"Profile": "profiles", "Cluster": "clusters"}.get(type(value).__name__)
    return (table, str(getattr(value, "name", ""))) if table else path


def _words(path: _Path, text: bytes) -> str:
    """Returns where a text is, as the user gave it."""
    match path:
        case (*above, name) if name == _KEY and above:
            return f"a name in {_words(tuple(above), text)}"
        case ("plan", "runs", int(), *inner) | ("plan", int(), *inner):
            return _of_run(tuple(inner), text)
        case ("git" | "snapshot", name):
            return f"the {str(name).replace('_', ' ')} of the code"
    return ".".join(str(part) for part in path)


def _of_run(path: _Path, text: bytes) -> str:
    """Returns where a text of a planned run is, as the user gave it."""
    match path:
        case ("spec", "run_id" | "name"):
            return "--name"
        case ("program", "argv", number):
            return f"argument {number} of the program"
        case ("submission", "options", int()) | ("others", int(), "options", int()):
            return f"the scheduler's option {text.partition(b'=')[0].decode('utf-8', 'surrogateescape')}"
        case ("member", "values", name):
            return f"the swept value {name}"
        case ("program" | "member", "env", name):
            return f"the variable {name} of the program"
        case ("spec", "wandb", name):
            return f"project.wandb.{name}"
        case ("spec", "project"):
            return "project.name"
    return ".".join(str(part) for part in path)


def _pieces(root: Path, name: str, overlap: int) -> Iterator[bytes]:
    """Yields a link's target, or a file's content in pieces that overlap."""
    path = f"{root}/{name}"
    if os.path.islink(path):  # noqa: PTH114 - a Path for each of many files takes longer than reading it
        yield os.fsencode(os.readlink(path))  # noqa: PTH115 - likewise
        return
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - likewise
        text = file.read(_CHUNK)
        while text:
            yield text
            more = file.read(_CHUNK)
            text = text[-overlap:] + more if more else b""


def _raw(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")
