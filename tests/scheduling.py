"""Says which tests run in the same worker of pytest-xdist (`-n 2`). Each other test goes to the next free worker.

The scheduler sends large scopes first. So one worker begins with the tests on Spark, which take longest, and the
other one with the rest; at the end, both share what is left, which is short.
"""

from __future__ import annotations

import re

from xdist.scheduler import LoadScopeScheduling

OWN_SESSIONS = ("test_drivers", "test_jvm", "test_refusals", "test_clusters", "test_two_hosts")
"""Of the files in tests/spark, those whose tests start drivers with sessions of their own."""
ON_SPARK = re.compile(rf"tests/spark/(?!({'|'.join(OWN_SESSIONS)})\.py)|.*\[docs/dataframes\.md:")
"""These tests share a Spark session. A second JVM would take ten seconds to start, and twice the memory."""
PAGE = re.compile(r".*::test_page\[(.+):\d+\]")
"""The blocks of a page share a namespace: a second worker would have to run the earlier blocks again."""


def scope(test: str) -> str:
    """Tests with the same scope run in one worker, in their order."""
    if ON_SPARK.match(test):
        return "spark"
    return page[1] if (page := PAGE.match(test)) else test


class Together(LoadScopeScheduling):
    """Assigns scope by scope. The marks of `--dist loadgroup` have no effect with pytest 9.2 and pytest-xdist 3.8."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)
