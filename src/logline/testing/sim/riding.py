"""Ephemeral operators of simulated pipelines (R24): on connections that are drawn, functions of one event each.

They take records one by one, so that what they make of all events is what they make of each. Some events come to
nothing, and of some they put out two batches: a receiver sees one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from logline.graph.model import Connection, Graph, Node, NodeOptions, Rider
from logline.graph.operator import BatchOperator
from logline.names import ERRORS, IN, OUT, OperatorName


class Sieve(BatchOperator):
    """Leaves records out, by their time, and puts the others out one by one."""

    def __init__(self, leaves_out: int) -> None:
        self.leaves_out = leaves_out

    def each(self, batch: Any) -> Iterator[Any]:
        for record in batch:
            if record[1] % 5 != self.leaves_out:
                yield (record,)


def with_riders(graph: Graph, rnd: Random) -> Graph:
    """Puts ephemeral operators on some connections."""
    through = {c: _way(graph, c, rnd) for c in graph.connections if c.out != ERRORS and rnd.random() < 0.5}
    return replace(graph, through=through)


def _way(graph: Graph, c: Connection, rnd: Random) -> tuple[Rider, ...]:
    empty = graph.nodes[c.sender].outputs[c.out]
    return tuple(
        Rider(
            Node(
                OperatorName(f"sieve{at}{c.sender}{c.receiver}"),
                None,
                Sieve(rnd.randint(0, 4)),
                (IN,),
                {OUT: empty, ERRORS: empty},
                options=NodeOptions(policy="ephemeral", deterministic=True),
            ),
            OUT,
        )
        for at in range(rnd.choice((1, 1, 2)))
    )
