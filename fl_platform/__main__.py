"""The process of a command: `python -m fl_platform`, and the program `fl-platform`."""

import sys


def main() -> int:
    """Run the command line of this process; returns its exit code, also for Ctrl-C while it is being imported."""
    try:
        from fl_platform.cli import main as command
    except KeyboardInterrupt:
        print("fl_platform: interrupted", file=sys.stderr)
        return 130
    return command()


if __name__ == "__main__":
    sys.exit(main())
