"""Sessions, in which what is shown now changes what comes next: Chapter 7's shop, its process and agents.

================== ====================================================================
module             contents
================== ====================================================================
`shop`             `SessionSimulator`: the pet shop, visited by sessions
`mdp`              `DecisionProcess`: exact values and optimal policies
`base`             the interface of agents that look ahead
`tabular`          agents with a table of states, and fits to a batch
`dqn`              the deep Q-network, and what it sees of an observation
`play`             agents in many shops in step, the bandits of the core among them
================== ====================================================================

Estimates from the logs of sessions stand beside those of visits, in ``offpolicy``.
"""

from zoolib._support.extras import attach_stub

__getattr__, __dir__ = attach_stub(__name__, __file__)
