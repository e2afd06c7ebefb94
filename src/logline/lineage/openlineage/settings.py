"""Where a run's OpenLineage events go, and how often.

    p.start(log, openlineage="file:sales.jsonl")
    p.start(log, openlineage=ll.OpenLineage("https://lineage.example.org", every="5m", api_key=ll.env("KEY")))

>>> OpenLineage("http://localhost:5000").every
datetime.timedelta(seconds=60)
>>> OpenLineage("ftp://localhost")
Traceback (most recent call last):
logline.errors.OptionError: openlineage: give 'file:PATH' or the 'http://HOST:PORT' of a server
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from logline.errors import OptionError
from logline.graph.durations import duration
from logline.graph.operator import Duration
from logline.graph.secrets import Secret

_KEY = "OPENLINEAGE_API_KEY"
_PATH = "/api/v1/lineage"
"""Where servers of OpenLineage listen, unless the address says otherwise."""
_NO = "openlineage: give 'file:PATH' or the 'http://HOST:PORT' of a server"


class OpenLineage:
    """How a run is exported as OpenLineage events."""

    def __init__(
        self,
        to: str,
        *,
        every: Duration = "60s",
        namespace: str = "logline",
        api_key: Secret | None = None,
        timeout: Duration = "5s",
    ) -> None:
        """`to`: `file:PATH`, to which each event is appended as a line of JSON, or the address of a server.

        `every`: how long a window is; each ends with a RUNNING event. `namespace`: that of the jobs, and of datasets
        that have no name outside of Logline. `api_key`: `ll.env("NAME")`. `timeout`: for one request.
        """
        self.every = _span("every", every)
        self.timeout = _span("timeout", timeout)
        self.namespace = namespace
        self.api_key = api_key
        self.file: Path | None = None
        self.url = ""
        if not namespace or not isinstance(namespace, str):
            raise OptionError("openlineage: namespace= is a text, for example 'sales-team'")
        if api_key is not None and not isinstance(api_key, Secret):
            # The value is not repeated: it is the secret itself.
            raise OptionError("openlineage: api_key= takes ll.env('NAME'), never the key itself")
        if not isinstance(to, str):
            raise OptionError(_NO)
        if to.startswith("file:"):
            self._to_file(to.removeprefix("file:").removeprefix("//"))
        else:
            self._to_server(to)

    def _to_file(self, path: str) -> None:
        file = Path(path).absolute()
        if not path or file.is_dir() or not file.parent.is_dir():
            raise OptionError(f"openlineage: {file} can't be a file: give one in a folder that is there")
        self.file = file

    def _to_server(self, to: str) -> None:
        try:
            parts = urlsplit(to)
            port = parts.port
        except ValueError:
            raise OptionError(_NO) from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise OptionError(_NO)
        if parts.username is not None or parts.password is not None or parts.query:
            raise OptionError(
                f"openlineage: the address of {parts.hostname!r} must not hold a user, a password or a query: "
                "give api_key=ll.env('NAME')"
            )
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        path = _PATH if parts.path in ("", "/") else parts.path
        self.url = f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{path}"

    @property
    def where(self) -> str:
        """The server's address or the file's path, as messages name it."""
        return self.url if self.file is None else str(self.file)

    def __repr__(self) -> str:
        return f"OpenLineage({self.where!r})"


def settings(given: str | OpenLineage | None, environment: Mapping[str, str] = os.environ) -> OpenLineage | None:
    """What was given to `start`, or what the variables of OpenLineage's own clients say; None: no export.

    >>> settings(None, {})
    >>> settings(None, {"OPENLINEAGE_URL": "http://localhost:5000"})
    OpenLineage('http://localhost:5000/api/v1/lineage')
    >>> settings(None, {"OPENLINEAGE_URL": "http://localhost:5000", "OPENLINEAGE_DISABLED": "true"})
    """
    found = given
    if not isinstance(given, OpenLineage):
        if environment.get("OPENLINEAGE_DISABLED", "").lower() in ("true", "1"):
            return None
        to = given if given is not None else environment.get("OPENLINEAGE_URL") or None
        if to is None:
            return None
        namespace: dict[str, Any] = {}
        if "OPENLINEAGE_NAMESPACE" in environment:
            namespace["namespace"] = environment["OPENLINEAGE_NAMESPACE"]
        found = OpenLineage(to, api_key=Secret(_KEY) if environment.get(_KEY) else None, **namespace)
    assert isinstance(found, OpenLineage)
    if found.api_key is not None:
        found.api_key.resolve()  # one that is not set is known now, not when the first event is sent
    return found


def _span(option: str, value: Duration) -> timedelta:
    try:
        span = duration(value)
    except OptionError as error:
        raise OptionError(f"openlineage: {option}: {error}") from None
    if span <= timedelta(0):
        raise OptionError(f"openlineage: {option}= must be more than zero")
    return span
