"""Native code that brings a thread that was put aside to the core of one that waits for it, as LLVM text (Linux).

When another program takes the core of a thread in the middle of its blocks, the system leaves that thread in the queue
of its core for milliseconds, although the core of the thread that waits for it has nothing to do: a thread that has
just run counts as one whose data are in its core's caches. So who waits says where it may go on: here.

That a thread has been put aside is seen by its own processor time, which stands still. It may also have gone to sleep;
then nothing comes of it. A thread is moved by giving it a mask of one core, and at once all that it may have: those of
its control group, or its own mask where that has fewer. It is not brought to a core that its mask does not have.
"""

from __future__ import annotations

import sys

STILL = 10_000  # nanoseconds in which a thread that runs shows a later time
_MASK_BYTES = 1024  # of 8192 cores, the most that Linux is made for

_NOWHERE = """
define internal i64 @own_clock() {
  ret i64 0
}

define internal i32 @own_core() {
  ret i32 -1
}

define internal i1 @stands_still(i64 %clock) {
  ret i1 false
}

define internal i1 @fetch(i64 %clock) {
  ret i1 false
}

define internal i1 @step_aside(i64 %clock) {
  ret i1 false
}
"""

# The number of a thread's clock holds that of the thread: Linux, include/linux/posix-timers.h, CPUCLOCK_PID.
_LINUX = """
declare i64 @pthread_self()
declare i32 @pthread_getcpuclockid(i64, ptr)
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare ptr @memcpy(ptr, ptr, i64)
declare ptr @memset(ptr, i32, i64)
declare i32 @memcmp(ptr, ptr, i64)

; The clock of the calling thread's processor time; 0 if it has none.
define internal i64 @own_clock() {
  %slot = alloca i32, align 4
  store i32 0, ptr %slot, align 4
  %self = call i64 @pthread_self()
  %got = call i32 @pthread_getcpuclockid(i64 %self, ptr %slot)
  %clock = load i32, ptr %slot, align 4
  %wide = sext i32 %clock to i64
  ret i64 %wide
}

define internal i32 @own_core() {
  %core = call i32 @sched_getcpu()
  ret i32 %core
}

; Whether the thread of this clock does not run.
define internal i1 @stands_still(i64 %wide) {
entry:
  %clock = trunc i64 %wide to i32
  %before = call i64 @time_of(i32 %clock)
  %known = icmp sge i64 %before, 0
  br i1 %known, label %begin, label %no
begin:
  %begun = call i64 @now()
  %until = add i64 %begun, @@STILL
  br label %wait
wait:
  @@PAUSE
  %present = call i64 @now()
  %over = icmp sgt i64 %present, %until
  br i1 %over, label %compare, label %wait
compare:
  %after = call i64 @time_of(i32 %clock)
  %still = icmp eq i64 %before, %after
  ret i1 %still
no:
  ret i1 false
}

; Whether the thread of this clock is to go on here.
define internal i1 @fetch(i64 %wide) {
  %clock = trunc i64 %wide to i32
  %moved = call i1 @move(i32 %clock, i1 true)
  ret i1 %moved
}

; Whether the calling thread, whose clock this is, has gone to another core.
define internal i1 @step_aside(i64 %wide) {
  %clock = trunc i64 %wide to i32
  %moved = call i1 @move(i32 %clock, i1 false)
  ret i1 %moved
}

; Move the thread of a clock here, or away from here.
define internal i1 @move(i32 %clock, i1 %here) {
entry:
  %had = alloca [@@MASK_BYTES x i8], align 8
  %mask = alloca [@@MASK_BYTES x i8], align 8
  %shifted = ashr i32 %clock, 3
  %thread = xor i32 %shifted, -1
  %core = call i32 @sched_getcpu()
  %h0 = call ptr @memset(ptr %had, i32 0, i64 @@MASK_BYTES)
  %got = call i32 @sched_getaffinity(i32 %thread, i64 @@MASK_BYTES, ptr %had)
  %core.or.error = or i32 %core, %got
  %fine = icmp sge i32 %core.or.error, 0
  br i1 %fine, label %may, label %no
may:
  %byte = lshr i32 %core, 3
  %bit = and i32 %core, 7
  %bit.8 = trunc i32 %bit to i8
  %one = shl i8 1, %bit.8
  %had.slot = getelementptr inbounds i8, ptr %had, i32 %byte
  %had.byte = load i8, ptr %had.slot, align 1
  %common = and i8 %had.byte, %one
  %allowed = icmp ne i8 %common, 0
  br i1 %allowed, label %choose, label %no
choose:
  %mask.slot = getelementptr inbounds i8, ptr %mask, i32 %byte
  br i1 %here, label %only, label %others
only:
  %o0 = call ptr @memset(ptr %mask, i32 0, i64 @@MASK_BYTES)
  store i8 %one, ptr %mask.slot, align 1
  br label %set
others:
  %o1 = call ptr @memcpy(ptr %mask, ptr %had, i64 @@MASK_BYTES)
  %rest = xor i8 %had.byte, %one
  store i8 %rest, ptr %mask.slot, align 1
  br label %set
set:
  %moved = call i32 @sched_setaffinity(i32 %thread, i64 @@MASK_BYTES, ptr %mask)
  %success = icmp eq i32 %moved, 0
  br i1 %success, label %free, label %no
free:
  %m1 = call ptr @memset(ptr %mask, i32 255, i64 @@MASK_BYTES)
  %m2 = call i32 @sched_setaffinity(i32 %thread, i64 @@MASK_BYTES, ptr %mask)
  %m3 = call ptr @memset(ptr %mask, i32 0, i64 @@MASK_BYTES)
  %m4 = call i32 @sched_getaffinity(i32 %thread, i64 @@MASK_BYTES, ptr %mask)
  %differs = call i32 @memcmp(ptr %had, ptr %mask, i64 @@MASK_BYTES)
  %own = icmp ne i32 %differs, 0
  br i1 %own, label %put.back, label %done
put.back:
  %m5 = call i32 @sched_setaffinity(i32 %thread, i64 @@MASK_BYTES, ptr %had)
  br label %done
done:
  ret i1 true
no:
  ret i1 false
}

; Nanoseconds; -1 if there is no such clock.
define internal i64 @time_of(i32 %clock) {
  %time = alloca [2 x i64], align 8
  %got = call i32 @clock_gettime(i32 %clock, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %rest.slot = getelementptr inbounds i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.slot, align 8
  %scaled = mul i64 %seconds, 1000000000
  %nanoseconds = add i64 %scaled, %rest
  %fine = icmp eq i32 %got, 0
  %result = select i1 %fine, i64 %nanoseconds, i64 -1
  ret i64 %result
}
"""

