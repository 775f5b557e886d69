"""What a worker of the CPU's thread pool does, as LLVM text: looking for a launch, its share of the blocks, sleeping.

It is a part of the driver's text (`cpu_driver`), which tells what lies where in the pool's memory.

A worker leaves the core of the launcher to the launcher: it steps aside before it joins a launch there, after it was
brought there to end its blocks, and when it has brought the launcher to its own core. Where it goes instead other
programs may be at work; without blocks it can wait. It asks whether the launcher was put aside only after its own
blocks of a launch, since asking takes as long as a short launch does.
"""

from __future__ import annotations

WORKER = """
define void @worker(ptr %pool, i64 %number) {
entry:
  %tickets = @@TICKETS
  %counter = @@COUNTER
  %finished = @@FINISHED
  %job = @@JOB
  %parked = @@PARKED
  %stop = @@STOP
  %mutex = @@MUTEX
  %condition = @@CONDITION
  %waiting = @@WAITING
  %last.ended = @@ENDED
  %workspaces = @@WORKSPACES
  %workspace.slot = getelementptr inbounds i64, ptr %workspaces, i64 %number
  %arguments.slot = getelementptr inbounds i64, ptr %job, i64 1
  %clocks = @@CLOCKS
  %clock.offset = mul i64 %number, 64
  %clock.slot = getelementptr inbounds i8, ptr %clocks, i64 %clock.offset
  %own.clock = call i64 @own_clock()
  %workers.slot = @@WORKERS
  %counted = add i64 %number, 1
  %launcher.slot = getelementptr inbounds i64, ptr %tickets, i64 1
  %w = atomicrmw umax ptr %workers.slot, i64 %counted monotonic
  %born = call i64 @now()
  %first.until = add i64 %born, @@LEAST_WAIT
  %worker.busy = @@BUSY
  br label %look
look:
  %tail = phi i64 [ @@NEVER, %entry ], [ %next.tail, %settled ], [ %claim.tail, %claim ], [ @@NEVER, %elsewhere ],
    [ %tail, %pause ], [ %awaited.tail, %check ], [ %tail.next, %help ]
  %looks = phi i64 [ 0, %entry ], [ 0, %settled ], [ 0, %claim ], [ 0, %elsewhere ], [ %looks.next, %pause ],
    [ 0, %check ], [ 0, %help ]
  %until = phi i64 [ %first.until, %entry ], [ %next.until, %settled ], [ %claim.until, %claim ],
    [ %later, %elsewhere ], [ %until, %pause ], [ %until, %check ], [ %until, %help ]
  %stopped = load atomic i64, ptr %stop monotonic, align 8
  %leave = icmp ne i64 %stopped, 0
  br i1 %leave, label %exit, label %seek
seek:
  %offered = load atomic i64, ptr %tickets monotonic, align 8
  %any = icmp sgt i64 %offered, 0
  br i1 %any, label %claim, label %again
again:
  %looks.next = add i64 %looks, 1
  %turn = icmp sge i64 %looks.next, @@LOOKS_PER_YIELD
  br i1 %turn, label %give.way, label %pause
pause:
  @@PAUSE
  br label %look
give.way:
  %w0 = call i32 @sched_yield()
  %present.time = call i64 @now()
  %tired = icmp sgt i64 %present.time, %until
  br i1 %tired, label %park, label %check
check:
  %under.way = load atomic i64, ptr %worker.busy monotonic, align 8
  %late = icmp sgt i64 %present.time, %tail
  %awaits = icmp ne i64 %under.way, 0
  %awaited.tail = select i1 %awaits, i64 %tail, i64 @@NEVER
  %overdue = and i1 %late, %awaits
  br i1 %overdue, label %help, label %look
help:
  %tail.next = add i64 %present.time, @@TAIL_WAIT
  %brought = call i1 @fetch_launcher(ptr %pool)
  br i1 %brought, label %aside, label %look
aside:
  %a0 = call i1 @step_aside(i64 %own.clock)
  br label %elsewhere
elsewhere:
  %moved.time = call i64 @now()
  %later = add i64 %moved.time, @@LEAST_WAIT
  br label %look
park:
  %p0 = call i32 @pthread_mutex_lock(ptr %mutex)
  %p1 = atomicrmw add ptr %parked, i64 1 seq_cst
  %asleep.offered = load atomic i64, ptr %tickets seq_cst, align 8
  %asleep.stopped = load atomic i64, ptr %stop seq_cst, align 8
  %asleep.any = icmp sgt i64 %asleep.offered, 0
  %asleep.leave = icmp ne i64 %asleep.stopped, 0
  %stay = or i1 %asleep.any, %asleep.leave
  br i1 %stay, label %awake, label %sleep
sleep:
  %p2 = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %awake
awake:
  %p3 = atomicrmw sub ptr %parked, i64 1 seq_cst
  %p4 = call i32 @pthread_mutex_unlock(ptr %mutex)
  %woken.time = call i64 @now()
  %woken.until = add i64 %woken.time, @@LEAST_WAIT
  br label %claim
claim:
  %claim.until = phi i64 [ %until, %seek ], [ %woken.until, %awake ], [ %claim.until, %take ]
  %claim.tail = phi i64 [ %tail, %seek ], [ @@NEVER, %awake ], [ %claim.tail, %take ]
  %present = load atomic i64, ptr %tickets monotonic, align 8
  %positive = icmp sgt i64 %present, 0
  br i1 %positive, label %compare, label %look
compare:
  %core = call i32 @own_core()
  %launcher.core = load atomic i32, ptr %launcher.slot monotonic, align 8
  %same.core = icmp eq i32 %core, %launcher.core
  br i1 %same.core, label %make.room, label %take
make.room:
  %made = call i1 @step_aside(i64 %own.clock)
  br i1 %made, label %elsewhere, label %take
take:
  %less = sub i64 %present, 1
  %exchange = cmpxchg ptr %tickets, i64 %present, i64 %less acq_rel monotonic
  %taken = extractvalue { i64, i1 } %exchange, 1
  br i1 %taken, label %run, label %claim
run:
  %odd = and i64 %present, 1
  %from.end = icmp ne i64 %odd, 0
  %kernel = load ptr, ptr %job, align 8
  %arguments = load ptr, ptr %arguments.slot, align 8
  %workspace = load ptr, ptr %workspace.slot, align 8
  %begun = call i64 @now()
  store atomic i64 %own.clock, ptr %clock.slot monotonic, align 8
  call void @run_chunks(ptr %kernel, ptr %arguments, ptr %counter, ptr %job, ptr %workspace, i1 %from.end)
  store atomic i64 0, ptr %clock.slot monotonic, align 8
  %done = atomicrmw add ptr %finished, i64 1 seq_cst
  %sleeper = load atomic i64, ptr %waiting seq_cst, align 8
  %awaited = icmp ne i64 %sleeper, 0
  br i1 %awaited, label %report, label %reported
report:
  %e0 = call i32 @pthread_mutex_lock(ptr %mutex)
  %e1 = call i32 @pthread_mutex_unlock(ptr %mutex)
  %e2 = call i32 @pthread_cond_signal(ptr %last.ended)
  br label %reported
reported:
  %ended = call i64 @now()
  %worked = sub i64 %ended, %begun
  %some = mul i64 %worked, @@WAIT_PER_WORK
  %longer = call i64 @llvm.smax.i64(i64 %some, i64 @@LEAST_WAIT)
  %wait = call i64 @llvm.smin.i64(i64 %longer, i64 @@MOST_WAIT)
  %next.until = add i64 %ended, %wait
  %next.tail = add i64 %ended, @@TAIL_WAIT
  %end.core = call i32 @own_core()
  %awaited.core = load atomic i32, ptr %launcher.slot monotonic, align 8
  %in.the.way = icmp eq i32 %end.core, %awaited.core
  br i1 %in.the.way, label %aside, label %settled
settled:
  br label %look
exit:
  ret void
}
"""
