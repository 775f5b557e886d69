"""The native half of the CPU's thread pool, as LLVM text: sharing blocks out, waiting for work, waking, joining.

Memory of a pool (byte offsets; what different threads write lies 128 bytes apart, which are a cache line of some
processors and a pair of lines, fetched together, of others):

    TICKETS    how many more workers may join, the launcher's core     PARKED   how many workers sleep
    COUNTER    blocks taken from the start, and from the end           STOP     1 when workers must return
    FINISHED   how many joined workers are done                        MUTEX, CONDITION   for sleeping
    JOB        kernel, arguments, blocks, grain, units, shares         BUSY     1 while there is a launch
    WAITING    1 while the launcher sleeps, on ENDED                   WORKSPACES   one address per worker
    CALLER     the launcher's clock, 0 without a launch                MOVING   1 while it is moved to another core
    WORKERS    how many workers there are                              CLOCKS   of each worker, 0 without blocks

Threads take blocks by shares of what is left (guided self-scheduling, Polychronopoulos and Kuck 1987): many at first,
neighbours in memory, and at the end no more than the grain, so that none waits long for another one that was late, has
the dearer blocks, or a core that others use too. The launcher takes them from the start, the worker with the last
ticket from the end, so that of two cores each has the same blocks at the next launch, whose arrays are in its caches.

The pool serves one launch at a time. One that finds it BUSY runs on its own thread alone: then the cores have work
already. It is native code that takes and releases BUSY, where no exception (Ctrl-C) can come between.

A worker joins a launch by taking a ticket; it may then read JOB, because the launcher changes it only after every
ticket that was taken has been reported in FINISHED. The launcher never waits for a worker that did not join, so one
that sleeps, or that the operating system has put aside, delays nothing. One that was put aside in the middle of its
blocks does: who waits for it gives up its own core to it (`cpu_fetch`), be that the launcher or a worker.

A launch is described by a call block of eight-byte slots: kernel, arguments, blocks, grain, workspace of the calling
thread, pool (0: run serially), tickets.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tilewright.runtime.cpu_fetch import fetch_text
from tilewright.runtime.cpu_worker import WORKER

if TYPE_CHECKING:  # the compiler is imported when something is compiled
    from tilewright.kernel.llvm import CpuTarget

TICKETS, COUNTER, FINISHED, JOB, PARKED, STOP, MUTEX, CONDITION, BUSY, WAITING, ENDED = range(0, 1408, 128)
CALLER, MOVING, WORKERS, WORKSPACES = range(1408, 1920, 128)
MAXIMUM_WORKERS = 511
CLOCKS = WORKSPACES + 8 * MAXIMUM_WORKERS + 8
POOL_BYTES = CLOCKS + 64 * MAXIMUM_WORKERS
CALL_SLOTS = 7

# How long a worker looks for new work before it goes to sleep, in nanoseconds: some times as long as it takes to be
# woken, which is 20 to 50 microseconds, and longer after longer launches, which others often follow, but no more than a
# few times as long as it has worked. What it wastes is bounded, and a program that is mostly launches finds it awake.
#
# Where other programs keep the cores busy, the system may have put worker and launcher on the same core: then one that
# looks keeps the other from doing what it looks for. So a worker lets others go first every few looks, which costs
# little if nobody waits for this core, and a launcher does so at every look once it has waited for some microseconds.
LEAST_WAIT, MOST_WAIT = 200_000, 2_000_000
WAIT_PER_WORK = 8
LOOKS_PER_YIELD = 32  # each of 10 to 50 ns
LAUNCHER_LOOKS = 200
# Who waits for the end of a launch asks this often whether the others have been put aside: a worker in nanoseconds, the
# launcher in looks, of 0.2 to 0.5 microseconds. It sleeps when it has brought a worker to its core, or looked so often.
TAIL_WAIT, LOOKS_PER_HELP, LOOKS_BEFORE_SLEEP = 20_000, 64, 2000
SHARES_PER_THREAD = 2  # a thread takes one of so many parts of its even share of the blocks that are left


def _pause(target: CpuTarget) -> tuple[str, str]:
    """The instruction for loops that wait: its declaration and its call."""
    if target.is_x86:
        return "declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"
    if target.is_arm:
        # YIELD does nothing on most of these processors; ISB takes about as long as PAUSE does on x86.
        return "declare void @llvm.aarch64.isb(i32)", "call void @llvm.aarch64.isb(i32 15)"
    return "", ""


def driver_text(target: CpuTarget) -> str:
    """LLVM text of `launch(ptr call)`, `worker(ptr pool, i64 number)`, `prepare(ptr pool)` and `stop(ptr pool)`."""
    declaration, pause = _pause(target)
    text = _TEMPLATE.replace("@@FETCH", fetch_text()).replace("@@WORKER_LOOP", WORKER)
    fields = {
        "TICKETS": TICKETS, "COUNTER": COUNTER, "FINISHED": FINISHED, "JOB": JOB, "PARKED": PARKED, "STOP": STOP,
        "MUTEX": MUTEX, "CONDITION": CONDITION, "BUSY": BUSY, "WAITING": WAITING, "ENDED": ENDED,
        "CALLER": CALLER, "MOVING": MOVING, "WORKERS": WORKERS, "WORKSPACES": WORKSPACES, "CLOCKS": CLOCKS,
    }  # fmt: skip
    for name, offset in fields.items():
        text = text.replace(f"@@{name}", f"getelementptr inbounds i8, ptr %pool, i64 {offset}")
    text = text.replace("@@PAUSE_DECLARATION", declaration).replace("@@PAUSE", pause)
    numbers = {
        "LAUNCHER_LOOKS": LAUNCHER_LOOKS, "MOST_LOOKS": LAUNCHER_LOOKS + LOOKS_BEFORE_SLEEP,
        "LOOKS_PER_YIELD": LOOKS_PER_YIELD, "SHARES": SHARES_PER_THREAD,
        "NEVER": 2**63 - 1, "HELP_MASK": LOOKS_PER_HELP - 1,
        "LEAST_WAIT": LEAST_WAIT, "MOST_WAIT": MOST_WAIT, "TAIL_WAIT": TAIL_WAIT,
         "WAIT_PER_WORK": WAIT_PER_WORK, "CLOCK": time.CLOCK_MONOTONIC,
    }  # fmt: skip
    for name, number in numbers.items():
        text = text.replace(f"@@{name}", str(number))
    return text


NOW = """
declare i32 @clock_gettime(i32, ptr)

