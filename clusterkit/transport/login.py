"""One login through whatever the server asks: keys, passwords, one-time codes, in any combination it wants.

Order: none, publickey, keyboard-interactive, password, as far as the server lets them; after a
partial success the methods it still wants. Every question is asked in the caller's thread.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import paramiko

from clusterkit.errors import TransportError
from clusterkit.transport.faults import UnreachableError
from clusterkit.transport.keys import KeyOffer, offers
from clusterkit.transport.known_hosts import HostKeyVerdict, accept
from clusterkit.transport.questions import Ask, Prompt, Question
from clusterkit.transport.resolve import HostConfig
from clusterkit.transport.wire import Wire

MAX_TRIES = 3
"""Wrong codes or passwords before we stop; more would only get the address banned (PerSourcePenalties)."""


def login(wire: Wire, host: HostConfig, verdict: HostKeyVerdict, ask: Ask) -> None:
    """Shakes hands, checks the host key, and authenticates. The wire is closed when anything fails.

    Raises:
        TransportError: no SSH server, a host key we do not trust, or a refused login.
    """
    try:
        _shake_hands(wire, host)
        key = wire.get_remote_server_key()
        accept(host, verdict, key.get_name(), key.asbytes(), ask)
        _SshLogin(wire, host, ask).run()
    except BaseException:
        wire.close()
        raise


def _shake_hands(wire: Wire, host: HostConfig) -> None:
    where = f"{host.alias} ({host.address})"
    try:
        wire.start_client(timeout=wire.handshake_timeout)
    except paramiko.ssh_exception.IncompatiblePeer as error:
        raise TransportError(
            f"{where} and this machine share no encryption method: {error}",
            hint="the server's ssh is very old or very strict; ask the site's support",
        ) from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        problem = error
    else:
        if wire.initial_kex_done:
            return
        # start_client returns silently when its time is up
        problem = TimeoutError(f"no answer within {wire.handshake_timeout:g} s")
    raise UnreachableError(
        f"{where} does not answer as an SSH server: {_text(problem)}",
        hint="check host and port; a server drops connections for a while after several failed logins",
    ) from problem


def _text(error: BaseException) -> str:
    return str(error) or ("it closed the connection" if isinstance(error, EOFError) else type(error).__name__)


def _counted(words: Sequence[str]) -> str:
    """Words in a row, the same ones as a number: `a, b (3 times)`."""
    runs = [(word, len(list(same))) for word, same in itertools.groupby(words)]
    return ", ".join(word if times == 1 else f"{word} ({times} times)" for word, times in runs)


@dataclass
class _SshLogin:
    wire: Wire
    host: HostConfig
    ask: Ask
    allowed: Sequence[str] = ()
    accepted: list[str] = field(default_factory=list)
    """What the server took, and wanted more."""
    tried: list[str] = field(default_factory=list)
    banner: str = ""
    asked: int = 0
    """Passwords and dialogs tried since the last success."""
    questions: int = 0
    """Prompts of the last dialog."""

    @property
    def _who(self) -> str:
        return f"{self.host.user}@{self.host.alias.rpartition('@')[2]}"

    def run(self) -> None:
        keys = offers(self.host, self.ask)
        try:
            self.allowed = self.wire.auth_none(self.host.user)
        except paramiko.BadAuthenticationType as error:
            self.allowed = error.allowed_types
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._refused(f"the server closed the connection ({_text(error)})") from error
        self._note_banner()
        while not self.wire.is_authenticated():
            attempt = self._next(keys)
            if attempt is None:
                raise self._refused("")
            self._try(*attempt)

    def _next(self, keys: Iterator[KeyOffer]) -> tuple[str, Callable[[], list[str]]] | None:
        """Returns the next thing to try: what to call it, and the call. None: nothing is left."""
        user = self.host.user
        if "publickey" in self.allowed:
            for offer in keys:
                if offer.key is not None:
                    return offer.label, partial(self.wire.auth_publickey, user, offer.key)
                self.tried.append(offer.label)
        if self.asked >= MAX_TRIES:
            return None
        if "keyboard-interactive" in self.allowed:
            self.asked += 1
            return "keyboard-interactive", self._answer_questions
        if "password" in self.allowed:
            self.asked += 1
            (password,) = self.ask(Question(self._who, "", "", (Prompt("Password: ", echo=False),)))
            return "password", partial(self.wire.auth_password, user, password, fallback=False)
        return None

    def _try(self, method: str, call: Callable[[], list[str]]) -> None:
        try:
            more = call()
        except paramiko.BadAuthenticationType as error:
            self.tried.append(f"{method} (not offered)")
            self.allowed = [kind for kind in error.allowed_types if kind != method]
        except (paramiko.SSHException, OSError, EOFError) as error:
            self.tried.append(method)
            if method == "keyboard-interactive" and not self.questions:
                self.asked -= 1  # nothing was asked, so nothing was answered wrong
            if not self.wire.is_active():
                raise self._refused(f"the server closed the connection ({_text(error)})") from error
            if method == "keyboard-interactive" and not self.questions:
                self.allowed = [kind for kind in self.allowed if kind != method]  # it refuses without asking
        else:
            if more:  # one factor is through, the server wants another
                self.accepted.append(method)
                self.allowed, self.asked = more, 0
        self._note_banner()

    def _note_banner(self) -> None:
        """The banner belongs to the attempt it came with and is gone with the next one."""
        banner = self.wire.get_banner() if self.wire.auth_handler else None
        if banner:
            self.banner = banner.decode("utf-8", "replace") if isinstance(banner, bytes) else banner

    def _refused(self, why: str) -> TransportError:
        cause = f"{self.host.alias} ({self.host.address}) refuses the login of {self.host.user}"
        if why:
            cause += f": {why}"
        if self.accepted:
            cause += f"; it accepted {', '.join(self.accepted)} and wants more"
        cause += "; tried " + (_counted(self.tried) or "nothing: no key was found")
        if self.allowed:
            cause += f"; it accepts {', '.join(self.allowed)}"
        if self.banner.strip():
            cause += f"; it says: {' '.join(self.banner.split())}"
        hint = f"check user and key, or try by hand: {self.host.ssh_command}"
        if self.host.missing_keys:
            hint = (
                f"correct IdentityFile in the ssh configuration: {self.host.missing_keys[0]} does not exist"
            )
        if self.asked >= MAX_TRIES:
            hint = (
                f"stopped after {MAX_TRIES} wrong answers; a code works only once and only briefly: "
                "wait for the next one, then try again"
            )
        return TransportError(cause, hint=hint)

    def _answer_questions(self) -> list[str]:
        """Keyboard-interactive; paramiko asks in its own thread, we answer in the caller's.

        There Ctrl-C works. An exception that is not an Exception would kill paramiko's thread and
        hang us, so it never crosses over: the asking thread only learns that there is no answer.
        """
        self.questions = 0
        questions: queue.Queue[Question | None] = queue.Queue()
        answers: queue.Queue[Sequence[str] | None] = queue.Queue()
        outcome: list[list[str] | Exception] = []

        def handler(title: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
            if not prompts and not (title or instructions).strip():
                return []
            self.questions += len(prompts)
            asked = tuple(Prompt(text, echo) for text, echo in prompts)
            questions.put(Question(self._who, title, instructions, asked))
            given = answers.get()
            if given is None:
                raise paramiko.SSHException("no answer was given")
            return [str(answer) for answer in given]

        def authenticate() -> None:
            try:
                outcome.append(self.wire.auth_interactive(self.host.user, handler))
            except Exception as error:  # handed to the caller's thread below
                outcome.append(error)
            questions.put(None)

        threading.Thread(target=authenticate, daemon=True).start()
        while (question := questions.get()) is not None:
            try:
                answers.put(self.ask(question))
            except BaseException:
                answers.put(None)
                raise
        (result,) = outcome
        if isinstance(result, Exception):
            raise result
        return result
