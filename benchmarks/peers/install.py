"""Install the other libraries beside the book's own packages.

    .venv/bin/python benchmarks/peers/install.py

Makes `.venv-peers`, an environment that sees every package of the one this runs in, and installs each line
of `requirements.txt` in turn, held to the book's versions. A library that does not install stops nothing:
`.venv-peers/peers.json` says which are there, in which version, and why the others are not.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import TypedDict

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / ".venv-peers"
REPORT = ENVIRONMENT / "peers.json"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
SECONDS = 900  # a source distribution may be compiled
WITHOUT_DEPENDENCIES = "--no-deps"


class Outcome(TypedDict):
    """What became of a library: its version, or why it is not there."""

    version: str | None
    reason: str | None


def requirements(text: str) -> list[tuple[str, str]]:
    """Return the requirements of a file, each with its comment."""
    lines = (line.partition("#")[::2] for line in text.splitlines())
    return [(wanted.strip(), why.strip()) for wanted, why in lines if wanted.strip()]


def make_environment() -> Path:
    """Make the environment afresh; return its interpreter."""
    builder = venv.EnvBuilder(clear=True, symlinks=sys.platform != "win32")
    builder.create(ENVIRONMENT)
    paths = {"base": str(ENVIRONMENT), "platbase": str(ENVIRONMENT)}
    packages = Path(sysconfig.get_path("purelib", "venv", paths))
    # What is on the path of this environment, pip included, is on the path of the new one, but later.
    own = sysconfig.get_path("purelib")
    (packages / "book.pth").write_text(f"import site; site.addsitedir({own!r})\n")
    return Path(sysconfig.get_path("scripts", "venv", paths)) / "python"


def install(python: Path, wanted: str, comment: str) -> Outcome:
    """Install one requirement, and tell what became of it; pip itself says why on the terminal."""
    command = [python, "-m", "pip", "install", "--disable-pip-version-check"]
    command += ["--no-input", "--quiet", "-c", ROOT / "requirements.txt"]
    if comment.startswith(WITHOUT_DEPENDENCIES):
        command.append(WITHOUT_DEPENDENCIES)
    try:
        subprocess.run([*command, wanted], check=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {"version": None, "reason": f"did not install in {SECONDS} s"}
    except subprocess.CalledProcessError:
        return {"version": None, "reason": "pip could not install it"}
    return {"version": wanted.partition("==")[2], "reason": None}


def main() -> None:
    python = make_environment()
    outcomes: dict[str, Outcome] = {}
    for wanted, comment in requirements(REQUIREMENTS.read_text()):
        name = wanted.partition("==")[0]
        outcomes[name] = install(python, wanted, comment)
        version, reason = outcomes[name]["version"], outcomes[name]["reason"]
        print(f"{name}: {version or f'not installed: {reason}'}", flush=True)
    REPORT.write_text(json.dumps(outcomes, indent=1) + "\n")


if __name__ == "__main__":
    main()
