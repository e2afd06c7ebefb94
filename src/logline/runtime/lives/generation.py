"""Generation runners: they run `generate`, each kind of user code where it belongs (Algorithm 3).

- `InlineRunner`: plain code, one set at a time, on the engine's own thread. A `ctx.call` in it makes the engine
  commit there and then (`await_durable`).
- `ThreadRunner`: plain code, several sets at once, each on a thread that may block.
- `AsyncRunner`: `async def`, any number of sets at once on one event loop.

What comes of it is reported as stimuli. A slow set does not hold back the ones before it: results are
reported as they come when a run takes long.

After `stop` a runner begins no set, and no call of one that runs (`runtime/lives/calls_in_flight.py`). Code on a
thread or an event loop that wants to make a call waits where it is: an exception could make it cancel the calls
beside it, whose answers are wanted. Plain code on the engine's own thread can't wait, and gets `Abandoned`.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Collection, Iterable, Sequence
from types import GeneratorType
from typing import Any, NoReturn, Protocol, cast

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.events import Output
from logline.engine.phase_context import Services
from logline.engine.phases import Phases
from logline.engine.results import Produced, Result
from logline.engine.set_state import SetState
from logline.engine.sets import Answer, Member, own_id
from logline.engine.spec import write_port
from logline.engine.user_errors import USER_ERRORS, failure_of
from logline.errors import Abandoned, KilledItsProcess, LogError, SessionGone
from logline.graph.operator import BatchOperator, Made, Operator, Write, is_tabular
from logline.names import ChannelName, InsetId, Serial
from logline.runtime.lives.calls import SetCalls
from logline.runtime.lives.calls_in_flight import CallInFlight, CallsInFlight
from logline.runtime.lives.context import Gate, SetContext
from logline.runtime.lives.daemon_threads import DaemonThreads
from logline.runtime.lives.gates import BlockingGate, Key, Report, Waits, key_of
from logline.runtime.lives.payloads import Payloads
from logline.runtime.lives.suspects import Suspects

Task = tuple[InsetId, SetState, Iterable[Member]]
"""A set, and all of its members for whoever asks."""
"""The set that is generated, with its id."""
SLICE = 0.05
"""Seconds that a wait of plain code lasts at most before it looks for a stop."""


class GenerationRunner(Protocol):
    """Runs the `generate` of sets, and reports what came of each."""

    def start(self, jobs: Sequence[do.Job]) -> None: ...

    def permit(self, key: Key) -> None: ...

    def release(self, answers: Sequence[Answer]) -> None: ...

    def close(self) -> None:
        """Ends whatever still runs; it reports nothing any more."""


class Generation:
    """What all runners share: from a job to a context, from what is yielded to a result."""

    def __init__(
        self,
        op: Operator[Any, Any],
        phases: Phases,
        services: Services,
        payloads: Payloads,
        report: Report,
        retry_on: tuple[type[BaseException], ...],
        suspects: Suspects | None = None,
        raised: Callable[[BaseException], None] = lambda error: None,
        changed: Collection[ChannelName] = (),
    ) -> None:
        """`raised` hears of what user code raises. `changed`: channels whose events are not as their senders logged
        them."""
        self.op = op
        self.phases = phases
        self.services = services
        self.payloads = payloads
        self.report = report
        self.retry_on = retry_on
        self.suspects = suspects
        self.raised = raised
        self.calls = CallsInFlight(lambda serial: report(on.Interrupted((serial,))))
        spec = phases.spec
        passing = {str(target): write_port(target) for target in spec.targets} if spec.stateless else {}
        self._passing = {target: port for target, port in passing.items() if port not in spec.keep}
        """Targets whose writes may pass an event on as it is. One that stays in the log has to be there itself."""
        self._changed = changed

    def begin(self, job: do.Job, gate: Gate) -> tuple[Task, Any]:
        """Calls `generate`; nothing of a generator runs yet."""
        known = self.phases.sets[job.serial]
        inset = known.name()
        calls: SetCalls = known.calls or SetCalls()
        known.calls = calls
        calls.begin(job.answers)
        known.keys = self.phases.view_keys(job.serial, job.cause)
        ctx = SetContext(
            self.phases, self.services, gate, job.serial, inset, known.digest, job.cause, calls, calls.attempt
        )
        ctx.view = known.keys
        if self.suspects is not None:
            self.suspects.begin(job.serial, inset, ctx.id.rpartition("/")[2])
        members = self.services.all_members(job.serial, known) if known.covered else known.members
        return (inset, known, members), self.op.generate(inset, known.acc, ctx)

    def collect(self, task: Task, made: Any) -> list[Produced]:
        """What a plain `generate` yields, as outputs."""
        inset, known, members = task
        if known.came is not None:
            found = [self._of_one(known.came, known.members[0], one, known.calls) for one in self._plain(made)]
        else:
            found = [self.payloads.made(inset, one, members, known.calls) for one in self._plain(made)]
        return _whatever_leaves(found)

    def _of_one(self, came: Output, member: Member, made: Made, calls: SetCalls | None = None) -> Produced | None:
        """What a set of one event made. A write of the very batch that came is known by its event."""
        if (
            type(made) is Write
            and made.data is came.payload
            and (port := self._passing.get(made.to)) is not None
            and member.channel not in self._changed
        ):
            return Produced(port, came.payload, came.rows, came.nbytes, member)
        return self.payloads.made(own_id(member), made, (member,), calls)

    def apply(self, run: Sequence[tuple[ChannelName, Output]]) -> on.Applied:
        """Generates a run of events as they are taken in, up to the first that fails, or to a stop."""
        assert isinstance(self.op, BatchOperator)
        each, of_one = self.op.each, self._of_one
        made: list[list[Produced]] = []
        failure = None
        try:
            for channel, event in run:
                if self.calls.stopping:
                    break
                member = Member(channel, event.ssn)
                made.append(_whatever_leaves([of_one(event, member, one) for one in each(event.payload)]))
        except USER_ERRORS as error:
            self.raised(error)
            failure = failure_of(error, self.retry_on)
        first, rest, intake = self.phases.applied(run, len(made))
        return on.Applied(first, made, rest, failure, intake)

    def _plain(self, made: Any) -> Iterable[Made]:
        if type(made) is GeneratorType:
            return made
        if made is None:
            return ()
        if isinstance(made, Iterable) and not is_tabular(made):
            return made
        raise TypeError(
            f"{type(self.op).__name__}.generate() must yield batches, Emit, Write or Reject (or return an iterable)"
        )

    def committed(self, answer: Answer) -> None:
        """The answer of a call is durable; of a set that is over, nobody asks."""
        if (known := self.phases.sets.get(answer.serial)) is not None and known.calls is not None:
            known.calls.committed(answer)

    def alone(self) -> bool:
        """Whether one set at a time is generated for now."""
        return self.suspects is not None and self.suspects.alone

    def outcome(self, serial: Serial, outputs: Iterable[Produced], error: BaseException | None = None) -> on.Stimulus:
        """What to report of a set whose code has come to its end."""
        if self.calls.refused(serial):
            return on.Interrupted((serial,))
        return on.Generated([self.done(serial, outputs) if error is None else self.failed(serial, error)])

    def done(self, serial: Serial, outputs: Iterable[Produced]) -> Result:
        """The set is generated; its event state is not needed any more."""
        if self.suspects is not None:
            self.suspects.end(serial)
        known, keyed = self.phases.sets.get(serial), None
        if known is not None and known.calls is not None:
            known.calls.attempt.end()
        if known is not None and known.keys is not None:
            keyed = self.phases.take_keys(known.keys)
        self.phases.drop(serial)
        return Result(serial, tuple(outputs), keyed=keyed)

    def failed(self, serial: Serial, error: BaseException) -> Result:
        """The result of a set whose user code raised; it says whether `retry` covers the exception."""
        self.raised(error)
        if (known := self.phases.sets.get(serial)) is not None:
            known.spent = True
            if known.calls is not None:
                known.calls.attempt.end()
        if self.suspects is not None:
            self.suspects.end(serial)
        retry_on = () if isinstance(error, KilledItsProcess) else self.retry_on
        return Result(serial, failure=failure_of(error, retry_on), blameless=isinstance(error, SessionGone))


def _whatever_leaves(found: list[Produced | None]) -> list[Produced]:
    return [one for one in found if one is not None] if None in found else cast("list[Produced]", found)


class InlineRunner:
    """Plain code on the engine's own thread."""

    def __init__(
        self, generation: Generation, await_durable: Callable[[on.Stimulus, Key], None], *, announced: bool
    ) -> None:
        self._generation = generation
        self._await_durable = await_durable
        self._announced = announced
        self._results: list[Result] = []

    def start(self, jobs: Sequence[do.Job]) -> None:
        generation, results, calls = self._generation, self._results, self._generation.calls
        left: list[Serial] = []
        for job in jobs:
            serial = job.serial
            if calls.stopping:
                left.append(serial)
                continue
            try:
                outputs = generation.collect(*generation.begin(job, self))
            except LogError:
                raise  # the life is over (fenced), whatever user code would make of it
            except USER_ERRORS as error:
                if calls.refused(serial):
                    left.append(serial)
                else:
                    results.append(generation.failed(serial, error))
            else:
                if calls.refused(serial):
                    left.append(serial)
                else:
                    results.append(generation.done(serial, outputs))
        self._flush()
        if left:
            generation.report(on.Interrupted(tuple(left)))

    def _flush(self) -> None:
        """What is finished need not wait for a call of a later set."""
        if self._results:
            results = list(self._results)
            self._results.clear()
            self._generation.report(on.Generated(results))

    def is_async(self) -> bool:
        return False

    def want(self, serial: Serial, row: int, n: int) -> CallInFlight:
        calls = self._generation.calls
        if self._announced and not calls.stopping:
            self._flush()
            self._await_durable(on.CallWanted(serial, row, n), (serial, row, n))
        return calls.begin(serial) or self._cut_off(serial)

    def _cut_off(self, serial: Serial) -> NoReturn:
        self._generation.calls.refuse(serial)
        raise Abandoned

    def pause(self, serial: Serial, seconds: float) -> None:
        """Blocks the engine's own thread, as the code's own waiting would."""
        until = time.monotonic() + seconds
        while not self._generation.calls.stopping and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, SLICE))
        if self._generation.calls.stopping:
            self._cut_off(serial)

    def keep(self, answer: Answer) -> None:
        self._flush()
        self._await_durable(on.Answered(answer), key_of(answer))

    async def want_async(self, serial: Serial, row: int, n: int) -> CallInFlight:
        raise AssertionError("plain code does not await")

    async def pause_async(self, serial: Serial, wait: Awaitable[Any]) -> Any:
        raise AssertionError("plain code does not await")

    async def keep_async(self, answer: Answer) -> None:
        raise AssertionError("plain code does not await")

    def permit(self, key: Key) -> None:
        """Does nothing: the driver's `await_durable` sees the permission itself."""

    def follow(self, answer: Answer, is_pending: Callable[[], bool]) -> None:
        raise AssertionError("there is one try at a time on the engine's own thread")

    async def follow_async(self, answer: Answer, is_pending: Callable[[], bool]) -> None:
        raise AssertionError("plain code does not await")

    def release(self, answers: Sequence[Answer]) -> None:
        """Wakes nobody: the driver's `await_durable` sees the answers themselves."""
        for answer in answers:
            self._generation.committed(answer)

    def close(self) -> None:
        """Nothing runs when the engine's thread is here."""


