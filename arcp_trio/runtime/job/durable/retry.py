"""How a step is tried again."""

from __future__ import annotations

import attrs

from arcp_trio.groups import unwrapped
from arcp_trio.wire.errors import BudgetExhausted


@attrs.frozen(kw_only=True)
class Retry:
    """How often and after which pauses a step is tried again: `job.step(…, retry=Retry())`.

    Calls that failed are counted in all runs of the job together, and a pause goes on where the
    runtime's end has interrupted it. After the last attempt its error is raised.
    """

    attempts: int = 5
    """How often the function is called, at most."""
    first: float = 1.0
    """Seconds before the second call."""
    factor: float = 2.0
    """How much longer each pause is than the one before."""
    most: float = 60.0
    """Seconds that a pause lasts, at most."""
    on: tuple[type[Exception], ...] = (ConnectionError,)
    """Only these errors lead to another call."""

    def __attrs_post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError("attempts must be at least 1")
        if type(self.on) is not tuple or not all(map(_is_exception, self.on)):
            raise TypeError("on is a tuple of classes of exceptions, such as (ConnectionError,)")
        if not (self.first >= 0 and self.factor > 0 and self.most >= 0):
            raise ValueError("first and most must not be negative, and factor must be above 0")

    def pause(self, failed: int) -> float:
        """Return the pause after this number of failed calls."""
        pause = self.first
        for _ in range(failed - 1):
            if pause >= self.most:
                break
            pause *= self.factor
        return min(pause, self.most)

    def wants(self, error: Exception, failed: int) -> bool:
        """Return whether there is another call after the call that has failed with `error`."""
        cause = unwrapped(error)
        if isinstance(cause, BudgetExhausted):  # another call would spend more
            return False
        return failed < self.attempts and isinstance(cause, self.on)


def _is_exception(item: object) -> bool:
    return isinstance(item, type) and issubclass(item, Exception)
