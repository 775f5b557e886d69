"""Thousands of random programs through every flattening and version on a device, against the interpreter.

    python tests/fuzz/run_fuzz.py --count 3000 --target cpu --workers 2
    python tests/fuzz/run_fuzz.py --minutes 20 --target opencl --keep /tmp/failures
    python tests/fuzz/run_fuzz.py --contractions --count 2000     (of contractions, in place of programs)
    python tests/fuzz/run_fuzz.py --numpy --count 2000            (of NumPy's functions, also against NumPy)
    python tests/fuzz/run_fuzz.py --extremes --count 2000         (of numbers at the ends of their types, bit for bit)
    python tests/fuzz/run_fuzz.py --large --count 500             (of large arrays, against themselves)
    python tests/fuzz/run_fuzz.py --rewrites --count 2000         (of the passes alone, by the interpreter)
    python tests/fuzz/run_fuzz.py --bf16 --count 500              (of programs that compute on bf16)
    python tests/fuzz/run_fuzz.py --target cuda-emulated --count 1000     (CUDA's text, without a GPU)
    python tests/fuzz/run_fuzz.py --target cuda-races --count 200         (the same, watched for data races)
    python tests/fuzz/run_fuzz.py --target cpu-small              (caches so small that small arrays are large ones)
    python tests/fuzz/run_fuzz.py --guarded --count 500           (no byte outside of an array may be touched)
    python tests/fuzz/run_fuzz.py --first 1234 --count 1          (one trial again)

Trials run in processes of their own, so that one in which a device's compiler crashes or hangs is counted and does not
end the run; one takes a third of a second of processor time in the mean (CPU, Zen 4). Each failure is printed with its
program and arguments, made smaller if that is possible; `--keep` writes it to a file. The first number is drawn by
chance if it is not given, and printed. At last a table tells which rules and modules of the passes the trials went
through. Exits with 1 if anything failed, or if a long run has not reached all that it is there for.
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
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent
SECONDS_PER_TRIAL = 300.0
TRIALS_PER_WORKER = 100


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--target",
        default="cpu",
        help="a device (cpu, opencl, cuda, ...) or one of fuzz_emulated: cpu-small, cuda-races",
    )
    parser.add_argument("--first", type=int, help="number of the first trial (default: by chance)")
    parser.add_argument("--count", type=int, default=10**9, help="how many trials at most")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="for how long at most")
    parser.add_argument("--workers", type=int, default=1, help="how many processes run trials at the same time")
    parser.add_argument("--keep", type=Path, help="a folder for the failures")
    parser.add_argument("--contractions", action="store_true", help="random contractions in place of programs")
    parser.add_argument("--numpy", action="store_true", help="random programs of NumPy's functions")
    parser.add_argument("--extremes", action="store_true", help="numbers at the ends of their types, against NumPy")
    parser.add_argument("--large", action="store_true", help="arrays too large for the interpreter")
    parser.add_argument("--rewrites", action="store_true", help="the passes alone; nothing is compiled")
    parser.add_argument("--bf16", action="store_true", help="programs that compute on bf16, which needs ml_dtypes")
    parser.add_argument("--guarded", action="store_true", help="arrays between pages that nobody may touch")
    parser.add_argument("--as-it-is", action="store_true", help="do not make failing programs smaller")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


# --- the process in which trials run ----------------------------------------------------------------------------------


def tell(**message: object) -> None:
    """One line for the process that started this one."""
    print(json.dumps(message), flush=True)


def work(given: argparse.Namespace) -> None:
    """Run trials and tell of each: that it starts, and how it went."""
    sys.path[:0] = [str(TESTS / folder) for folder in ("passes", "fuzz", "frontend", "kernel")]
    import fuzz_contractions
    import fuzz_extremes
    import fuzz_large
    import fuzz_numpy
    import fuzz_rewrites
    import fuzz_trials
    from fuzz_emulated import device_of
    from fuzz_guarded import guarded, tightened
    from fuzz_reached import TRACED, watched
    from fuzz_shrink import shrunk
    from fuzz_trials import Counts

    from tilewright.ir.scalars import BF16

    kinds: Any = {
        "contractions": fuzz_contractions,
        "numpy": fuzz_numpy,
        "extremes": fuzz_extremes,
        "large": fuzz_large,
        "rewrites": fuzz_rewrites,
    }
    kind = next((one for name, one in kinds.items() if getattr(given, name)), fuzz_trials)
    make_trial = partial(fuzz_trials.make_trial, varied=True, always=(BF16,)) if given.bf16 else kind.make_trial
    with device_of(given.target, given.first):
        pass  # where there is no such device no trial begins
    for number in range(given.first, given.first + given.count):
        tell(trial=number)
        counts, reached = Counts(), set[str]()
        with device_of(given.target, number) as device, guarded() if given.guarded else nullcontext():
            trial = make_trial(number)
            with watched(reached, number % TRACED == 0):
                failure = kind.run_trial(tightened(trial) if given.guarded else trial, device, counts)
            if failure is not None:
                tell(problem=failure.way + ": " + failure.problem, text=str(failure))
                if isinstance(failure.trial, fuzz_trials.Trial) and not given.as_it_is:
                    run = kind.run_trial if given.large or given.rewrites else fuzz_trials.run_trial
                    tell(smaller=str(shrunk(failure, device, run=run)))
        told = {name: value for name, value in vars(counts).items() if name != "trials"}
        tell(done=number, counts=told, reached=sorted(reached))


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


@dataclass
class Run:
    """A run of trials: what is still to be done, and what was found; several threads look after a worker each."""

    given: argparse.Namespace
    first: int
    environment: dict[str, str]
    following: int = 0
    started: float = field(default_factory=time.monotonic)
    totals: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    broken: str | None = None

    @property
    def minutes(self) -> float:
        """How long it has been running."""
        return (time.monotonic() - self.started) / 60

    def next_part(self) -> range:
        """Some trials that nobody has taken yet; none when all are, or the time is up."""
        with self.lock:
            start = self.following
            over = self.minutes >= self.given.minutes or self.broken is not None
            stop = start if over else min(start + TRIALS_PER_WORKER, self.first + self.given.count)
            self.following = stop
        return range(start, stop)


def main() -> int:
    """Run workers until all trials are done or the time is up."""
    given = arguments()
    first = random.SystemRandom().randrange(10**8) if given.first is None else given.first
    if given.worker:
        work(given)
        return 0
    sys.path[:0] = [str(TESTS / "fuzz"), str(TESTS / "kernel"), str(TESTS / "passes")]
    from fuzz_emulated import surroundings_of

    further = surroundings_of(given.target)
    if isinstance(further, str):
        print(f"no trials on {given.target}: {further}")
        return 0
    print(f"trials from {first} on {given.target}", flush=True)
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tilewright-fuzz-") as cache:
        environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": cache, "PYOPENCL_NO_CACHE": "1", **further}
        run = Run(given, first, environment, first)
        threads = [threading.Thread(target=_work_through, args=(run,)) for _ in range(given.workers)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    if run.broken is not None:
        raise SystemExit(f"no trial could be run: {run.broken}")
    print(f"{dict(run.totals)} in {run.minutes:.1f} minutes, trials {first} to {run.following - 1}")
    return 1 if run.totals["failures"] or run.totals["crashes"] or not _all_reached(run) else 0


def _all_reached(run: Run) -> bool:
    """Print what the trials went through; False if that of many was not all that it should be."""
    from fuzz_reached import MANY_TRIALS, TRACED, expected, table

    wanted = expected(run.given.contractions, run.given.target.startswith("cpu"))
    missing = sorted(wanted - run.reached.keys())
    print(f"in how many trials rules fired, and modules of passes/ worked (of {1 / TRACED:.0%} of the trials):")
    print(table(run.reached, wanted))
    print(f"reached by none: {', '.join(missing) or 'nothing'}")
    narrow = run.given.numpy or run.given.extremes or run.given.rewrites
    return not missing or narrow or run.totals["trials"] < MANY_TRIALS


def _work_through(run: Run) -> None:
    """Take part after part, each in workers of its own, until there is none."""
    while part := run.next_part():
        while part and run.minutes < run.given.minutes and run.broken is None:
            part = _one_worker(run, part)


def _one_worker(run: Run, part: range) -> range:
    """Run trials in one process until all are done, the time is up, or a crash; the trials that are left."""
    given = run.given
    command = [sys.executable, __file__, "--worker", "--target", given.target, "--first", str(part.start)]
    command += ["--count", str(len(part))]
    command += [
        f"--{name}"
        for name in ("as-it-is", "contractions", "numpy", "extremes", "large", "rewrites", "bf16", "guarded")
        if getattr(given, name.replace("-", "_"))
    ]
    running: int | None = None
    problem: str | None = None
    following = part.start
    for message in messages(command, run.environment):
        with run.lock:
            if "trial" in message:
                running, problem = int(str(message["trial"])), None
            if "problem" in message:
                run.totals["failures"] += 1
                problem = str(message["problem"])
                _report(given, running, problem, str(message["text"]))
            if "smaller" in message:
                _report(given, running, "made smaller", str(message["smaller"]))
            if "done" in message:
                running, following = None, int(str(message["done"])) + 1
                run.totals["trials"] += 1
                run.totals.update(dict(message["counts"]))  # type: ignore[call-overload]
                run.reached.update(message["reached"])  # type: ignore[arg-type]
                if run.totals["trials"] % 100 == 0:
                    print(f"{dict(run.totals)} after {run.minutes:.1f} minutes", flush=True)
            if "code" in message and running is not None:
                if problem is None:
                    run.totals["crashes"] += 1
                    _report(given, running, f"the process ended with {message['code']}", str(message["errors"]))
                following = running + 1
            elif "code" in message and following == part.start and message["code"] != 0:
                run.broken = str(message["errors"])
        if "done" in message and run.minutes >= given.minutes:
            break
    return range(following, part.stop)


def _report(given: argparse.Namespace, number: int | None, problem: str, text: str) -> None:
    print(f"--- trial {number} on {given.target}: {problem}\n{text}\n", flush=True)
    if given.keep:
        with open(given.keep / f"{given.target}-{number}.txt", "a") as file:
            file.write(f"{problem}\n{text}\n\n")


if __name__ == "__main__":
    sys.exit(main())
