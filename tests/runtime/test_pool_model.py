"""The thread pool's protocol (`runtime/cpu_driver.py`, `cpu_worker.py`, `cpu_fetch.py`), in all interleavings.

The names are those of the pool's memory and of the blocks of its LLVM text. A step is one access to that memory: an
atomic load, store or exchange, or a call of the mutex and the conditions. Times do not count: who looks for something
for a while and then goes to sleep may do the one or the other.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from interleavings import END, State, Step, Wrong, explore, ordered, store

BLOCKS = 2
Job = tuple[str, int]


def start(launches: dict[str, int], workers: list[str]) -> State:
    """The pool before anything happens, and what its threads keep to themselves."""
    pool = {"TICKETS": 0, "COUNTER": (0, 0), "FINISHED": 0, "JOB": None, "PARKED": 0, "STOP": 0, "MUTEX": "",
            "CONDITION": (), "BUSY": 0, "WAITING": 0, "ENDED": (), "CALLER": "", "MOVING": 0}  # fmt: skip
    own = {f"{one}.{name}": value for one in launches for name, value in
           (("left", launches[one]), ("wakes", 0), ("joined", 0), ("block", 0))}  # fmt: skip
    own |= {f"{one}.{name}": value for one in workers for name, value in
            (("present", 0), ("job", None), ("block", 0), ("caller", ""))}  # fmt: skip
    return pool | own | {"ran": frozenset(), "returned": frozenset()}


def lock(me: str, then: str) -> Step:
    def step(s: State) -> str | None:
        if s["MUTEX"]:
            return None
        s["MUTEX"] = me
        return then

    return step


def unlock(me: str, then: str) -> Step:
    def step(s: State) -> str:
        assert s["MUTEX"] == me, f"{me} gives back a mutex that it does not have"
        s["MUTEX"] = ""
        return then

    return step


def wait(me: str, condition: str, then: str) -> Step:
    """The first half of `pthread_cond_wait`."""

    def step(s: State) -> str:
        s["MUTEX"], s[condition] = "", (*s[condition], me)
        return then

    return step


def sleep(me: str, condition: str, then: str) -> Step:
    """The second half of it."""
    return lambda s: None if me in s[condition] else lock(me, then)(s)


def signal(condition: str, then: str) -> Step:
    def step(s: State) -> str:
        s[condition] = s[condition][1:]
        return then

    return step


def run_block(s: State, job: Job, block: int) -> None:
    assert job not in s["returned"], f"block {block} of {job} runs after its launch has returned"
    assert (job, block) not in s["ran"], f"block {block} of {job} runs twice"
    s["ran"] |= {(job, block)}


def run_chunks(me: str, from_end: Callable[[State], bool], job: Callable[[State], Job], then: str) -> dict[str, Step]:
    def take(s: State) -> str | None:
        if "COUNTER" in dict(s[f"{me}.stores"]):
            return None  # an exchange comes after the own stores to the same place
        at_start, at_end = s["COUNTER"]
        if at_start + at_end >= BLOCKS:
            return then
        last = from_end(s)
        s[f"{me}.block"] = BLOCKS - 1 - at_end if last else at_start
        s["COUNTER"] = (at_start, at_end + 1) if last else (at_start + 1, at_end)
        return "run"

    def run(s: State) -> str:
        run_block(s, job(s), s[f"{me}.block"])
        return "take"

    return {"take": take, "run": run}


def launcher(me: str, offered: int, stops: bool, change: str) -> dict[str, Step]:
    """A thread that launches a few times, one after the other, and then (if it is to) closes the pool."""

    def job(s: State) -> Job:
        return me, s[f"{me}.left"]

    def enter(s: State) -> str:
        if s[f"{me}.left"] == 0:
            return "stop" if stops else END
        if s["BUSY"]:
            return "serial"
        s["BUSY"] = 1
        return "parallel"

    def serial(s: State) -> str:
        for block in range(BLOCKS):
            run_block(s, job(s), block)
        s["returned"] |= {job(s)}
        s[f"{me}.left"] -= 1
        return "enter"

    def parallel(s: State) -> str:
        for name, value in (("JOB", job(s)), ("COUNTER", (0, 0)), ("FINISHED", 0), ("CALLER", me)):
            store(s, me, name, value)
        return "offer"

    def offer(s: State) -> str:
        if change == "tickets without order":
            store(s, me, "TICKETS", offered)
        else:
            s["TICKETS"] = offered
        return "sleepers"

    def sleepers(s: State) -> str:
        s[f"{me}.wakes"] = min(s["PARKED"], offered)
        return "ring" if s[f"{me}.wakes"] else "take"

    def signal_workers(s: State) -> str:
        s[f"{me}.wakes"] -= 1
        return signal("CONDITION", "signal" if s[f"{me}.wakes"] else "take")(s)

    def work_ended(s: State) -> str:
        s[f"{me}.joined"] = offered - s["TICKETS"]
        s["TICKETS"] = 0
        return "wait"

    def is_reported(s: State) -> bool:
        return bool(s["FINISHED"] >= s[f"{me}.joined"])

    def wait_for_workers(s: State) -> str:
        return "exit" if is_reported(s) or change == "waits for nobody" else "lie.down"

    def waiting(s: State) -> str:
        s["WAITING"] = 1
        return "wait.ended" if change == "looks before it says that it waits" else "asleep"

    def lie_down(s: State) -> str | None:
        if change == "looks before it says that it waits":
            return lock(me, "looked")(s)
        return lock(me, "waiting")(s)

    def looked(s: State) -> str:
        return "awake" if is_reported(s) else "waiting"

    def asleep(s: State) -> str:
        return "awake" if is_reported(s) else "wait.ended"

    def awake(s: State) -> str:
        s["WAITING"] = 0
        return "awake.unlock"

    def leave_caller(s: State) -> str:
        s["CALLER"] = ""
        s["returned"] |= {job(s)}
        ran = {block for one, block in s["ran"] if one == job(s)}
        assert len(ran) == BLOCKS, f"the launch {job(s)} returns when blocks {ran} have run"
        return "leave" if change == "leaves while it is moved" else "moved"

    def leave(s: State) -> str:
        s["BUSY"] = 0
        s[f"{me}.left"] -= 1
        return "enter"

    def stop(s: State) -> str:
        s["STOP"] = 1
        return "stop.broadcast" if change == "stops without the mutex" else "stop.lock"

    def broadcast(s: State) -> str:
        s["CONDITION"] = ()
        return END

    steps: dict[str, Step] = {
        "enter": enter, "serial": serial, "parallel": parallel, "offer": offer, "sleepers": sleepers,
        "ring": lock(me, "rung"), "rung": unlock(me, "signal"), "signal": signal_workers,
        **run_chunks(me, lambda s: False, job, "left"), "left": work_ended, "wait": wait_for_workers,
        "lie.down": lie_down, "looked": looked, "waiting": waiting, "asleep": asleep,
        "wait.ended": wait(me, "ENDED", "sleep"), "sleep": sleep(me, "ENDED", "asleep"),
        "awake": awake, "awake.unlock": unlock(me, "exit"),
        "exit": leave_caller, "moved": lambda s: None if s["MOVING"] else "leave", "leave": leave,
        "stop": stop, "stop.lock": lock(me, "stop.unlock"), "stop.unlock": unlock(me, "stop.broadcast"),
        "stop.broadcast": broadcast,
    }  # fmt: skip
    seq_cst = {"offer", "sleepers", "left", "waiting", "exit", "stop", "leave"}
    if change == "tickets without order":
        seq_cst -= {"offer", "sleepers"}
    return {name: ordered(step, me) if name in seq_cst else step for name, step in steps.items()}


def worker(me: str, change: str, helps: bool) -> dict[str, Step]:
    """A worker of the pool, until it is stopped; it may be one that never asks for the launcher."""

    def look(s: State) -> str:
        return END if s["STOP"] else "seek"

    def seek(s: State) -> str | tuple[str, ...]:
        return "claim" if s["TICKETS"] > 0 else ("look", "park", "help" if helps else "look")

    def help_launcher(s: State) -> str:
        s[f"{me}.caller"] = s["CALLER"]
        return "help.awake" if s["CALLER"] else "look"

    def enter_move(s: State) -> str:
        if s["MOVING"]:
            return "look"
        s["MOVING"] = 1
        return "help.ask"

    def ask(s: State) -> str:
        return "help.try" if s["CALLER"] == s[f"{me}.caller"] else "help.leave"

    def fetch(s: State) -> str:
        at = s[f"{s[f'{me}.caller']}.at"]
        assert at not in ("leave", "enter", "serial", "stop", END), f"a thread is moved that is at {at}"
        return "help.leave"

    def leave_move(s: State) -> str:
        s["MOVING"] = 0
        return "look"

    def parked(s: State) -> str:
        s["PARKED"] += 1
        return "asleep.offered"

    def awake(s: State) -> str:
        s["PARKED"] -= 1
        return "awake.unlock"

    def claim(s: State) -> str:
        s[f"{me}.present"] = s["TICKETS"]
        return "take.ticket" if s["TICKETS"] > 0 else "look"

    def take_ticket(s: State) -> str:
        if s["TICKETS"] != s[f"{me}.present"]:
            return "claim"
        s["TICKETS"] -= 1
        return "read.job"

    def read_job(s: State) -> str:
        assert s["JOB"] is not None, "a worker joins a launch that has not said what it is"
        s[f"{me}.job"] = s["JOB"]
        return "take"

    def finished(s: State) -> str:
        s["FINISHED"] += 1
        return "reported" if change == "reports to nobody" else "awaited"

    def done(s: State) -> str:
        s[f"{me}.job"], s[f"{me}.present"] = None, 0
        return "look"

    return {
        "look": look, "seek": seek,
        "help": help_launcher, "help.awake": lambda s: "look" if s["WAITING"] else "help.enter",
        "help.enter": enter_move, "help.ask": ask, "help.try": fetch, "help.leave": leave_move,
        "park": lock(me, "parked"), "parked": parked,
        "asleep.offered": lambda s: "awake" if s["TICKETS"] > 0 else "asleep.stopped",
        "asleep.stopped": lambda s: "awake" if s["STOP"] else "wait",
        "wait": wait(me, "CONDITION", "sleep"), "sleep": sleep(me, "CONDITION", "awake"),
        "awake": awake, "awake.unlock": unlock(me, "claim"), "claim": claim, "take.ticket": take_ticket,
        "read.job": read_job,
        **run_chunks(me, lambda s: s[f"{me}.present"] % 2 == 1, lambda s: s[f"{me}.job"], "done"),
        "done": finished, "awaited": lambda s: "report" if s["WAITING"] else "reported",
        "report": lock(me, "report.unlock"), "report.unlock": unlock(me, "report.signal"),
        "report.signal": signal("ENDED", "reported"), "reported": done,
    }  # fmt: skip


def states(launches: dict[str, int], workers: int, change: str = "", helps: bool = True) -> int:
    """Explore; how many states there are."""
    names = [f"worker {number}" for number in range(workers)]
    first = next(iter(launches))
    programs: dict[str, dict[str, Step]] = {
        one: launcher(one, workers, stops=one == first, change=change) for one in launches
    }
    programs |= {one: worker(one, change, helps) for one in names}
    return explore(start(launches, names), programs)


@pytest.mark.parametrize(
    "launches, workers, helps",
    [
        pytest.param({"first": 3}, 1, True, id="launches in a row"),
        pytest.param({"first": 1}, 2, False, id="two workers"),
        pytest.param({"first": 1, "second": 1}, 1, False, id="two launchers"),
        pytest.param({"first": 1}, 2, True, id="two workers that help", marks=pytest.mark.slow),
        pytest.param({"first": 1, "second": 1}, 1, True, id="two launchers with help", marks=pytest.mark.slow),
        pytest.param({"first": 2}, 2, False, id="two workers twice", marks=pytest.mark.slow),
    ],
)
def test_each_block_runs_once_and_nobody_waits_for_ever(launches: dict[str, int], workers: int, helps: bool) -> None:
    assert states(launches, workers, helps=helps) > 1000


@pytest.mark.parametrize(
    "change, what",
    [
        ("tickets without order", "runs after its launch has returned|has not said what it is|runs twice"),
        ("waits for nobody", "returns when blocks"),
        ("looks before it says that it waits", "end cannot be reached"),
        ("leaves while it is moved", "a thread is moved that is at"),
        ("stops without the mutex", "end cannot be reached"),
        ("reports to nobody", "end cannot be reached"),
    ],
)
def test_what_would_be_wrong_is_found(change: str, what: str) -> None:
    with pytest.raises(Wrong, match=what):
        states({"first": 2}, 1, change)
