"""OpenLineage's own word on what an event may look like.

The classes of `openlineage-python` are generated from the project's JSON schema, with its names, types, required
fields, formats and versions. An event is read into them, strictly, and what they write must be the event again.
"""

from __future__ import annotations

import typing
from enum import Enum
from types import NoneType, UnionType
from typing import Any

import attr
from openlineage.client import facet_v2
from openlineage.client.event_v2 import RunEvent
from openlineage.client.generated import base
from openlineage.client.serde import Serde

FACETS: dict[str, type] = {
    "jobType": facet_v2.job_type_job.JobTypeJobFacet,
    "parent": facet_v2.parent_run.ParentRunFacet,
    "processing_engine": facet_v2.processing_engine_run.ProcessingEngineRunFacet,
    "errorMessage": facet_v2.error_message_run.ErrorMessageRunFacet,
    "schema": facet_v2.schema_dataset.SchemaDatasetFacet,
    "columnLineage": facet_v2.column_lineage_dataset.ColumnLineageDatasetFacet,
    "inputStatistics": facet_v2.input_statistics_input_dataset.InputStatisticsInputDatasetFacet,
    "outputStatistics": facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
}
CUSTOM = ("logline_log",)


def check(event: dict[str, Any]) -> None:
    """Raises if the event is not one of OpenLineage's."""
    assert event["eventType"] and event["run"] and event["job"]
    read = _read(RunEvent, event, "event")
    assert _without_empty(Serde.to_dict(read)) == _without_empty(event)


def _read(kind: Any, value: Any, at: str) -> Any:
    if typing.get_origin(kind) in (UnionType, typing.Union):
        kinds = [k for k in typing.get_args(kind) if k is not NoneType]
        assert len(kinds) == 1
        return _read(kinds[0], value, at)
    if typing.get_origin(kind) is list:
        assert isinstance(value, list), at
        return [_read(typing.get_args(kind)[0], one, f"{at}[]") for one in value]
    if typing.get_origin(kind) is dict:
        assert isinstance(value, dict), at
        of = typing.get_args(kind)[1]
        return {key: _read(_facet(key, of), one, f"{at}.{key}") for key, one in value.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if attr.has(kind):
        return _read_object(kind, value, at)
    assert type(value) is kind, f"{at}: {value!r} is not a {kind.__name__}"
    return value


def _facet(key: str, of: Any) -> Any:
    """The class of a facet by its key: a dictionary of facets says only of what it belongs to."""
    if not (isinstance(of, type) and issubclass(of, base.BaseFacet)):
        return of
    if key in CUSTOM:
        return of
    assert issubclass(FACETS[key], of), f"{key} is not for {of.__name__}"
    return FACETS[key]


def _read_object(kind: type, value: Any, at: str) -> Any:
    assert isinstance(value, dict), at
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in attr.fields(kind)}
    more = {key: value[key] for key in value.keys() - fields.keys()}
    custom = kind in (base.RunFacet, base.JobFacet, base.DatasetFacet)
    assert custom or not more, f"{at} has {', '.join(more)}, which {kind.__name__} has not"
    given = {
        fields[key].alias: _read(hints[key], one, f"{at}.{key}")
        for key, one in value.items()
        if key in fields and fields[key].init
    }
    made = kind(**given)
    if more:
        made = made.with_additional_properties(**more)
    for key, one in value.items():
        if key in fields and not fields[key].init:
            if custom:  # the schema of a custom facet is its own
                setattr(made, key, one)
            assert getattr(made, key) == one, f"{at}.{key}: {one!r} is not {getattr(made, key)!r}"
    if issubclass(kind, base.BaseFacet):
        assert {"_producer", "_schemaURL"} <= value.keys(), at
    return made


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: kept for k, v in value.items() if (kept := _without_empty(v)) not in ({}, [])}
    return [_without_empty(one) for one in value] if isinstance(value, list) else value
