"""Training images that cannot be read: each named once, replaced by its neighbour, and counted against a limit."""

import sys

from train.errors import UserError

BROKEN_LIMIT = 1e-3  # of the training images; above it a run stops
Problem = tuple[str, str]  # name and reason of an image that cannot be read


def reason(error: Exception) -> str:
    """The first line of what was raised."""
    return (str(error).splitlines() or [type(error).__name__])[0]


class Broken:
    """What could not be read so far, out of `total` training images, as this rank saw it."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.found: dict[str, str] = {}  # name → reason
        self._told = 0  # how many of them `notices` has given

    def note(self, problems: list[Problem]) -> None:
        """Say which images could not be read, each once.

        Raises:
            UserError: they are more than 0.1 % of the training images.
        """
        for name, why in problems:
            if name not in self.found:
                self.found[name] = why
                print(f"warning: {name} cannot be read and is replaced by the next: {why}", file=sys.stderr, flush=True)
        if len(self.found) > BROKEN_LIMIT * self.total:
            raise UserError(
                f"{len(self.found)} of {self.total} training images cannot be read, more than {BROKEN_LIMIT:.1%}; "
                f"the last: {next(reversed(self.found))}; make check-data lists them"
            )

    def notices(self) -> list[dict[str, str]]:
        """Those that were found since the last call: what the record keeps of them."""
        fresh = list(self.found.items())[self._told :]
        self._told = len(self.found)
        return [{"broken_image": name, "reason": why} for name, why in fresh]