_HELP = """
; Bring workers that were put aside in the middle of their blocks here; whether there were any.
define internal i1 @fetch_workers(ptr %pool, i64 %joined) {
entry:
  %clocks = @@CLOCKS
  %finished = @@FINISHED
  %workers.slot = @@WORKERS
  %workers = load atomic i64, ptr %workers.slot monotonic, align 8
  br label %next
next:
  %number = phi i64 [ 0, %entry ], [ %following, %after ]
  %any = phi i1 [ false, %entry ], [ %any.now, %after ]
  %more = icmp slt i64 %number, %workers
  %reported = load atomic i64, ptr %finished monotonic, align 8
  %waiting = icmp slt i64 %reported, %joined
  %go.on = and i1 %more, %waiting
  br i1 %go.on, label %ask, label %exit
ask:
  %offset = mul i64 %number, 64
  %slot = getelementptr inbounds i8, ptr %clocks, i64 %offset
  %clock = load atomic i64, ptr %slot monotonic, align 8
  %at.work = icmp ne i64 %clock, 0
  br i1 %at.work, label %watch, label %after
watch:
  %still = call i1 @stands_still(i64 %clock)
  br i1 %still, label %try, label %after
try:
  %brought = call i1 @fetch(i64 %clock)
  br label %after
after:
  %new = phi i1 [ false, %ask ], [ false, %watch ], [ %brought, %try ]
  %any.now = or i1 %any, %new
  %following = add i64 %number, 1
  br label %next
exit:
  ret i1 %any
}

; The same with the launcher, which does not leave its launch meanwhile: it waits for MOVING.
define internal i1 @fetch_launcher(ptr %pool) {
entry:
  %launcher = @@CALLER
  %moving = @@MOVING
  %waiting = @@WAITING
  %clock = load atomic i64, ptr %launcher monotonic, align 8
  %asleep = load atomic i64, ptr %waiting monotonic, align 8
  %there = icmp ne i64 %clock, 0
  %awake = icmp eq i64 %asleep, 0
  %sensible = and i1 %there, %awake
  br i1 %sensible, label %watch, label %no
watch:
  %still = call i1 @stands_still(i64 %clock)
  br i1 %still, label %enter, label %no
enter:
  %entering = cmpxchg ptr %moving, i64 0, i64 1 seq_cst monotonic
  %entered = extractvalue { i64, i1 } %entering, 1
  br i1 %entered, label %ask, label %no
ask:
  %present = load atomic i64, ptr %launcher seq_cst, align 8
  %the.same = icmp eq i64 %present, %clock
  br i1 %the.same, label %try, label %leave
try:
  %brought = call i1 @fetch(i64 %clock)
  br label %leave
leave:
  %result = phi i1 [ false, %ask ], [ %brought, %try ]
  store atomic i64 0, ptr %moving release, align 8
  ret i1 %result
no:
  ret i1 false
}
"""


def fetch_text() -> str:
    """LLVM text, for the driver's: `own_clock()`, `own_core()`, `step_aside(i64 clock)`, `fetch_workers(ptr pool, i64
    joined)`, `fetch_launcher(ptr pool)`.
    """
    if not sys.platform.startswith("linux"):
        return _NOWHERE + _HELP
    return (_LINUX + _HELP).replace("@@MASK_BYTES", str(_MASK_BYTES)).replace("@@STILL", str(STILL))
