"""What all tests share: where lines of the library are counted."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGES = (HERE / "book", HERE / "site")


def pytest_collection_modifyitems(items):
    """Count no lines while pages are tried: they prove nothing of the library, and to count takes time.

    Lengthy runs of the library itself say the same of themselves: shorter ones go through the same lines.
    """
    for item in items:
        if any(folder in item.path.parents for folder in PAGES):
            item.add_marker(pytest.mark.no_cover)
