"""Every foreseeable error is a ClusterkitError: what happened, where, and what to do next."""


def last_words(said: str, limit: int = 200) -> str:
    r"""The end of a program's output, on one line for a message.

    Lines of clusterkit's scripts, which start with the control character RS, and all other control characters
    are left out.

    >>> last_words("Welcome\n\x1eclusterkit-record now 12\nno such host\n")
    'Welcome / no such host'
    """
    lines = (line for line in said.split("\n") if "\x1e" not in line)
    plain = ("".join(char if char.isprintable() else " " for char in line).strip() for line in lines)
    return " / ".join(filter(None, plain))[-limit:].strip() or "it printed nothing"


class ClusterkitError(Exception):
    """An error with a one-line cause and possibly a next step for the user.

    Args:
        cause: what happened and on which host or file; one line.
        hint: what to do next; shown on its own line.
    """

    exit_code = 1

    def __init__(self, cause: str, *, hint: str | None = None) -> None:
        super().__init__(cause)
        self.cause = cause
        self.hint = hint
        if hint:
            self.add_note(f"next:  {hint}")  # Python prints it below the error


class ConfigError(ClusterkitError):
    """A configuration file, profile or name is wrong. Nothing was sent anywhere."""

    exit_code = 3


class NotAllowedError(ConfigError):
    """A project names programs for this machine that its user has not allowed. None was started."""

    exit_code = 10


class TransportError(ClusterkitError):
    """A host cannot be reached, refuses the login, or a transfer failed."""

    exit_code = 4


class SchedulerError(ClusterkitError):
    """The scheduler refused a request or gave an unreadable answer."""

    exit_code = 5


class ImageError(ClusterkitError):
    """An image is missing, damaged or of the wrong kind."""

    exit_code = 6


class RecipeLockedError(ClusterkitError):
    """A locked recipe value was overridden without `--unlock`."""

    exit_code = 7


class RunError(ClusterkitError):
    """A run is unknown, in the wrong state for the request, or has failed."""

    exit_code = 8


class OwnershipError(ClusterkitError):
    """Another user could change a folder from which code runs as this user."""

    exit_code = 10


class WandbError(ClusterkitError):
    """An upload to W&B failed or could not be verified."""

    exit_code = 9


class TrackerError(ClusterkitError):
    """A tracker could not be brought up to date."""

    exit_code = 9


class TrackerUnusableError(TrackerError):
    """A tracker's package is missing, or its store cannot be reached or opened: no run can be logged."""
