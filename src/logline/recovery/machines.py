"""Makes the machine of an instance: its kind follows from what the instance is, its policy from its spec.

>>> from logline.engine.spec import InstanceSpec
>>> from logline.names import InstanceName, PartitionName
>>> type(machine_for(InstanceSpec(InstanceName("orders"), partitions=(PartitionName("0"),)))).__name__
'SourceMachine'
"""

from __future__ import annotations

from collections.abc import Mapping

from logline.engine.image import Needs
from logline.engine.janitor import Janitor
from logline.engine.machine import Machine
from logline.engine.operating import OperatorMachine
from logline.engine.policy import Needed, Policy
from logline.engine.reading import SourceMachine
from logline.engine.spec import InstanceSpec
from logline.errors import EngineError
from logline.graph.instances import Channel
from logline.graph.model import Policy as PolicyName
from logline.recovery.eventual import Eventual
from logline.recovery.pessimistic import Pessimistic

POLICIES: Mapping[PolicyName, type[Policy]] = {"pessimistic": Pessimistic, "eventual": Eventual}
"""Every policy that is built."""


def policy_of(spec: InstanceSpec) -> Policy:
    """A policy for one life of the instance."""
    match spec.policy:
        case "pessimistic":
            return Pessimistic()
        case "eventual":
            return Eventual(spec.checkpoints)
        case other:
            raise EngineError(f"{spec.name}: there is no policy {other!r} yet")


def machine_for(spec: InstanceSpec) -> Machine:
    """A machine for one life of the instance."""
    kind = OperatorMachine if spec.inputs else SourceMachine
    return kind(spec, policy_of(spec), needed)


def janitor_for(spec: InstanceSpec, *, all_rest: bool = False) -> Janitor:
    """One look at the journal of an instance that does not live."""
    return Janitor(spec, policy_of(spec), needed, all_rest=all_rest)


def needed(channel: Channel, needs: Needs) -> Needed:
    """What the receiver of a channel needs of it: its own policy knows. One that is gone never takes up its open sets
    and pending writes again, and only lineage may lead to what it has taken (R12, R14)."""
    return Needed(needs.position.ssn) if channel.gone else POLICIES[channel.policy].needed(needs)