define internal i64 @now() {
  %time = alloca [2 x i64], align 8
  %got = call i32 @clock_gettime(i32 @@CLOCK, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %rest.slot = getelementptr inbounds i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.slot, align 8
  %scaled = mul i64 %seconds, 1000000000
  %nanoseconds = add i64 %scaled, %rest
  ret i64 %nanoseconds
}
"""
"""Nanoseconds since some time, as an LLVM function; `CLOCK` is filled in."""

_TEMPLATE = (
    NOW
    + """
@@PAUSE_DECLARATION
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()
declare i32 @usleep(i32)
@@FETCH

; Take a share of the units that are left, of `grain` blocks each, until none is left: from the start of the blocks or
; from their end. The counter's halves are how many have been taken from the one and from the other.
define void @run_chunks(ptr %kernel, ptr %arguments, ptr %counter, ptr %job, ptr %workspace, i1 %from.end) {
entry:
  %blocks.slot = getelementptr inbounds i64, ptr %job, i64 2
  %grain.slot = getelementptr inbounds i64, ptr %job, i64 3
  %units.slot = getelementptr inbounds i64, ptr %job, i64 4
  %shares.slot = getelementptr inbounds i64, ptr %job, i64 5
  %blocks = load i64, ptr %blocks.slot, align 8
  %grain = load i64, ptr %grain.slot, align 8
  %units = load i64, ptr %units.slot, align 8
  %shares = load i64, ptr %shares.slot, align 8
  %start = load atomic i64, ptr %counter monotonic, align 8
  br label %look
look:
  %old = phi i64 [ %start, %entry ], [ %seen, %take ], [ %now, %run ]
  %at.start = and i64 %old, 4294967295
  %at.end = lshr i64 %old, 32
  %beyond = sub i64 %units, %at.end
  %left = sub i64 %beyond, %at.start
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %take, label %done
take:
  %share = udiv i64 %left, %shares
  %taken = call i64 @llvm.smax.i64(i64 %share, i64 1)
  %upwards = add i64 %old, %taken
  %taken.high = shl i64 %taken, 32
  %downwards = add i64 %old, %taken.high
  %new = select i1 %from.end, i64 %downwards, i64 %upwards
  %before = sub i64 %beyond, %taken
  %first = select i1 %from.end, i64 %before, i64 %at.start
  %exchange = cmpxchg ptr %counter, i64 %old, i64 %new monotonic monotonic
  %seen = extractvalue { i64, i1 } %exchange, 0
  %mine = extractvalue { i64, i1 } %exchange, 1
  br i1 %mine, label %run, label %look
run:
  %begin = mul i64 %first, %grain
  %after = add i64 %first, %taken
  %end.most = mul i64 %after, %grain
  %end = call i64 @llvm.smin.i64(i64 %end.most, i64 %blocks)
  call void %kernel(ptr %arguments, i64 %begin, i64 %end, ptr %workspace)
  %now = load atomic i64, ptr %counter monotonic, align 8
  br label %look
done:
  ret void
}
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)

