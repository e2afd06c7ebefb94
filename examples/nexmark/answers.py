"""What the queries must come to: SQL over the whole tables, for DuckDB. An event is a batch of records.

Rows have the columns of the query's result, in any order of rows. Query 12 goes by the wall clock: its answer is the
sum over all windows.
"""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pyarrow as pa

IN_TIME = """
    from auctions a join bids b on a.id = b.auction and b.date_time between a.date_time and a.expires
"""
SOLD = f"(select a.id, a.seller, a.category, a.expires, max(b.price) as price {IN_TIME} group by all)"
WINDOW = "time_bucket(interval '10 seconds', {}.date_time)"

SQL = {
    "q0": "from bids",
    "q1": "select auction, bidder, price * 0.908::double as price, channel, date_time from bids",
    "q2": "select auction, price from bids where auction % 123 = 0",
    "q3": """
        select p.name, p.city, p.state, a.id from auctions a join persons p on a.seller = p.id
        where a.category = 10 and p.state in ('OR', 'ID', 'CA')
    """,
    "q4": f"select category, avg(price) as price from {SOLD} group by category",
    "q5": """
        with counts as (
            select b.starts, auction, count(*) as bids
            from (
                select auction, unnest([
                    time_bucket(interval '2 seconds', date_time) - to_seconds(2 * step) for step in range(5)
                ]) as starts
                from bids
            ) b
            group by all
        )
        select starts, auction, bids from counts qualify bids = max(bids) over (partition by starts)
    """,
    "q6": f"""
        select seller, avg(price) as price
        from (from {SOLD} qualify row_number() over (partition by seller order by expires desc, id desc) <= 10)
        group by seller
    """,
    "q7": f"""
        select auction, bidder, price, date_time from bids
        qualify price = max(price) over (partition by {WINDOW.format("bids")})
    """,
    "q8": f"""
        select distinct p.id, p.name, {WINDOW.format("p")} as starts from persons p
        join auctions a on a.seller = p.id and {WINDOW.format("p")} = {WINDOW.format("a")}
    """,
    "q9": f"""
        select a.*, b.* exclude (auction, date_time), b.date_time as date_time_bid, 1 as rank {IN_TIME}
        qualify row_number() over (partition by a.id order by b.price desc, b.date_time) = 1
    """,
    "q11": """
        with marked as (
            select *, date_time > lag(date_time) over one + interval '10 seconds' as opens
            from bids window one as (partition by bidder order by date_time)
        ), numbered as (
            select *, count_if(coalesce(opens, true)) over (partition by bidder order by date_time) as session
            from marked
        )
        select min(date_time) as window_start, max(date_time) + interval '10 seconds' as window_end, bidder,
            count(*) as bids
        from numbered group by bidder, session
    """,
    "q12": """
        select bidder, count(*) as bids from bids group by all
    """,
    "q15": """
        select date_trunc('day', date_time) as window_start, window_start + interval '1 day' as window_end,
            count(*) as total_bids, count(distinct bidder) as total_bidders,
            count(distinct auction) as total_auctions,
            count(*) filter (price < 10000) as low_bids,
            count(distinct bidder) filter (price < 10000) as low_bidders,
            count(distinct auction) filter (price < 10000) as low_auctions,
            count(*) filter (price >= 10000 and price < 1000000) as middle_bids,
            count(distinct bidder) filter (price >= 10000 and price < 1000000) as middle_bidders,
            count(distinct auction) filter (price >= 10000 and price < 1000000) as middle_auctions,
            count(*) filter (price >= 1000000) as high_bids,
            count(distinct bidder) filter (price >= 1000000) as high_bidders,
            count(distinct auction) filter (price >= 1000000) as high_auctions
        from bids group by all
    """,
    "q18": """
        select *, 1 as rank from bids
        qualify row_number() over (partition by bidder, auction order by date_time desc) = 1
    """,
    "q19": """
        select *, row_number() over (partition by auction order by price desc, date_time) as rank from bids
        qualify rank <= 10
    """,
    "q20": """
        select b.*, a.* exclude (id, date_time), a.date_time as date_time_auction
        from bids b join auctions a on b.auction = a.id where a.category = 10
    """,
}


def answer(query: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """The result of a query over whole tables."""
    with duckdb.connect() as db:
        db.execute("set timezone = 'UTC'")
        for name, table in tables.items():
            db.register(name, table)
        return db.sql(SQL[query]).to_arrow_table()
