"""The conformance suite of the log store seam, put together. See `logline.testing.conformance`."""

from __future__ import annotations

from logline.testing.conformance.commits import CommitRules
from logline.testing.conformance.merging import MergingRules
from logline.testing.conformance.reading import ReadingRules
from logline.testing.conformance.sharing import SharingRules


class StoreConformance(CommitRules, MergingRules, ReadingRules, SharingRules):
    """Everything that `store.seam` promises, as tests."""
