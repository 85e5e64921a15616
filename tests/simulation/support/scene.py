"""What there is in a seed besides replicas and clients, drawn apart from everything else."""

from dataclasses import dataclass, replace
from random import Random


@dataclass(frozen=True)
class Scene:
    """`workers`: in other languages, and external jobs for them. `transactions`: handlers write in
    ctx.transaction(). `providers`: python functions that answer scopes. `moves`: the ledger becomes
    another database's, and is accepted later. `crowd`: a job is triggered around each full second,
    at which it is due. `flapping`: scopes retire and return again and again. `gated`: jobs require
    others. `calendars`: jobs use a calendar, which is edited. `hosts`: jobs name labels of
    replicas, or run on each host. `observed`: another scheduler reports its runs;
    not beside `hosts`, because no observed job has the scopes of hosts."""

    workers: bool
    transactions: bool
    providers: bool
    moves: bool
    crowd: bool
    flapping: bool
    gated: bool
    calendars: bool
    hosts: bool
    observed: bool

    @classmethod
    def draw(cls, seed: int) -> "Scene":
        random = Random(f"scene {seed}")
        scene = cls(
            workers=random.random() < 0.34,
            transactions=random.random() < 0.34,
            providers=random.random() < 0.34,
            moves=random.random() < 1 / 12,
            crowd=random.random() < 0.25,
            flapping=random.random() < 0.25,
            gated=random.random() < 0.4,
            calendars=random.random() < 0.34,
            hosts=random.random() < 0.25,
            observed=random.random() < 0.34,
        )
        return replace(scene, observed=scene.observed and not scene.hosts)
