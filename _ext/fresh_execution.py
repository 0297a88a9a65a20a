"""Sphinx extension: a notebook is executed again whenever anything that it runs has changed.

It exists because the execution cache of MyST-NB knows a page by the code of its cells alone. Its folder here
carries a hash of the library, the data files and the lock, so a change in any of them begins an empty cache.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config

ROOT = Path(__file__).resolve().parent.parent
PREFIX = "execution-"
PROSE = {".md", ".ipynb", ".bib", ".yml"}
LEFT_OUT = re.compile(r"\.pyc$|(^|/)\.")


def ingredients(root: Path = ROOT) -> list[Path]:
    """List what an execution depends on beside its page: library, records, lock, the chapters' data."""
    library = root.glob("zoolib/**/*")
    data = (f for f in root.glob("chapters/**/*") if f.suffix not in PROSE)
    files = [f for f in (*library, *data) if f.is_file()]
    visible = (f for f in files if not LEFT_OUT.search(f.relative_to(root).as_posix()))
    return sorted([root / "requirements.txt", *visible])


def cache_folder(root: Path = ROOT) -> Path:
    """Name the cache folder that belongs to the present state of all ingredients."""
    digest = hashlib.sha256(sys.version.encode())
    for file in ingredients(root):
        digest.update(f"{file.relative_to(root).as_posix()}\0".encode())
        digest.update(file.read_bytes())
    return root / "_build" / (PREFIX + digest.hexdigest()[:16])


def use_fresh_cache(app: Sphinx, config: Config) -> None:
    """Point MyST-NB at that folder and drop the folders of earlier states."""
    folder = cache_folder()
    for stale in set(folder.parent.glob(PREFIX + "*")) - {folder}:
        shutil.rmtree(stale)
    config.nb_execution_cache_path = str(folder)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", use_fresh_cache)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
