"""What every test of the service opens: a file of its own and a clock that stands still."""

import pytest

from tests.service_crash import quick_folder


class Clock:
    """A clock that stands still until it is set."""

    now = 1_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def path():
    with quick_folder() as folder:
        yield folder / "shop.db"


@pytest.fixture
def clock():
    return Clock()
