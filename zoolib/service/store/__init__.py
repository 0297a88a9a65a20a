"""The service's memory on disk: one SQLite file, and all the SQL there is.

================ =========================================================================
module           what lives there
================ =========================================================================
`schema`         the tables, the file, transactions, errors
`events`         the log: decisions and their rewards
`registry`       versions of the agent, and snapshots of what they have learnt: `Store`
================ =========================================================================

Each event that is acknowledged is one transaction, on disk before the call returns (a write-ahead log
with ``synchronous=FULL``): a process killed at any moment loses nothing that it has acknowledged. Users
appear as pseudonyms only.
"""
