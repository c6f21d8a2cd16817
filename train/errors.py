"""What can end a run, and the exit status that says so.

| status | meaning |
|---|---|
| 0 | complete (or nothing left to do) |
| 1 | a job failed: the error is in its summary.json |
| 2 | a mistake in what was asked: one line says which; nothing was trained |
| 3 | the loss, the gradient's norm or a weight stopped being finite: step, layer, lr and λ were printed |
| 75 | stopped by a signal after saving: the same command resumes (EX_TEMPFAIL) |
"""

FAILED = 1
USAGE = 2
DIVERGED = 3
RESUME = 75


class UserError(Exception):
    """A mistake that the user can mend: shown as one line, without a traceback, exit status 2."""


class WriteError(Exception):
    """A file could not be written (a full disk): one line, exit status 1; what was there before is untouched."""


class Diverged(Exception):
    """Training reached a number that is not finite; exit status 3. Empty where another worker has it to say."""


class Stopped(Exception):
    """A signal asked for a stop, and everything was saved; exit status 75."""
