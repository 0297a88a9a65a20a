"""Small books, built in folders of their own with the real settings, for tests of the build."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.notebooks import ROOT

HEAD = """---
description: A page of a test.
{kernel}---
# A page

"""
KERNEL = """jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
"""

# Options of a cell that draws a line.
A_LINE = """mystnb:
  image:
    alt: A line that rises from the left to the right, which is all that there is to see.
  figure:
    name: fig-one
    caption: A line.
"""

FLAGS = re.search(r"BUILD := \. (.*)", (ROOT / "Makefile").read_text())[1]
BUILD = [
    str(Path(sys.executable).parent / "jupyter-book"),
    "build",
    ".",
    *FLAGS.split(),
]


def whole(content):
    """Put a head before a page; one without code needs no kernel, whose start takes a third of a build."""
    return HEAD.format(kernel=KERNEL if "{code-cell}" in content else "") + content


def lay_out(folder, text, timeout=60, **others):
    """Write a book of a first page and others into a folder, with the real settings."""
    for name in ("_ext", "_static"):
        shutil.copytree(
            ROOT / name,
            folder / name,
            ignore=shutil.ignore_patterns("__pycache__"),
            dirs_exist_ok=True,
        )
    shutil.copy(ROOT / "requirements.txt", folder)
    (folder / "chapters").mkdir(exist_ok=True)
    (folder / "chapters" / "references.bib").touch()
    config = (ROOT / "_config.yml").read_text()
    assert "timeout: 900" in config
    (folder / "_config.yml").write_text(
        config.replace("timeout: 900", f"timeout: {timeout}")
    )
    toc = ["format: jb-book", "root: chapters/index", "chapters:"]
    toc += [f"- file: chapters/{name}" for name in others]
    (folder / "_toc.yml").write_text("\n".join(toc if others else toc[:2]))
    for name, content in {"index": text, **others}.items():
        (folder / "chapters" / f"{name}.md").write_text(whole(content))


def build(folder, text, timeout=60, lenient=False, **others):
    """Build a book in a folder of its own."""
    lay_out(folder, text, timeout, **others)
    return build_again(folder, lenient)


def warned(folder, **pages):
    """Build a book that must fail; return by page what is warned of, each warning in a line."""
    status, output = build(folder, "A sound page.", **pages)
    assert status != 0
    said, found = re.sub(r"\x1b\[[0-9;]*m", "", output), {}
    start = r"^\S*/chapters/([\w-]+)\.md(?=.*: (?:WARNING|ERROR): )"
    _, *parts = re.split(start, said, flags=re.M)
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        found.setdefault(name, []).append(" ".join(text.split()))
    return found


def build_again(folder, lenient=False):
    """Build the book that lies in a folder; return the status and all that was said."""
    return _said(BUILD, folder, ZOOLIB_LENIENT=str(int(lenient)))


def make_book(folder, *settings):
    """Call ``make book`` in a folder where a book lies; return the status and all that was said."""
    shutil.copy(ROOT / "Makefile", folder)
    if not (folder / ".venv").exists():
        (folder / ".venv").symlink_to(Path(sys.prefix))
    # A make that called the tests would be heard in what this one says.
    quiet = ["make", "--no-print-directory", "-o", ".venv/ready"]
    return _said([*quiet, "book", *settings], folder, MAKEFLAGS="")


def _said(command, folder, **environment):
    result = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.returncode, result.stdout + result.stderr
