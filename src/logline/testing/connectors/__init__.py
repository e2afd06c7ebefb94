"""Whether a source or a sink keeps the promise that it makes: `check` drives it through crashes and late writes."""

from logline.testing.connectors.checking import check
from logline.testing.connectors.findings import BrokenPromise, Checked

__all__ = ["BrokenPromise", "Checked", "check"]
