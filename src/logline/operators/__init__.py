"""Ready-made operators, on the public Operator API alone."""

from logline.operators.aggregates import Aggregates, Reduction
from logline.operators.blocks import BlockAggregate
from logline.operators.custom_aggregate import Aggregate
from logline.operators.functions import Agg
from logline.operators.gathered import Gathered
from logline.operators.mapping import AsyncMapFn, Filter, MapBatches, MapFn, Union, Where
from logline.operators.paced_mapping import PacedMapBatches, map_batches, waited_for
from logline.operators.rebatch import Rebatch
from logline.operators.row_answers import Row
from logline.operators.rows import MapRows, RowFn
from logline.operators.sink import SinkOperator
from logline.operators.window import TumblingAggregate, WindowAggregate
from logline.operators.windows import Events, Tumbling, Window, events, tumbling

__all__ = [
    "Agg",
    "Aggregate",
    "Aggregates",
    "AsyncMapFn",
    "BlockAggregate",
    "Events",
    "Filter",
    "Gathered",
    "MapBatches",
    "MapFn",
    "MapRows",
    "PacedMapBatches",
    "Rebatch",
    "Reduction",
    "Row",
    "RowFn",
    "SinkOperator",
    "Tumbling",
    "TumblingAggregate",
    "Union",
    "Where",
    "Window",
    "WindowAggregate",
    "events",
    "map_batches",
    "tumbling",
    "waited_for",
]