class ThreadRunner:
    """Plain code, several sets at once."""

    def __init__(self, generation: Generation, *, concurrency: int, announced: bool) -> None:
        self._generation = generation
        self._waits = Waits()
        self._gate = BlockingGate(self._waits, generation.report, generation.calls, announced=announced)
        self._threads = DaemonThreads(concurrency, f"generate-{generation.phases.spec.name}")
        self._jobs: deque[do.Job] = deque()
        self._turn = threading.Lock()

    def start(self, jobs: Sequence[do.Job]) -> None:
        self._jobs.extend(jobs)
        for _ in jobs:
            self._threads.submit(self._run)

    def _run(self) -> None:
        """Takes the oldest job, whoever has the turn: a lock gives it to anyone, and a set that has to be found
        should not wait behind those after it."""
        if self._generation.alone() and self._my_turn():
            try:
                if self._waits.closed:
                    return
                if self._generation.alone():
                    self._run_one(self._jobs.popleft())
                    return
            finally:
                self._turn.release()
        self._run_one(self._jobs.popleft())

    def _my_turn(self) -> bool:
        """Waits for it; False after a stop, when whoever has it may keep it."""
        while not self._turn.acquire(timeout=SLICE):
            if self._generation.calls.stopping:
                return False
        return True

    def _run_one(self, job: do.Job) -> None:
        generation, serial = self._generation, job.serial
        if generation.calls.stopping:
            generation.report(on.Interrupted((serial,)))
            return
        try:
            outputs = generation.collect(*generation.begin(job, self._gate))
        except Abandoned:
            return
        except USER_ERRORS as error:
            generation.report(generation.outcome(serial, (), error))
        else:
            generation.report(generation.outcome(serial, outputs))

    def permit(self, key: Key) -> None:
        self._waits.wake(key)

    def release(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            self._generation.committed(answer)  # first: who asks in between must not wait for it
            self._waits.wake(key_of(answer))

    def close(self) -> None:
        self._waits.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


class AsyncRunner:
    """`async def generate` on an event loop, which the owner runs: on a thread of its own, or step by step."""

    def __init__(self, generation: Generation, loop: asyncio.AbstractEventLoop, *, announced: bool) -> None:
        self._generation = generation
        self._loop = loop
        self._waits = Waits()
        self._announced = announced
        self._blocking = BlockingGate(self._waits, generation.report, generation.calls, announced=announced)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop_thread: int | None = None
        self._turn = asyncio.Lock()

    def start(self, jobs: Sequence[do.Job]) -> None:
        self._loop.call_soon_threadsafe(self._begin, tuple(jobs))

    def _begin(self, jobs: tuple[do.Job, ...]) -> None:
        self._loop_thread = threading.get_ident()
        if self._waits.closed:
            return
        if self._generation.calls.stopping:
            self._generation.report(on.Interrupted(tuple(job.serial for job in jobs)))
            return
        for job in jobs:
            task = self._loop.create_task(self._run(job))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, job: do.Job) -> None:
        if self._generation.alone():
            with self._generation.calls.waiting(job.serial):
                await self._turn.acquire()
            try:
                if self._generation.alone():
                    await self._run_one(job)
                    return
            finally:
                self._turn.release()
        await self._run_one(job)

    async def _run_one(self, job: do.Job) -> None:
        generation = self._generation
        if generation.calls.stopping:  # it has waited for its turn
            generation.report(on.Interrupted((job.serial,)))
            return
        outputs: list[Produced] = []
        try:
            task, made = generation.begin(job, self)
            if inspect.isawaitable(made):
                made = await made
            if isinstance(made, AsyncIterable):
                inset, known, members = task
                calls, to_produced = known.calls, generation.payloads.made
                outputs = _whatever_leaves([to_produced(inset, one, members, calls) async for one in made])
            else:
                outputs = generation.collect(task, made)
        except USER_ERRORS as error:
            # Once it is closed, what comes is its own doing: tasks are cancelled, waiting calls abandoned. Before
            # that a cancellation is user code's, like any other error.
            if not self._waits.closed:
                generation.report(generation.outcome(job.serial, (), error))
        else:
            if not self._waits.closed:
                generation.report(generation.outcome(job.serial, outputs))

    def is_async(self) -> bool:
        return threading.get_ident() == self._loop_thread

    def want(self, serial: Serial, row: int, n: int) -> CallInFlight:
        return self._blocking.want(serial, row, n)

    def pause(self, serial: Serial, seconds: float) -> None:
        self._blocking.pause(serial, seconds)

    def keep(self, answer: Answer) -> None:
        self._blocking.keep(answer)

    async def want_async(self, serial: Serial, row: int, n: int) -> CallInFlight:
        calls = self._generation.calls
        if self._announced:
            with calls.waiting(serial):
                await self._await((serial, row, n), on.CallWanted(serial, row, n))
        return calls.begin(serial) or await self._cut_off(serial)

    async def pause_async(self, serial: Serial, wait: Awaitable[Any]) -> Any:
        calls = self._generation.calls
        with calls.waiting(serial):
            found = await wait
        return await self._cut_off(serial) if calls.stopping else found

    async def _cut_off(self, serial: Serial) -> NoReturn:
        """Waits for the end of the life, which cancels it."""
        woken = self._loop.create_future()

        def wake() -> None:
            self._loop.call_soon_threadsafe(_wake_once, woken)

        self._waits.cut_off(wake)
        with self._generation.calls.waiting(serial):
            await woken
        raise Abandoned

    async def keep_async(self, answer: Answer) -> None:
        await self._await(key_of(answer), on.Answered(answer))

    def follow(self, answer: Answer, is_pending: Callable[[], bool]) -> None:
        self._blocking.follow(answer, is_pending)

    async def follow_async(self, answer: Answer, is_pending: Callable[[], bool]) -> None:
        await self._await(key_of(answer), None, is_pending)

    async def _await(self, key: Key, stimulus: on.Stimulus | None, still: Callable[[], bool] = lambda: True) -> None:
        woken = self._loop.create_future()

        def wake() -> None:
            self._loop.call_soon_threadsafe(_wake_once, woken)

        self._waits.add(key, wake)
        if stimulus is not None:
            self._generation.report(stimulus)
        if not still():
            self._waits.wake(key)
        await woken
        if self._waits.closed:
            raise Abandoned

    def permit(self, key: Key) -> None:
        self._waits.wake(key)

    def release(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            self._generation.committed(answer)  # first: who asks in between must not wait for it
            self._waits.wake(key_of(answer))

    def close(self) -> None:
        self._waits.close()
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()


def _wake_once(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


def is_async(op: Operator[Any, Any]) -> bool:
    """Whether `generate` is an `async def`."""
    return inspect.isasyncgenfunction(op.generate) or inspect.iscoroutinefunction(op.generate)
