"""``python -m fl_platform``: the command line."""

import sys

from fl_platform.cli import main

if __name__ == "__main__":
    sys.exit(main())
