"""What all tests share: lines are counted once in each worker, and not where a test says so."""

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session):
    """Stop the first of two counts in a worker: pytest-cov 7.1 begins one before it knows where it is.

    Its mark ``no_cover`` stops the second and thereby resumes the first, which takes as long and goes nowhere.
    """
    counting = session.config.pluginmanager.getplugin("_cov")
    if hasattr(session.config, "workerinput") and counting and counting.cov_controller:
        counting.cov_controller.cov.stop()
