"""What the instances of a simulated pipeline were ever called (R14).

The event state of a simulated operator has the names of the events that it took. A checkpoint keeps them as they were
then, and a later life adds those of today.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from logline.engine.sets import Member
from logline.graph.instances import Channel
from logline.names import Called, ChannelName, InstanceName, event_name
from logline.runtime.lives.instances import Instance


class NamesSeen:
    """All names of each instance."""

    def __init__(self) -> None:
        self._names: dict[InstanceName, set[Called]] = {}

    def note(self, instances: Mapping[InstanceName, Instance]) -> None:
        """These are the names of today."""
        for name, instance in instances.items():
            self._names.setdefault(name, set()).add(instance.called)

    def are(self, events: Sequence[str], members: Iterable[Member], channels: Mapping[ChannelName, Channel]) -> bool:
        """Whether these are the events of the members, in their order."""
        wanted = [self._of(channels[member.channel], member) for member in members]
        return len(events) == len(wanted) and all(event in names for event, names in zip(events, wanted, strict=True))

    def _of(self, channel: Channel, member: Member) -> set[str]:
        return {event_name(called, channel.out, member.ssn) for called in self._names[channel.sender]}
