"""The operator for each kind of window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from logline.errors import OptionError
from logline.graph.operator import Operator
from logline.operators.aggregates import Aggregates
from logline.operators.blocks import BlockAggregate
from logline.operators.functions import Agg
from logline.operators.processing_time import SessionArrivals, SlidingArrivals, TumblingArrivals
from logline.operators.sessions import SessionAggregate
from logline.operators.sliding import SlidingAggregate
from logline.operators.whole import WholeAggregate
from logline.operators.window import TumblingAggregate
from logline.operators.windows import Events, Session, Sliding, Tumbling, Whole, Window


def WindowAggregate(  # reads as a constructor: one class per kind of window
    window: Window, by: Sequence[str], agg: Mapping[str, Agg]
) -> Operator[Any, Any]:
    """The operator that computes these aggregates over these windows."""
    aggregates = Aggregates(by, agg)
    match window:
        case Tumbling(on=None):
            return TumblingArrivals(window, aggregates)
        case Tumbling():
            return TumblingAggregate(window, aggregates)
        case Sliding(on=None):
            return SlidingArrivals(window, aggregates)
        case Sliding():
            return SlidingAggregate(window, aggregates)
        case Session(on=None):
            return SessionArrivals(window, aggregates)
        case Session():
            return SessionAggregate(window, aggregates)
        case Events():
            return BlockAggregate(window, aggregates)
        case Whole():
            return WholeAggregate(aggregates, window)
    raise OptionError(
        f"{window!r} is not a window: use ll.tumbling, ll.sliding, ll.session_window, ll.events or ll.whole"
    )
