"""What an agent is and has learnt, as one thing to compare."""

from zoolib._support.state import Stateful, to_bytes


def learnt(agent: Stateful) -> bytes:
    return to_bytes(agent.state())
