"""The conformance suite that every log store passes; needs pytest and Hypothesis.

A store runs it with a test class of its own:

    from logline.testing.conformance import StoreConformance

    class TestMyStore(StoreConformance):
        def make_store(self, location):             # the same log for the same place
            return MyStore(location)

and, so that a failing assertion shows its values, in the `conftest.py` beside it:

    pytest.register_assert_rewrite("logline.testing.conformance")

`model` says what a journal must hold, `steps` draws valid steps against it.
"""

from logline.testing.conformance.store import StoreConformance

__all__ = ["StoreConformance"]
