"""Logline on Spark: sessions, hosting, DataFrames in and out. Importing this does not import pyspark."""

from logline.spark.session import register, session

__all__ = ["register", "session"]
