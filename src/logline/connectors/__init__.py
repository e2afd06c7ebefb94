"""Sources and sinks that come with Logline."""

from logline.connectors import sinks, sources

__all__ = ["sinks", "sources"]
