import pickle
from typing import Any

import pytest

from logline.errors import OptionError
from logline.graph.secrets import env


def test_only_the_name_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGLINE_TEST_DSN", "postgresql://u:hunter2@h/db")
    secret = env("LOGLINE_TEST_DSN")
    assert secret.resolve() == "postgresql://u:hunter2@h/db"
    assert "hunter2" not in f"{secret!r} {secret} {pickle.dumps(secret)!r}"
    assert pickle.loads(pickle.dumps(secret)) == secret


def test_a_variable_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOGLINE_TEST_DSN", raising=False)
    with pytest.raises(OptionError, match="'LOGLINE_TEST_DSN' is not set: set it where the operator runs"):
        env("LOGLINE_TEST_DSN").resolve()


@pytest.mark.parametrize("value", ["", "host=h password=hunter2", 5, None])
def test_a_secret_given_by_mistake_is_not_repeated(value: Any) -> None:
    with pytest.raises(OptionError, match="takes the name of an environment variable") as info:
        env(value)
    assert "hunter2" not in str(info.value)
