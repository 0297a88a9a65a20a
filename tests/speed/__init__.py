"""Ratios of the library's work to its plain forms, to peers and to the machine's limits, in one run."""
