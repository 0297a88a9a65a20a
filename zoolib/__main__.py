"""The command line: ``python -m zoolib gauntlet`` and ``python -m zoolib grade FOLDER``."""

from __future__ import annotations

import argparse
import sys


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m zoolib")
    commands = parser.add_subparsers(dest="command", required=True)
    play = commands.add_parser("gauntlet", help="two market shocks, many worlds")
    grade = commands.add_parser("grade", help="run a folder of students' notebooks")
    given = sys.argv[1:] if arguments is None else arguments
    try:
        if given[:1] == ["gauntlet"]:  # which needs an extra
            from zoolib import gauntlet

            gauntlet.add_arguments(play)
        elif given[:1] == ["grade"]:
            from zoolib.book import grading

            grading.add_arguments(grade)
    except ModuleNotFoundError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    chosen = parser.parse_args(given)
    try:
        return (gauntlet if chosen.command == "gauntlet" else grading).main(chosen)
    except (TypeError, ValueError, OSError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    except KeyboardInterrupt:
        print("interrupted before the first step was finished", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
