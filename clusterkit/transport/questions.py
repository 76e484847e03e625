"""Questions a login may ask: passwords, one-time codes, passphrases. One callback answers them all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clusterkit.errors import TransportError


@dataclass(frozen=True)
class Prompt:
    """One thing to ask."""

    text: str
    """Shown as the server worded it."""
    echo: bool
    """Whether the answer may be seen while it is typed."""


@dataclass(frozen=True)
class Question:
    """What one step of a login wants to know. There may be no prompt at all, only something to tell."""

    where: str
    """The machine that asks, e.g. `alice@datalab`."""
    title: str
    instructions: str
    prompts: tuple[Prompt, ...]

    @property
    def wanted(self) -> str:
        """What is asked for first, for messages."""
        return self.prompts[0].text.strip().rstrip(":") if self.prompts else ""


class HostKeyQuestion(Question):
    """Whether an unknown host key is the right one; the answer is yes, no, or its fingerprint."""


class TerminalQuestion(Question):
    """Whether OpenSSH may ask on the terminal by itself: passwords, codes, unknown host keys.

    The answers are what is granted: `TERMINAL`, `ACCEPT_NEW`, both or neither.
    """

    TERMINAL = "the terminal"
    """A person is there; nothing else of ours reads or writes meanwhile."""
    ACCEPT_NEW = "new host keys"
    """Unknown host keys are accepted, and ssh says which."""


Ask = Callable[[Question], Sequence[str]]
"""Returns one answer for each prompt; raising ends the login."""


def accepting_new_hosts(ask: Ask) -> Ask:
    """Returns the same answers, but every new host key is shown and accepted."""

    def answer(question: Question) -> Sequence[str]:
        if isinstance(question, TerminalQuestion):
            return [*ask(question), TerminalQuestion.ACCEPT_NEW]
        if not isinstance(question, HostKeyQuestion):
            return ask(question)
        notice = f"{question.instructions} Accepted because of --accept-new."
        ask(Question(question.where, question.title, notice, ()))
        return ["yes"]

    return answer


def ask_on_terminal(question: Question) -> list[str]:
    """Asks the person at the terminal.

    Raises:
        TransportError: there is no terminal to ask on, or its input ended before there was an answer.
    """
    if isinstance(question, TerminalQuestion):
        return [TerminalQuestion.TERMINAL] if sys.stdin.isatty() else []
    if question.prompts and not sys.stdin.isatty():
        if isinstance(question, HostKeyQuestion):
            return ["no"]  # the refusal says what to do
        raise TransportError(
            f"{question.where} asks for {question.wanted!r}, but there is no terminal",
            hint="run the command in a terminal, or use a key that needs no passphrase or code "
            "(ssh-agent, ssh-add)",
        )
    for text in (question.title, question.instructions):
        if text.strip():
            print(text.strip(), file=sys.stderr)  # noqa: T201 - a server's message to the person
    label = f"[{question.where}] "
    return [_ask(label + prompt.text, echo=prompt.echo) for prompt in question.prompts]


def _ask(text: str, *, echo: bool) -> str:
    from clusterkit.asking import UnansweredError, ask, ask_hidden  # most logins ask nothing

    try:
        return ask(text) if echo else ask_hidden(text)
    except UnansweredError as error:
        raise TransportError(error.cause, hint=error.hint) from None
