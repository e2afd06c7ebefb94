"""One session for all tests on Spark: a JVM takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tests.jvms import cache_in

import logline as ll

SLOTS = 6


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Logline's own session, with six slots."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", cache_in(tmp_path_factory.mktemp("cache")))  # where Spark's own log goes
        session = ll.session(
            "tests",
            master=f"local[{SLOTS},100]",
            **{
                "spark.ui.enabled": False,
                "spark.sql.shuffle.partitions": 4,
                "spark.sql.session.timeZone": "Asia/Tokyo",
            },
        )
        yield session
        session.stop()
