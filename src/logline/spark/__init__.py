"""Logline on Spark."""

from logline.spark.datasource import register

__all__ = ["register"]
