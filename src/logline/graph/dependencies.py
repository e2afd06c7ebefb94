"""Which input records an output record can have come from: column dependencies (LOG.io Example 11).

A dependency says that output records with a value of column `out` are affected by no other input records than those
with the same value of column `into`; for a window, than those with a time within its bounds. Ready-made operators
know theirs; an author declares them: `depends={"item_id": "item_id"}`, output column to input column.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from logline.errors import OptionError
from logline.graph.model import Graph, Node
from logline.graph.operator import Dependency
from logline.names import ERRORS

__all__ = ["Dependency", "check_depends", "dependencies"]


def dependencies(graph: Graph, node: Node) -> list[Dependency]:
    """What the operator's author declared, or what the operator knows of itself."""
    if node.options.depends is not None:
        return [Dependency(out, into) for out, into in node.options.depends.items()]
    return [] if node.op is None else list(node.op.dependencies(_inputs(graph, node)))


def _inputs(graph: Graph, node: Node) -> Mapping[str, pa.Schema]:
    return {c.port: graph.schema_of(c) for c in graph.into(node.name)}


def check_depends(graph: Graph, node: Node) -> None:
    """Raises if a declared dependency names a column that is not there."""
    made = {name for port, schema in node.outputs.items() if port != ERRORS for name in schema.names}
    taken = {name for schema in _inputs(graph, node).values() for name in schema.names}
    for out, into in (node.options.depends or {}).items():
        for column, known, side in ((out, made, "output"), (into, taken, "input")):
            if column not in known:
                raise OptionError(
                    f"operator {node.name!r}: option depends: there is no {side} column {column!r}; "
                    f"there are {', '.join(sorted(known))}. Write output column: input column"
                )
