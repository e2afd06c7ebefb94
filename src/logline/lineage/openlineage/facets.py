"""The facets of OpenLineage that a run fills, as plain JSON values.

Each names who made it (`_producer`) and the version of the schema that it follows (`_schemaURL`). `logline_log` is
ours: it leads from a summary to the events themselves. Its schema is `LogRunFacet.json` beside this file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa

from logline.store.address import absolute

Json = dict[str, Any]

PRODUCER = "urn:logline"
SPEC = "https://openlineage.io/spec"
LOG_FACET = "urn:logline:openlineage:1-0-0:LogRunFacet.json#/$defs/LogRunFacet"
_PASSWORD = re.compile(
    r"(://[^\s/:@]*:)[^\s/@]+(?=@)|(\b(?:password|passwd|pwd|token|api_?key)\s*[=:]\s*)[^\s&;,'\"]+", re.I
)


class How(IntEnum):
    """What becomes of a column's values on the way; the further down, the more."""

    IDENTITY = 0
    TRANSFORMATION = 1
    AGGREGATION = 2


class Field(NamedTuple):
    """A column of a dataset that another column is made of."""

    namespace: str
    dataset: str
    column: str
    how: How


def _facet(schema: str, **values: Any) -> Json:
    name = schema.partition("/")[2]
    return {"_producer": PRODUCER, "_schemaURL": f"{SPEC}/facets/{schema}.json#/$defs/{name}", **values}


def job_type(kind: Literal["PIPELINE", "OPERATOR"], seconds: int) -> Json:
    """A stream of which each event tells one window."""
    return _facet(
        "2-0-4/JobTypeJobFacet",
        processingType="STREAMING",
        integration="LOGLINE",
        jobType=kind,
        emissionPattern={
            "eventTrigger": "PERIODIC",
            "eventContentMode": "COMPLETE_SNAPSHOT",
            "windowDuration": seconds,
        },
    )


def processing_engine() -> Json:
    """Which Logline it is."""
    try:
        mine = version("logline")
    except PackageNotFoundError:  # run from its sources
        mine = "unknown"
    return _facet("1-1-1/ProcessingEngineRunFacet", version=mine, name="Logline")


def parent(run_id: str, namespace: str, job: str) -> Json:
    """An operator belongs to the run of its pipeline."""
    above: Json = {"run": {"runId": run_id}, "job": {"namespace": namespace, "name": job}}
    return _facet("1-2-0/ParentRunFacet", **above, root=above)


def schema(columns: pa.Schema) -> Json:
    """The columns of a dataset."""
    return _facet("1-2-0/SchemaDatasetFacet", fields=_fields(columns))


def _fields(columns: Iterable[pa.Field]) -> list[Json]:
    return [
        {"name": field.name, "type": "struct" if nested else str(field.type), "ordinal_position": at}
        | ({"fields": _fields(field.type)} if nested else {})
        for at, field in enumerate(columns, 1)
        for nested in [pa.types.is_struct(field.type)]
    ]


def column_lineage(columns: Mapping[str, Sequence[Field]]) -> Json:
    """Of which columns each column is made."""
    return _facet(
        "1-2-0/ColumnLineageDatasetFacet",
        fields={
            column: {
                "inputFields": [
                    {
                        "namespace": field.namespace,
                        "name": field.dataset,
                        "field": field.column,
                        "transformations": [{"type": "DIRECT", "subtype": field.how.name}],
                    }
                    for field in made_of
                ]
            }
            for column, made_of in columns.items()
        },
    )


def input_statistics(rows: int | None, nbytes: int) -> Json:
    """What was read in the window."""
    return _facet("1-0-0/InputStatisticsInputDatasetFacet", **_amount(rows, nbytes))


def output_statistics(rows: int | None, nbytes: int) -> Json:
    """What was put out or written in the window."""
    return _facet("1-0-2/OutputStatisticsOutputDatasetFacet", **_amount(rows, nbytes))


def _amount(rows: int | None, nbytes: int) -> Json:
    return {"size": nbytes} if rows is None else {"rowCount": rows, "size": nbytes}


def error_message(message: str, traceback: str) -> Json:
    """Why a run failed."""
    trace = {"stackTrace": without_passwords(traceback)} if traceback else {}
    return _facet(
        "1-0-1/ErrorMessageRunFacet", message=without_passwords(message), programmingLanguage="PYTHON", **trace
    )


def log_facet(
    log: str, log_id: str, run: str, window: tuple[datetime, datetime], ports: Sequence[Json], query: str | None
) -> Json:
    """Where the events of the window are, and how to ask for them."""
    start, end = window
    facet = {
        "_producer": PRODUCER,
        "_schemaURL": LOG_FACET,
        "log": log,
        "logId": log_id,
        "run": run,
        "windowStart": start.isoformat(),
        "windowEnd": end.isoformat(),
        "ports": list(ports),
    }
    return facet if query is None else {**facet, "query": query}


def public_address(log: str) -> str:
    """The address of a log, without what only those who may open it should know.

    >>> public_address("postgresql://me:secret@db.example.org:5432/logs?sslpassword=x")
    'postgresql://db.example.org:5432/logs'
    >>> public_address("lmdb:/data/sales.log")
    'lmdb:/data/sales.log'
    """
    kind = log.partition(":")[0]
    if kind in ("memory", "lmdb"):
        return absolute(log)
    parts = urlsplit(log)
    return f"{kind}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.netloc else f"{kind}:"


def without_passwords(text: str) -> str:
    """What an exception says, which may be the address that could not be reached.

    >>> without_passwords("no route to postgresql://me:secret@db/logs; host=db password=secret")
    'no route to postgresql://me:***@db/logs; host=db password=***'
    """
    return _PASSWORD.sub(lambda match: f"{match[1] or match[2]}***", text)
