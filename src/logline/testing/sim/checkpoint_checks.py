"""What must hold of checkpoints of open sets after every commit (R22).

A ghost remembers the members of every open set, in the order in which they were logged, whatever is covered since.
So a checkpoint that covers a member that is not in the log, or one of another set, or that is lost, is seen in the
commit that does it.
"""

from __future__ import annotations

from collections.abc import Mapping

from logline.engine import codec
from logline.engine.events import Output, Position
from logline.engine.image import Image
from logline.engine.sets import Member, digest_members
from logline.names import ERRORS, InstanceName, PortName, Serial, Ssn
from logline.runtime.lives.instances import Instance
from logline.store.memory import MemoryStore
from logline.testing.sim.names_seen import NamesSeen
from logline.testing.sim.outside import Violation


class CheckpointChecks:
    """Watches the checkpoints of one simulated run."""

    def __init__(self, store: MemoryStore, names: NamesSeen) -> None:
        self._names = names
        self._store = store
        self._members: dict[tuple[InstanceName, Serial], list[Member]] = {}
        """Of sets that are not done."""
        self._counts: dict[tuple[InstanceName, Serial], int] = {}
        """How many the newest checkpoint covers."""
        self._without_rows: dict[tuple[InstanceName, Ssn], list[Member]] = {}
        """Events on ports `errors` that hold the rows of the later members only, and whose rows are missing."""
        self.made = 0
        """Checkpoints that were committed."""

    def all_members(self, name: InstanceName, serial: Serial, held: list[Member], covered: int) -> list[Member]:
        """Of a set that a life knows: those that it let go are in the log."""
        return [*self._store.read(name).covered(serial)[:covered], *held] if covered else held

    def after_commit(self, name: InstanceName, instance: Instance, image: Image) -> None:
        """R22: what is covered is in the log, once and in order; the newest checkpoint wins, and stays."""
        reader = self._store.read(name)
        for serial, opened in image.sets.items():
            covered = reader.covered(serial)
            count = 0 if opened.checkpoint is None else opened.checkpoint.covers
            if len(covered) != count:
                raise Violation(f"COVERED {name} set {serial}: {len(covered)} names for {count} covered members")
            members = [*covered, *opened.members]
            before = self._members.get((name, serial), [])
            if members[: len(before)] != before:
                raise Violation(f"MEMBERS {name} set {serial}: {before} -> {members}")
            self._members[name, serial] = members
            if count < self._counts.get((name, serial), 0):
                raise Violation(f"CHECKPOINT-BACK {name} set {serial}: {self._counts[name, serial]} -> {count}")
            if count > self._counts.get((name, serial), 0):
                self.made += 1
                self._counts[name, serial] = count
            self._check(name, instance, serial, image, covered)
        for known in [key for key in self._members if key[0] == name and key[1] not in image.sets]:
            del self._members[known]
            self._counts.pop(known, None)

    def _check(
        self, name: InstanceName, instance: Instance, serial: Serial, image: Image, covered: list[Member]
    ) -> None:
        opened = image.sets[serial]
        saved = opened.checkpoint
        if saved is None:
            return
        channels = {c.name: c for c in (*instance.spec.inputs, *instance.spec.closed)}
        got = [name for name, _ in codec.decode(saved.state)]
        if not self._names.are(got, covered, channels):
            raise Violation(f"CHECKPOINT {name} set {serial} is of {got}, and covers {covered}")
        if digest_members(covered) != saved.digest:
            raise Violation(f"CHECKPOINT {name} set {serial} has another digest than its members")
        for member in covered:
            if member.ssn > image.positions.get(member.channel, Position()).ssn:
                raise Violation(f"CHECKPOINT {name} set {serial} covers {member}, which was not taken")
            if (
                member.channel in instance.spec.traced_in
                and saved.lows.get(member.channel, member.ssn + 1) > member.ssn
            ):
                raise Violation(f"CHECKPOINT {name} set {serial} has {saved.lows}, and covers {member}")

    def diverted(self, name: InstanceName, image: Image, errors: Mapping[Ssn, Output]) -> None:
        """Remembers which rows an error does not hold: those of members that a checkpoint covers."""
        for ssn, row in errors.items():
            parked = image.sets.get(row.serial)
            if parked is not None and parked.cause == "parked" and (name, ssn) not in self._without_rows:
                self._without_rows[name, ssn] = self._store.read(name).covered(row.serial)

    def without_rows(self, name: InstanceName, port: PortName, ssn: Ssn) -> list[Member]:
        """The members whose rows an event on port `errors` does not hold."""
        return self._without_rows.get((name, ssn), []) if port == ERRORS else []
