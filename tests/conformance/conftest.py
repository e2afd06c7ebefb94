import pytest

pytest.register_assert_rewrite("logline.testing.conformance")
