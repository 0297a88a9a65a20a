"""How many threads may compute: for small matrices, starting threads takes longer than computing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits


@contextmanager
def one_thread() -> Iterator[None]:
    """Restrict NumPy, and PyTorch if it is loaded, to one thread for a while."""
    torch = sys.modules.get("torch")  # to load it here would take seconds
    before = torch.get_num_threads() if torch else None
    if torch:
        torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        if torch:
            torch.set_num_threads(before)
