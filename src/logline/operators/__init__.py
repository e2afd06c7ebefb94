"""Ready-made operators, on the public Operator API alone."""

from logline.operators.aggregates import Aggregates, Reduction
from logline.operators.as_of import AsOfLookup
from logline.operators.blocks import BlockAggregate
from logline.operators.computed import Computation
from logline.operators.custom_aggregate import Aggregate
from logline.operators.dedup import Dedup
from logline.operators.flat_map import FlatFn, FlatMapRows
from logline.operators.functions import Agg
from logline.operators.gathered import Gathered
from logline.operators.join_columns import How, On
from logline.operators.joins import IntervalJoin, StreamJoin, TimeColumns, WholeJoin, WindowJoin, Within
from logline.operators.key_context import KeyContext
from logline.operators.lookup import Lookup, LookupHow, StreamLookup
from logline.operators.lookup_tables import LookupTable, TableFn, table_of
from logline.operators.mapping import AsyncMapFn, Filter, MapBatches, MapFn, Union, Where
from logline.operators.paced_mapping import PacedMapBatches, map_batches, waited_for
from logline.operators.processing_time import SessionArrivals, SlidingArrivals, TumblingArrivals
from logline.operators.rebatch import Rebatch
from logline.operators.row_answers import Row
from logline.operators.row_checks import CheckRows, OnFail
from logline.operators.rows import MapRows, RowFn
from logline.operators.saving import batches_to_bytes, read_gathered
from logline.operators.sessions import SessionAggregate
from logline.operators.shaping import Explode, Select, Split, WithColumns
from logline.operators.sink import SinkOperator
from logline.operators.sliding import SlidingAggregate
from logline.operators.stateful import PacedStateful, Stateful, StatefulFn, stateful
from logline.operators.top import Top
from logline.operators.whole import WholeAggregate
from logline.operators.window import TumblingAggregate
from logline.operators.window_aggregate import WindowAggregate
from logline.operators.windows import (
    Events,
    Session,
    Sliding,
    Tumbling,
    Whole,
    Window,
    events,
    session_window,
    sliding,
    tumbling,
    whole,
)

__all__ = [
    "Agg",
    "Aggregate",
    "Aggregates",
    "AsOfLookup",
    "AsyncMapFn",
    "BlockAggregate",
    "CheckRows",
    "Computation",
    "Dedup",
    "Events",
    "Explode",
    "Filter",
    "FlatFn",
    "FlatMapRows",
    "Gathered",
    "How",
    "IntervalJoin",
    "KeyContext",
    "Lookup",
    "LookupHow",
    "LookupTable",
    "MapBatches",
    "MapFn",
    "MapRows",
    "On",
    "OnFail",
    "PacedMapBatches",
    "PacedStateful",
    "Rebatch",
    "Reduction",
    "Row",
    "RowFn",
    "Select",
    "Session",
    "SessionAggregate",
    "SessionArrivals",
    "SinkOperator",
    "Sliding",
    "SlidingAggregate",
    "SlidingArrivals",
    "Split",
    "Stateful",
    "StatefulFn",
    "StreamJoin",
    "StreamLookup",
    "TableFn",
    "TimeColumns",
    "Top",
    "Tumbling",
    "TumblingAggregate",
    "TumblingArrivals",
    "Union",
    "Where",
    "Whole",
    "WholeAggregate",
    "WholeJoin",
    "Window",
    "WindowAggregate",
    "WindowJoin",
    "WithColumns",
    "Within",
    "batches_to_bytes",
    "events",
    "map_batches",
    "read_gathered",
    "session_window",
    "sliding",
    "stateful",
    "table_of",
    "tumbling",
    "waited_for",
    "whole",
]
