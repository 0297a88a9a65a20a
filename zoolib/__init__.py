"""The library of the book *The Adaptive Recommender*: a pet-shop world and the models that serve it.

Modules stand on floors and import only from floors below:

====== ===================================================
floor  modules
====== ===================================================
19     `__main__`
18     `exercises`: `check`
17     the judges of the chapters' exercises
16     what `service` shows to the outside
12–15  `service`: the production loop
11     `gauntlet`
10     `evaluation`
6–9    `experiment`; `plots`, `book`
5      `agents`
4      what neural agents share
3      `recommender`, `offpolicy`, `retrieval`, and what all agents share
2      `features`, `monitoring`, `networks`, `posterior`, `replay`; what all judges share
1      `simulator`, `estimates`, `choice`
0      checks of arguments, random numbers, files, threads, bars
====== ===================================================

The public names stand in ``__init__.pyi``. Each is loaded when it is first used, so that who needs no network
does not wait for PyTorch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
