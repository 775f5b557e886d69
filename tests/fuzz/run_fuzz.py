"""Thousands of random programs through every flattening and version on a device, against the interpreter.

    python tests/fuzz/run_fuzz.py --count 3000 --target cpu
    python tests/fuzz/run_fuzz.py --minutes 20 --target opencl --keep /tmp/failures
    python tests/fuzz/run_fuzz.py --first 1234 --count 1          (one trial again)

Trials run in a process of their own, so that one in which a device's compiler crashes or hangs is counted and does not
end the run. Each failure is printed with its program and arguments, made smaller if that is possible; `--keep` writes
it to a file. The first number is drawn by chance if it is not given, and printed. Exits with 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent.parent
SECONDS_PER_TRIAL = 300.0


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--target", default="cpu", help="a device: cpu, opencl, cuda, ...")
    parser.add_argument("--first", type=int, help="number of the first trial (default: by chance)")
    parser.add_argument("--count", type=int, default=10**9, help="how many trials at most")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="for how long at most")
    parser.add_argument("--keep", type=Path, help="a folder for the failures")
    parser.add_argument("--as-it-is", action="store_true", help="do not make failing programs smaller")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


# --- the process in which trials run ----------------------------------------------------------------------------------


def tell(**message: object) -> None:
    """One line for the process that started this one."""
    print(json.dumps(message), flush=True)


def work(target: str, first: int, count: int, smaller: bool) -> None:
    """Run trials and tell of each: that it starts, and how it went."""
    sys.path[:0] = [str(TESTS / "passes"), str(TESTS / "fuzz")]
    from fuzz_shrink import shrunk
    from fuzz_trials import Counts, make_trial, run_trial

    from tilewright.runtime.devices import device_for

    device = device_for(target)
    for number in range(first, first + count):
        tell(trial=number)
        counts = Counts()
        failure = run_trial(make_trial(number), device, counts)
        if failure is not None:
            tell(problem=failure.way + ": " + failure.problem, text=str(failure))
            if smaller:
                tell(smaller=str(shrunk(failure, device)))
        tell(done=number, counts={name: value for name, value in vars(counts).items() if name != "trials"})


# --- the process that looks after it ----------------------------------------------------------------------------------


def messages(command: list[str], environment: dict[str, str]) -> Iterator[dict[str, object]]:
    """What a worker tells; at last `code`, how it ended. It is stopped when it is silent for too long."""
    with tempfile.TemporaryFile("w+") as errors:
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        assert worker.stdout is not None
        lines: queue.Queue[str | None] = queue.Queue()
        stream = worker.stdout

        def read() -> None:
            for line in stream:
                lines.put(line)
            lines.put(None)

        threading.Thread(target=read, daemon=True).start()
        try:
            while (line := lines.get(timeout=SECONDS_PER_TRIAL)) is not None:
                if line.startswith("{"):
                    yield json.loads(line)
        except queue.Empty:
            errors.write(f"silent for {SECONDS_PER_TRIAL:.0f} seconds\n")
        finally:
            worker.kill()
            worker.wait()
        errors.seek(0)
        yield {"code": worker.returncode, "errors": errors.read()[-2000:]}


def main() -> int:
    """Run workers until all trials are done or the time is up."""
    given = arguments()
    first = random.SystemRandom().randrange(10**8) if given.first is None else given.first
    if given.worker:
        work(given.target, first, given.count, not given.as_it_is)
        return 0
    print(f"trials from {first} on {given.target}", flush=True)
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
    started, totals = time.monotonic(), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="tilewright-fuzz-") as cache:
        environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": cache, "PYOPENCL_NO_CACHE": "1"}
        following, end = first, first + given.count
        while following < end and time.monotonic() - started < 60 * given.minutes:
            following = _one_worker(given, following, end, started, environment, totals)
    print(f"{dict(totals)} in {(time.monotonic() - started) / 60:.1f} minutes, trials {first} to {following - 1}")
    return 1 if totals["failures"] or totals["crashes"] else 0


def _one_worker(
    given: argparse.Namespace,
    following: int,
    end: int,
    started: float,
    environment: dict[str, str],
    totals: Counter[str],
) -> int:
    """Run trials from `following` on until the end, the time is up, or a crash; the number of the next trial."""
    command = [sys.executable, __file__, "--worker", "--target", given.target, "--first", str(following)]
    command += ["--count", str(min(500, end - following))] + (["--as-it-is"] if given.as_it_is else [])
    running: int | None = None
    problem: str | None = None
    for message in messages(command, environment):
        if "trial" in message:
            running, problem = int(str(message["trial"])), None
        if "problem" in message:
            totals["failures"] += 1
            problem = str(message["problem"])
            _report(given, running, problem, str(message["text"]))
        if "smaller" in message:
            _report(given, running, "made smaller", str(message["smaller"]))
        if "done" in message:
            running, following = None, int(str(message["done"])) + 1
            totals["trials"] += 1
            totals.update(dict(message["counts"]))  # type: ignore[call-overload]
            if totals["trials"] % 100 == 0:
                print(f"{dict(totals)} after {(time.monotonic() - started) / 60:.1f} minutes", flush=True)
            if time.monotonic() - started > 60 * given.minutes:
                return following
        if "code" in message and running is not None:
            if problem is None:
                totals["crashes"] += 1
                _report(given, running, f"the process ended with {message['code']}", str(message["errors"]))
            following = running + 1
    if running is None and following < end and "code" in message and message["code"] not in (0, -9):
        raise SystemExit(f"no trial could be run: {message['errors']}")
    return following


def _report(given: argparse.Namespace, number: int | None, problem: str, text: str) -> None:
    print(f"--- trial {number} on {given.target}: {problem}\n{text}\n", flush=True)
    if given.keep:
        with open(given.keep / f"{given.target}-{number}.txt", "a") as file:
            file.write(f"{problem}\n{text}\n\n")


if __name__ == "__main__":
    sys.exit(main())
