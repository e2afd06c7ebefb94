"""Data pipelines with log-based rollback recovery and event-level lineage. An event is a batch of records.

The public names; everything else may change. They are listed in `__init__.pyi` and imported when they are first
used, so that the command line and a worker process begin at once. Importing this does not import pyspark.
"""

from logline.exports import __dir__ as __dir__
from logline.exports import __getattr__ as __getattr__
from logline.exports import names as __all__  # noqa: F401
