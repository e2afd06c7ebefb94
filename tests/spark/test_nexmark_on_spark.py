"""The queries of Nexmark equal Spark SQL over the same data.

All sixteen have an answer in batch SQL. Where Nexmark's own SQL is a stream's, the answer is what the stream has come
to at its end: the last row of each key for queries 6, 9, 18 and 19. Query 12 goes by the wall clock, so its answer is
the sum over all of its windows. Windows are Spark's `window` and `session_window`, which count from 1970 in UTC
whatever the session's time zone is.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from examples.nexmark.answers import SQL as DUCKDB
from examples.nexmark.generator import Data, generate
from examples.nexmark.suite import QUERIES, equals, pipeline
from pyspark.sql import SparkSession

RECORDS = 2000  # 40 seconds, from just before midnight

IN_TIME = """
    from auctions a join bids b on a.id = b.auction and b.date_time between a.date_time and a.expires
"""
SOLD = f"(select a.id, a.seller, a.category, a.expires, max(b.price) as price {IN_TIME} group by all)"
STARTS = "window(date_time, '10 seconds').start as starts"
RANGES = {"low": "price < 10000", "middle": "price >= 10000 and price < 1000000", "high": "price >= 1000000"}


def counted(name: str, where: str) -> str:
    """The columns of query 15 for a range of prices."""
    return f"""
        count(*) filter (where {where}) as {name}_bids,
        count(distinct bidder) filter (where {where}) as {name}_bidders,
        count(distinct auction) filter (where {where}) as {name}_auctions
    """


SQL = {
    "q0": "select * from bids",
    "q1": "select auction, bidder, price * 0.908D as price, channel, date_time from bids",
    "q2": "select auction, price from bids where auction % 123 = 0",
    "q3": """
        select p.name, p.city, p.state, a.id from auctions a join persons p on a.seller = p.id
        where a.category = 10 and p.state in ('OR', 'ID', 'CA')
    """,
    "q4": f"select category, avg(price) as price from {SOLD} group by category",
    "q5": """
        with counts as (
            select window.start as starts, auction, count(*) as bids from bids
            group by window(date_time, '10 seconds', '2 seconds'), auction
        ), most as (
            select *, max(bids) over (partition by starts) as highest from counts
        )
        select starts, auction, bids from most where bids = highest
    """,
    "q6": f"""
        select seller, avg(price) as price
        from (select *, row_number() over (partition by seller order by expires desc, id desc) as place from {SOLD})
        where place <= 10 group by seller
    """,
    "q7": f"""
        select auction, bidder, price, date_time
        from (select *, max(price) over (partition by starts) as highest from (select *, {STARTS} from bids))
        where price = highest
    """,
    "q8": f"""
        select distinct p.id, p.name, p.starts from (select *, {STARTS} from persons) p
        join (select *, {STARTS} from auctions) a on a.seller = p.id and a.starts = p.starts
    """,
    "q9": f"""
        select * from (
            select a.*, b.bidder, b.price, b.channel, b.date_time as date_time_bid,
                row_number() over (partition by a.id order by b.price desc, b.date_time) as rank {IN_TIME}
        ) where rank = 1
    """,
    "q11": """
        select session_window.start as window_start, session_window.end as window_end, bidder, count(*) as bids
        from bids group by session_window(date_time, '10 seconds'), bidder
    """,
    "q12": "select bidder, count(*) as bids from bids group by bidder",
    "q15": f"""
        select window.start as window_start, window.end as window_end,
            {", ".join(counted(*given) for given in {"total": "true", **RANGES}.items())}
        from bids group by window(date_time, '1 day')
    """,
    "q18": """
        select * from (
            select *, row_number() over (partition by bidder, auction order by date_time desc) as rank from bids
        ) where rank = 1
    """,
    "q19": """
        select * from (
            select *, row_number() over (partition by auction order by price desc, date_time) as rank from bids
        ) where rank <= 10
    """,
    "q20": """
        select b.*, a.item, a.initial_bid, a.reserve, a.date_time as date_time_auction, a.expires, a.seller,
            a.category
        from bids b join auctions a on b.auction = a.id where a.category = 10
    """,
}


@pytest.fixture(scope="module")
def data(spark: SparkSession) -> Iterator[Data]:
    """The tables, which Spark has as views."""
    made = generate(RECORDS)
    for kind, table in made.items():
        spark.createDataFrame(table).createOrReplaceTempView(kind)
    yield made
    for kind in made:
        spark.catalog.dropTempView(kind)


def test_every_query_has_an_answer() -> None:
    assert SQL.keys() == QUERIES.keys() == DUCKDB.keys()


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_equals_spark_sql(name: str, spark: SparkSession, data: Data) -> None:
    run = pipeline(name, data, rows=100).run(engine="inline")
    wanted = spark.sql(SQL[name]).toArrow()
    assert wanted.num_rows
    assert equals(name, run.result("store"), wanted)
