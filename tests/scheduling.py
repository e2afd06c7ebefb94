"""Says which tests run in the same worker of pytest-xdist (`-n 2`). Each other test goes to the next free worker.

The scheduler sends large scopes first. So one worker begins with the tests on Spark, which share a session, and the
others with the rest, the long ones first: at the end all share what is left, which is short.
"""

from __future__ import annotations

import re
from typing import Any

from xdist.scheduler import LoadScopeScheduling

OWN_SESSIONS = ("test_drivers", "test_jvm", "test_refusals", "test_clusters", "test_two_hosts")
"""Of the files in tests/spark, those whose tests start drivers with sessions of their own."""
ON_SPARK = re.compile(rf"tests/spark/(?!({'|'.join(OWN_SESSIONS)})\.py)|.*\[docs/dataframes\.md:")
"""These tests share a Spark session. A second JVM would take ten seconds to start, and twice the memory."""
PAGE = re.compile(r".*::test_page\[(.+):\d+\]")
"""The blocks of a page share a namespace: a second worker would have to run the earlier blocks again."""


LONG = (
    "tests/protocol/test_schedules.py::test_a_thousand",
    "tests/protocol/test_crash_points.py::test_a_kill_at_every_point_of_a_hand_over",
    "tests/protocol/test_crash_points.py::test_a_second_kill",
    *(f"tests/spark/{name}.py" for name in OWN_SESSIONS),
    "tests/chaos/",
    "tests/protocol/",
    "tests/conformance/",
    "tests/examples/",
    "tests/cli/",
    "tests/unit/runtime/",
)
"""Tests that begin so take seconds or minutes, and begin before the others. What comes at the end should be short:
nobody helps a worker with the last one."""


def scope(test: str) -> str:
    """Tests with the same scope run in one worker, in their order."""
    if ON_SPARK.match(test):
        return "spark"
    return page[1] if (page := PAGE.match(test)) else test


def rank(scope: str) -> int:
    """The lower, the sooner it begins."""
    return next((at for at, prefix in enumerate(LONG) if scope.startswith(prefix)), len(LONG))


class Together(LoadScopeScheduling):
    """Assigns scope by scope. The marks of `--dist loadgroup` have no effect with pytest 9.2 and pytest-xdist 3.8."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)

    def schedule(self) -> None:
        """Assigns the first work, or what a worker is to do that has come in the place of one that crashed."""
        begins = self.collection is None
        super().schedule()
        if begins:
            for waiting in sorted(self.workqueue, key=rank):
                self.workqueue.move_to_end(waiting)

    def _reschedule(self, node: Any) -> None:
        """A worker has two tests: it begins one when it knows the next. With one alone it would wait for ever."""
        if node.shutting_down or node not in self.registered_collections:  # one that has just come has yet to collect
            return
        while self.workqueue and self._pending_of(self.assigned_work[node]) < 2:
            self._assign_work_unit(node)
        if not self.workqueue:
            node.shutdown()

    def remove_node(self, node: Any) -> str | None:
        """A worker is gone. If it crashed, returns the test that it was at. That one has failed and is not tried
        again; others do the rest of its work."""
        left = [
            (scope, test)
            for scope, tests in self.assigned_work.pop(node).items()
            for test in tests
            if not tests[test]
        ]
        for scope, test in left[1:]:
            self.workqueue.setdefault(scope, {})[test] = False
        for other in self.nodes:
            self._reschedule(other)
        return left[0][1] if left else None
