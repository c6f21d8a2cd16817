"""`python -m train experiment=<name> [key=value ...]`: see train/command.py.

Nothing but the handling of signals is imported here: a signal that comes while the rest is still being imported
is a wish to stop like any other.
"""

import sys

from train.signals import StopFlag, end_with_launcher

if __name__ == "__main__":
    stop = StopFlag()
    end_with_launcher()
    from train.command import main

    sys.exit(main(sys.argv[1:], stop))
