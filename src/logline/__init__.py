"""Data pipelines with log-based rollback recovery and event-level lineage. An event is a batch of records.

The public names; everything else may change. Importing this does not import pyspark.
"""

from logline import errors, testing
from logline.connectors import sinks, sources
from logline.errors import LoglineError, PipelineFailed
from logline.graph.connector import Sink, Source
from logline.graph.model import Retry
from logline.graph.operator import (
    Batch,
    Context,
    Duration,
    Emit,
    Event,
    Operator,
    Reject,
    SchemaLike,
    Tabular,
    Write,
)
from logline.graph.options import Options
from logline.graph.report import Report
from logline.graph.secrets import env
from logline.names import InsetId
from logline.operators import Window, events, tumbling
from logline.pipeline import Pipeline, Stream
from logline.runtime.log import Log, open_log
from logline.runtime.run import Run
from logline.runtime.status import OperatorStatus, Status

__all__ = [
    "Batch",
    "Context",
    "Duration",
    "Emit",
    "Event",
    "InsetId",
    "Log",
    "LoglineError",
    "Operator",
    "OperatorStatus",
    "Options",
    "Pipeline",
    "PipelineFailed",
    "Reject",
    "Report",
    "Retry",
    "Run",
    "SchemaLike",
    "Sink",
    "Source",
    "Status",
    "Stream",
    "Tabular",
    "Window",
    "Write",
    "env",
    "errors",
    "events",
    "open_log",
    "sinks",
    "sources",
    "testing",
    "tumbling",
]
