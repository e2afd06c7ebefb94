"""The queries of Nexmark: each takes streams of persons, auctions and bids and returns one. An event is a batch.

The sources declare the event time, so that windows close by watermarks, also windows of windows. Where Nexmark's SQL
joins without a bound, the join is over `ll.whole()`: it comes out at the end of the input. Queries 6, 9, 18 and 19
put out rows that change; the newest row of each key counts, as `Query.key` says.

    p = ll.Pipeline("nexmark")
    q2(p.source("bids", ll.sources.batches(bids), time="date_time")).sink("store", ll.sinks.collect())
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from examples.nexmark.generator import LONGEST

import logline as ll

PERIOD = "10s"


def q0(bids: ll.Stream) -> ll.Stream:
    """Pass through: what does a pipeline cost that does nothing?"""
    return bids.map_batches("q0", lambda batch: batch)


def q1(bids: ll.Stream) -> ll.Stream:
    """Currency conversion: prices in euros."""
    return bids.with_columns("q1", price=pc.field("price") * 0.908)


def q2(bids: ll.Stream) -> ll.Stream:
    """Selection: the bids for some auctions."""
    return bids.select("q2", "auction, price where auction % 123 = 0")


def q3(persons: ll.Stream, auctions: ll.Stream) -> ll.Stream:
    """Local items: who sells in Oregon, Idaho or California in category 10, and what?"""
    sellers = persons.filter("local", pc.field("state").isin(["OR", "ID", "CA"]))
    offers = auctions.filter("offers", pc.field("category") == 10)
    joined = offers.join("joined", sellers, on={"seller": "id"}, within=ll.whole())
    return joined.select("q3", "name, city, state, id")


def in_time(auctions: ll.Stream, bids: ll.Stream) -> ll.Stream:
    """Auctions with each of the bids that came while they were open."""
    bound = ("0s", LONGEST)
    joined = auctions.join("joined", bids, on={"id": "auction"}, within=bound, time="date_time", suffix="_bid")
    return joined.filter("in_time", pc.field("date_time_bid") <= pc.field("expires"))


def sold(auctions: ll.Stream, bids: ll.Stream) -> ll.Stream:
    """The highest price of each auction that had a bid. An auction is in one window, the one in which it began."""
    window = ll.tumbling(PERIOD, on="date_time")
    by = ["id", "seller", "category", "expires"]
    return in_time(auctions, bids).window("sold", window, by=by, agg={"price": ("price", "max")})


def q4(auctions: ll.Stream, bids: ll.Stream) -> ll.Stream:
    """Average price: of the highest bids, for each category."""
    return sold(auctions, bids).window("q4", ll.whole(), by=["category"], agg={"price": ("price", "mean")})


def q5(bids: ll.Stream) -> ll.Stream:
    """Hot items: which auctions had the most bids in the last ten seconds, every two seconds?"""
    window = ll.sliding(PERIOD, "2s", on="date_time")
    counts = bids.window("counts", window, by=["auction"], agg={"bids": ("bidder", "count")}).select(
        "counted", "window_start as starts, auction, bids"
    )
    each = ll.tumbling("2s", on="starts")  # holds one window of the counts
    most = counts.window("most", each, agg={"bids": ("bids", "max")})
    best = most.select("best", "window_start as starts, bids")
    return counts.join("joined", best, on=["starts", "bids"], within=each).select("q5", "starts, auction, bids")


@dataclass
class Sales:
    """What a seller sold lately: when the auction ended, its id, and the price."""

    last: list[tuple[int, int, int]] = field(default_factory=list)


def last_ten(batch: pa.RecordBatch, ctx: ll.KeyContext[Sales]) -> pa.Table:
    """The average of the ten sales of a seller whose auctions ended last."""
    ended, ids, prices = (batch[column].cast(pa.int64()).to_pylist() for column in ("expires", "id", "price"))
    ctx.state.last = sorted([*ctx.state.last, *zip(ended, ids, prices, strict=True)])[-10:]
    mean = sum(price for _, _, price in ctx.state.last) / len(ctx.state.last)
    return pa.table({"seller": [ctx.key[0]], "price": [mean]})


def q6(auctions: ll.Stream, bids: ll.Stream) -> ll.Stream:
    """Average selling price: of the last ten auctions of each seller."""
    schema = "seller long, price double"
    return sold(auctions, bids).stateful("q6", last_ten, by=["seller"], state=Sales, schema=schema)


def q7(bids: ll.Stream) -> ll.Stream:
    """Highest bid: those with the highest price of each ten seconds."""
    window = ll.tumbling(PERIOD, on="date_time")
    most = bids.window("most", window, agg={"price": ("price", "max")})
    best = most.select("best", "window_start as starts, price")
    joined = bids.join("joined", best, on=["price"], within=window, time=("date_time", "starts"))
    return joined.select("q7", "auction, bidder, price, date_time")


def q8(persons: ll.Stream, auctions: ll.Stream) -> ll.Stream:
    """New users: who came and opened an auction within the same ten seconds?"""
    window = ll.tumbling(PERIOD, on="date_time")
    active = persons.join("active", auctions, on={"id": "seller"}, within=window, how="semi")
    return active.select("q8", "id, name, window_start as starts")


def q9(auctions: ll.Stream, bids: ll.Stream) -> ll.Stream:
    """Winning bids: the first one of the highest price, for each auction."""
    return in_time(auctions, bids).top("q9", 1, by=["id"], order="price desc, date_time_bid")


def q11(bids: ll.Stream) -> ll.Stream:
    """User sessions: how many bids did a user make without a pause of ten seconds?"""
    window = ll.session_window(PERIOD, on="date_time")
    return bids.window("q11", window, by=["bidder"], agg={"bids": ("auction", "count")})


def q12(bids: ll.Stream) -> ll.Stream:
    """Processing time: how many bids of a user came in each ten seconds of the wall clock?"""
    return bids.window("q12", ll.tumbling(PERIOD), by=["bidder"], agg={"bids": ("auction", "count")})


def q15(bids: ll.Stream) -> ll.Stream:
    """Bidding statistics: bids, bidders and auctions of each day, in all and by three ranges of price."""
    ranges = {"low": "price < 10000", "middle": "price >= 10000 and price < 1000000", "high": "price >= 1000000"}
    columns: dict[str, Any] = {
        f"{name}_{column}": f"case when {where} then {column} end"
        for name, where in ranges.items()
        for column in ("bidder", "auction")
    }
    aggregates: dict[str, tuple[str, str]] = {}
    for name, prefix in {"total": "", **{name: f"{name}_" for name in ranges}}.items():
        aggregates[f"{name}_bids"] = (f"{prefix}bidder", "count")
        aggregates[f"{name}_bidders"] = (f"{prefix}bidder", "count_distinct")
        aggregates[f"{name}_auctions"] = (f"{prefix}auction", "count_distinct")
    ranged = bids.with_columns("ranged", **columns)
    return ranged.window("q15", ll.tumbling("1d", on="date_time"), agg=aggregates)


def q18(bids: ll.Stream) -> ll.Stream:
    """Last bid: of each bidder in each auction."""
    return bids.top("q18", 1, by=["bidder", "auction"], order="date_time desc")


def q19(bids: ll.Stream) -> ll.Stream:
    """Top ten: the highest bids of each auction."""
    return bids.top("q19", 10, by=["auction"], order="price desc, date_time")


def q20(auctions: ll.Stream, bids: ll.Stream) -> ll.Stream:
    """Expand bids: those for auctions of category 10, with the auction."""
    offers = auctions.filter("offers", pc.field("category") == 10)
    return bids.join("q20", offers, on={"auction": "id"}, within=ll.whole(), suffix="_auction")
