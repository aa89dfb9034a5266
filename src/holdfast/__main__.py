"""`python -m holdfast` is `holdfast`."""

import sys

from holdfast._cli import run_process

if __name__ == "__main__":
    sys.exit(run_process())
