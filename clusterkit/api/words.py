"""What an error of a command says, in the words of a Python program."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

from clusterkit.errors import ClusterkitError

_P = ParamSpec("_P")
_R = TypeVar("_R")
_OPTION = re.compile(r"`clusterkit [^`]*`|(?<![\w-])--([a-z]+(?:-[a-z]+)*)(?![\w-])")
_OTHERWISE = {"yes": "allow_unread=True"}
"""Option -> what it is called in Python, where that is not its name."""


def in_python(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """Names a call's arguments, instead of the options of the command line, in the errors that it raises.

    Commands, and options that are no arguments of the call, stay as they are.
    """
    names = signature(call).parameters

    def argument(found: re.Match[str]) -> str:
        option = found[1] or ""
        name = option.replace("-", "_")
        return _OTHERWISE.get(option, name if name in names else found[0])

    @wraps(call)
    def called(*arguments: _P.args, **named: _P.kwargs) -> _R:
        try:
            return call(*arguments, **named)
        except ClusterkitError as error:
            error.cause = _OPTION.sub(argument, error.cause)
            error.args = (error.cause,)
            if error.hint:
                error.hint = _OPTION.sub(argument, error.hint)
                error.__notes__ = [f"next:  {error.hint}"]
            raise

    return called
