import pytest

from logline.engine.sets import Member, own_id
from logline.names import ChannelName, Ssn


@pytest.mark.parametrize(
    ("channel", "name"),
    [
        ("orders.out>hourly.in", "orders:17"),
        ("orders.late>hourly.in", "orders.late:17"),
        ("orders/2.out>hourly/1.in", "orders/2:17"),
    ],
)
def test_an_event_alone_is_a_set_with_its_name(channel: str, name: str) -> None:
    assert own_id(Member(ChannelName(channel), Ssn(17))) == name
