"""Errors of the client. Each names the thing, the cause and the next step, in that order."""

from typing import Optional


class BatonError(Exception):
    """Base class of the client's errors."""

    def __init__(self, thing: str, cause: str, next_step: str) -> None:
        super().__init__(thing, cause, next_step)
        self.thing, self.cause, self.next_step = thing, cause, next_step

    def __str__(self) -> str:
        return f"{self.thing}: {self.cause}; {self.next_step}"


class NotAcquired(BatonError):
    """Somebody else holds it, and the caller did not want to wait longer.
    `held_by` is the holder's name, where it is known."""

    held_by: Optional[str] = None


class Unavailable(BatonError):
    """The agent or its servers do not answer: `since` when, as `time.time()`, if it is known."""

    since: Optional[float] = None


class Lost(BatonError):
    """The lock, term, claim or membership is held no longer, for a `reason`."""

    @property
    def reason(self) -> str:
        return self.cause


LockLost = Lost


class Unknown(BatonError):
    """A change, `what`, may or may not have been applied: read before you repeat it."""

    @property
    def what(self) -> str:
        return self.thing


class Refused(BatonError):
    """The request cannot be carried out as it is; `why`."""

    @property
    def why(self) -> str:
        return self.cause
