"""Rebuilding: a life collects the members of its open sets, then has the phases rebuild them (Algorithms 7-9; R5).

Exactly the members are read, nothing between them, and nothing is rebuilt before all of them are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.events import Output
from logline.engine.image import Image
from logline.names import ChannelName, Ssn


class Rebuilding:
    """The way of one life from its image to whole sets."""

    def __init__(self, act: Callable[[do.Action], None]) -> None:
        self._act = act
        self._image: Image | None = None
        self._missing: set[ChannelName] = set()
        self._members: dict[ChannelName, dict[Ssn, Output]] = {}

    def begin(self, image: Image, members: Mapping[ChannelName, Sequence[Ssn]]) -> None:
        """Asks for the members, which the policy names."""
        self._image = image
        self._missing = set(members)
        for channel, ssns in members.items():
            self._act(do.FetchMembers(channel, tuple(ssns)))
        self._rebuild_if_whole()

    def fetched(self, stimulus: on.MembersFetched) -> None:
        """The members of one channel are there."""
        self._members[stimulus.channel] = {event.ssn: event for event in stimulus.events}
        self._missing.discard(stimulus.channel)
        self._rebuild_if_whole()

    def _rebuild_if_whole(self) -> None:
        if not self._missing and self._image is not None:
            image, self._image = self._image, None
            members, self._members = self._members, {}
            self._act(do.Rebuild(image, members))
