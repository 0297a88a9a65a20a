"""The command line: ``python -m zoolib gauntlet``."""

from __future__ import annotations

import argparse
import sys


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m zoolib")
    try:
        from zoolib import gauntlet  # needs more than the core
    except ModuleNotFoundError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    commands = parser.add_subparsers(dest="command", required=True)
    play = commands.add_parser("gauntlet", help="two market shocks, many worlds")
    gauntlet.add_arguments(play)
    chosen = parser.parse_args(arguments)
    try:
        return gauntlet.main(chosen)
    except (TypeError, ValueError, OSError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    except KeyboardInterrupt:
        print("interrupted before the first step was finished", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
