"""Speed and scale, peers side by side: ``make bench``, or ``python -m benchmarks --help``."""
