"""Sources and sinks."""

from logline.connectors import sinks, sources

__all__ = ["sinks", "sources"]
