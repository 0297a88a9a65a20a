"""A model version from the disk: its newest good snapshot, and the rewards that came after it."""

from __future__ import annotations

from dataclasses import dataclass

from zoolib.service.model import FrozenNetwork, Head, Model
from zoolib.service.store import Store, StoreCorruptError


@dataclass(frozen=True)
class Recovery:
    """What a recovered head rests on.

    Attributes
    ----------
    version : str
        The version.
    snapshot : int
        Sequence number of the last reward in the snapshot it began with.
    replayed : int
        Rewards learnt after it.
    damaged : int
        Newer snapshots that could not be used.
    """

    version: str
    snapshot: int
    replayed: int
    damaged: int


def recover(
    store: Store, name: str, from_first: bool = False
) -> tuple[Model, Recovery]:
    """Bring a version up to date with the log.

    Parameters
    ----------
    store : Store
        Where it is.
    name : str
        The version.
    from_first : bool, default False
        Begin with the oldest snapshot, not the newest: a replay of all that is retained.

    Raises
    ------
    StoreCorruptError
        If the weights are damaged, or every snapshot is.
    """
    try:
        network = FrozenNetwork.from_bytes(store.model_bytes(name))
    except ValueError as error:
        raise StoreCorruptError(
            f"database {store.path} holds no model {name}: {error}"
        ) from None
    snapshots = store.snapshots(name)
    if from_first:
        snapshots = snapshots[::-1]
    for damaged, (seq, blob) in enumerate(snapshots):
        if blob is None:
            continue
        model, replayed = Model(name, network, Head.from_bytes(blob), seq), 0
        for row in store.rewards_after(seq):
            model.learn(*row)
            replayed += 1
        return model, Recovery(name, seq, replayed, damaged)
    raise StoreCorruptError(f"database {store.path} holds no good snapshot of {name}")