define void @prepare(ptr %pool) {
  %mutex = @@MUTEX
  %condition = @@CONDITION
  %a = call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %b = call i32 @pthread_cond_init(ptr %condition, ptr null)
  %ended = @@ENDED
  %c = call i32 @pthread_cond_init(ptr %ended, ptr null)
  ret void
}

define void @stop(ptr %pool) {
  %mutex = @@MUTEX
  %condition = @@CONDITION
  %stop = @@STOP
  store atomic i64 1, ptr %stop seq_cst, align 8
  %a = call i32 @pthread_mutex_lock(ptr %mutex)
  %b = call i32 @pthread_mutex_unlock(ptr %mutex)
  %c = call i32 @pthread_cond_broadcast(ptr %condition)
  ret void
}

@@WORKER_LOOP

define void @launch(ptr %call) {
entry:
  %arguments.slot = getelementptr inbounds i64, ptr %call, i64 1
  %blocks.slot = getelementptr inbounds i64, ptr %call, i64 2
  %grain.slot = getelementptr inbounds i64, ptr %call, i64 3
  %workspace.slot = getelementptr inbounds i64, ptr %call, i64 4
  %pool.slot = getelementptr inbounds i64, ptr %call, i64 5
  %offered.slot = getelementptr inbounds i64, ptr %call, i64 6
  %kernel = load ptr, ptr %call, align 8
  %arguments = load ptr, ptr %arguments.slot, align 8
  %blocks = load i64, ptr %blocks.slot, align 8
  %grain = load i64, ptr %grain.slot, align 8
  %workspace = load ptr, ptr %workspace.slot, align 8
  %pool = load ptr, ptr %pool.slot, align 8
  %offered = load i64, ptr %offered.slot, align 8
  %alone = icmp eq ptr %pool, null
  br i1 %alone, label %serial, label %enter
serial:
  call void %kernel(ptr %arguments, i64 0, i64 %blocks, ptr %workspace)
  ret void
enter:
  %busy = @@BUSY
  %entering = cmpxchg ptr %busy, i64 0, i64 1 acquire monotonic
  %entered = extractvalue { i64, i1 } %entering, 1
  br i1 %entered, label %parallel, label %serial
parallel:
  %tickets = @@TICKETS
  %counter = @@COUNTER
  %finished = @@FINISHED
  %job = @@JOB
  %parked = @@PARKED
  %mutex = @@MUTEX
  %condition = @@CONDITION
  %job.arguments = getelementptr inbounds i64, ptr %job, i64 1
  %job.blocks = getelementptr inbounds i64, ptr %job, i64 2
  %job.grain = getelementptr inbounds i64, ptr %job, i64 3
  %job.units = getelementptr inbounds i64, ptr %job, i64 4
  %job.shares = getelementptr inbounds i64, ptr %job, i64 5
  %halves = lshr i64 %blocks, 31
  %least = add i64 %halves, 1
  %unit = call i64 @llvm.smax.i64(i64 %grain, i64 %least)
  %up = add i64 %blocks, %unit
  %up.less = sub i64 %up, 1
  %units = udiv i64 %up.less, %unit
  %threads = add i64 %offered, 1
  %shares = mul i64 %threads, @@SHARES
  store ptr %kernel, ptr %job, align 8
  store ptr %arguments, ptr %job.arguments, align 8
  store i64 %blocks, ptr %job.blocks, align 8
  store i64 %unit, ptr %job.grain, align 8
  store i64 %units, ptr %job.units, align 8
  store i64 %shares, ptr %job.shares, align 8
  store atomic i64 0, ptr %counter monotonic, align 8
  store atomic i64 0, ptr %finished monotonic, align 8
  %launcher = @@CALLER
  %core.slot = getelementptr inbounds i64, ptr %tickets, i64 1
  %moving = @@MOVING
  %own.clock = call i64 @own_clock()
  %own.core = call i32 @own_core()
  store atomic i32 %own.core, ptr %core.slot monotonic, align 8
  store atomic i64 %own.clock, ptr %launcher monotonic, align 8
  store atomic i64 %offered, ptr %tickets seq_cst, align 8
  %sleepers = load atomic i64, ptr %parked seq_cst, align 8
  %wakes = call i64 @llvm.smin.i64(i64 %sleepers, i64 %offered)
  %any = icmp sgt i64 %wakes, 0
  br i1 %any, label %ring, label %work
ring:
  %r0 = call i32 @pthread_mutex_lock(ptr %mutex)
  %r1 = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %signal
signal:
  %rung = phi i64 [ 0, %ring ], [ %rung.next, %signal ]
  %r2 = call i32 @pthread_cond_signal(ptr %condition)
  %rung.next = add i64 %rung, 1
  %more = icmp slt i64 %rung.next, %wakes
  br i1 %more, label %signal, label %work
work:
  call void @run_chunks(ptr %kernel, ptr %arguments, ptr %counter, ptr %job, ptr %workspace, i1 false)
  %left = atomicrmw xchg ptr %tickets, i64 0 seq_cst
  %joined = sub i64 %offered, %left
  br label %wait
wait:
  %looks = phi i64 [ 0, %work ], [ %looks.next, %pause ], [ %looks.next, %yield ]
  %reported = load atomic i64, ptr %finished acquire, align 8
  %all = icmp sge i64 %reported, %joined
  br i1 %all, label %exit, label %patience
patience:
  %looks.next = add i64 %looks, 1
  %tired = icmp sgt i64 %looks.next, @@LAUNCHER_LOOKS
  br i1 %tired, label %polite, label %pause
pause:
  @@PAUSE
  br label %wait
polite:
  %spent = icmp sgt i64 %looks.next, @@MOST_LOOKS
  br i1 %spent, label %lie.down, label %check
check:
  %since.help = and i64 %looks.next, @@HELP_MASK
  %turn = icmp eq i64 %since.help, 0
  br i1 %turn, label %help, label %yield
help:
  %brought = call i1 @fetch_workers(ptr %pool, i64 %joined)
  br i1 %brought, label %lie.down, label %yield
yield:
  %y = call i32 @sched_yield()
  br label %wait
lie.down:
  %waiting = @@WAITING
  %ended = @@ENDED
  %s0 = call i32 @pthread_mutex_lock(ptr %mutex)
  %s1 = atomicrmw xchg ptr %waiting, i64 1 seq_cst
  br label %asleep
asleep:
  %asleep.reported = load atomic i64, ptr %finished seq_cst, align 8
  %asleep.all = icmp sge i64 %asleep.reported, %joined
  br i1 %asleep.all, label %awake, label %sleep
sleep:
  %s2 = call i32 @pthread_cond_wait(ptr %ended, ptr %mutex)
  br label %asleep
awake:
  store atomic i64 0, ptr %waiting seq_cst, align 8
  %s3 = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %exit
exit:
  %gone = atomicrmw xchg ptr %launcher, i64 0 seq_cst
  br label %moved
moved:
  %under.way = load atomic i64, ptr %moving seq_cst, align 8
  %settled = icmp eq i64 %under.way, 0
  br i1 %settled, label %leave, label %hold
hold:
  %u = call i32 @usleep(i32 20)
  br label %moved
leave:
  store atomic i64 0, ptr %busy release, align 8
  ret void
}
"""
)
