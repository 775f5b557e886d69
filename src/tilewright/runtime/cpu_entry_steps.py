"""The steps of entries (`cpu_entry_text`), as LLVM text: launches, looks at error records, and what repeats them.

The fields in capitals are filled in by `cpu_entry_text`.
"""

from __future__ import annotations

import time

from tilewright.runtime.cpu_driver import NOW

# CHECK: the value that is an error record, and its bytes: the end if one is not zero. START: a counter begins with a
# number. TURN: values, each of which becomes the next one, and the last the first. NEXT: a counter, its end, and how
# many words back the next round begins. UNLESS: a value, a byte of its memory, and how many words to skip if that is 0.
# GROW: a counter, and what is added to it.
CHECK, START, TURN, NEXT, UNLESS, GROW = range(6)
KERNELS_FROM = 16  # no kernel has such a small address

DONE, FAILED, PAUSED = range(3)  # what `run` gives

PATIENCE = 20_000_000
"""Nanoseconds after which rounds pause, for signals to be looked at."""

FIELDS = {
    "KERNELS_FROM": KERNELS_FROM, "PATIENCE": PATIENCE, "CLOCK": time.CLOCK_MONOTONIC,
    "OP_CHECK": CHECK, "OP_START": START, "OP_TURN": TURN, "OP_NEXT": NEXT, "OP_UNLESS": UNLESS,
    "OP_GROW": GROW, "DONE": DONE, "FAILED": FAILED, "PAUSED": PAUSED,
}  # fmt: skip

STEPS = (
    NOW
    + """
declare i64 @llvm.smin.i64(i64, i64)

; Steps from a position on to the end: launches, those of several blocks with the pool's help if there are tickets, and
; what makes rounds of them. Rounds that take long pause: then the position is where to go on, perhaps in a child that
; was forked meanwhile and has no pool.
define i64 @run(ptr %position, ptr %end, ptr %values, ptr %workspace, ptr %pool.words, i64 %tickets) {
entry:
  %block = alloca [@@SLOTS x i64], align 16
  %call = alloca [7 x i64], align 16
  %deadline = alloca i64, align 8
  store i64 0, ptr %deadline, align 8
  %first = load ptr, ptr %position, align 8
  br label %next
next:
  %launch = phi ptr [ %first, %entry ], [ %launch.next, %alone ], [ %launch.next, %together ],
    [ %step.next, %check.next ], [ %step.next, %set ], [ %step.next, %grow ], [ %step.next, %turned ],
    [ %step.next, %count ], [ %round, %again ], [ %round, %patient ], [ %after, %unless ]
  %is.end = icmp eq ptr %launch, %end
  br i1 %is.end, label %finished, label %look
look:
  %kind = load i64, ptr %launch, align 8
  %l1 = getelementptr inbounds i64, ptr %launch, i64 1
  %l2 = getelementptr inbounds i64, ptr %launch, i64 2
  %l3 = getelementptr inbounds i64, ptr %launch, i64 3
  %l4 = getelementptr inbounds i64, ptr %launch, i64 4
  %is.kernel = icmp uge i64 %kind, @@KERNELS_FROM
  br i1 %is.kernel, label %prepare, label %control
control:
  %step.words = load i64, ptr %l1, align 8
  %step.next = getelementptr inbounds i64, ptr %launch, i64 %step.words
  %named = load i64, ptr %l2, align 8
  %given = load i64, ptr %l3, align 8
  %named.slot = getelementptr inbounds i64, ptr %values, i64 %named
  switch i64 %kind, label %failed [
    i64 @@OP_CHECK, label %check i64 @@OP_START, label %set i64 @@OP_TURN, label %turn i64 @@OP_NEXT, label %count
    i64 @@OP_UNLESS, label %unless i64 @@OP_GROW, label %grow
  ]
check:
  %record = load ptr, ptr %named.slot, align 8
  br label %check.next
check.next:
  %byte = phi i64 [ 0, %check ], [ %byte.next, %check.word ]
  %more.bytes = icmp slt i64 %byte, %given
  br i1 %more.bytes, label %check.word, label %next
check.word:
  %word.place = getelementptr i8, ptr %record, i64 %byte
  %found = load i64, ptr %word.place, align 8
  %byte.next = add i64 %byte, 8
  %is.error = icmp ne i64 %found, 0
  br i1 %is.error, label %failed, label %check.next
set:
  store i64 %given, ptr %named.slot, align 8
  br label %next
grow:
  %old = load i64, ptr %named.slot, align 8
  %new = add i64 %old, %given
  store i64 %new, ptr %named.slot, align 8
  br label %next
turn:
  %turn.first = load i64, ptr %named.slot, align 8
  br label %turn.next
turn.next:
  %turn.word = phi i64 [ 3, %turn ], [ %turn.word.next, %turn.one ]
  %turn.slot = phi ptr [ %named.slot, %turn ], [ %other.slot, %turn.one ]
  %more.turns = icmp slt i64 %turn.word, %step.words
  br i1 %more.turns, label %turn.one, label %turned
turn.one:
  %other.word = getelementptr inbounds i64, ptr %launch, i64 %turn.word
  %other = load i64, ptr %other.word, align 8
  %other.slot = getelementptr inbounds i64, ptr %values, i64 %other
  %other.value = load i64, ptr %other.slot, align 8
  store i64 %other.value, ptr %turn.slot, align 8
  %turn.word.next = add i64 %turn.word, 1
  br label %turn.next
turned:
  store i64 %turn.first, ptr %turn.slot, align 8
  br label %next
count:
  %number = load i64, ptr %named.slot, align 8
  %number.next = add i64 %number, 1
  store i64 %number.next, ptr %named.slot, align 8
  %more.rounds = icmp slt i64 %number.next, %given
  br i1 %more.rounds, label %again, label %next
again:
  %back = load i64, ptr %l4, align 8
  %back.words = sub i64 0, %back
  %round = getelementptr inbounds i64, ptr %launch, i64 %back.words
  %until = load i64, ptr %deadline, align 8
  %now = call i64 @now()
  %is.late = icmp sgt i64 %now, %until
  br i1 %is.late, label %late, label %next
late:
  %is.begun = icmp ne i64 %until, 0
  br i1 %is.begun, label %pause, label %patient
patient:
  %later = add i64 %now, @@PATIENCE
  store i64 %later, ptr %deadline, align 8
  br label %next
pause:
  store ptr %round, ptr %position, align 8
  ret i64 @@PAUSED
unless:
  %cell = load ptr, ptr %named.slot, align 8
  %asked.place = getelementptr i8, ptr %cell, i64 %given
  %asked = load i8, ptr %asked.place, align 1
  %is.no = icmp eq i8 %asked, 0
  %skipped = load i64, ptr %l4, align 8
  %words.on = select i1 %is.no, i64 %skipped, i64 %step.words
  %after = getelementptr inbounds i64, ptr %launch, i64 %words.on
  br label %next
failed:
  ret i64 @@FAILED
prepare:
  %kernel = inttoptr i64 %kind to ptr
  %blocks = load i64, ptr %l1, align 8
  %slots = load i64, ptr %l2, align 8
  %template = getelementptr inbounds i64, ptr %launch, i64 3
  %words = mul i64 %slots, 2
  %launch.next = getelementptr inbounds i64, ptr %template, i64 %words
  br label %fill.next
fill.next:
  %slot = phi i64 [ 0, %prepare ], [ %slot.next, %fill.store ]
  %more.slots = icmp slt i64 %slot, %slots
  br i1 %more.slots, label %fill, label %start
fill:
  %twice = mul i64 %slot, 2
  %refers.slot = getelementptr inbounds i64, ptr %template, i64 %twice
  %refers = load i64, ptr %refers.slot, align 8
  %word.slot = getelementptr inbounds i64, ptr %refers.slot, i64 1
  %word = load i64, ptr %word.slot, align 8
  %is.value = icmp ne i64 %refers, 0
  br i1 %is.value, label %fill.value, label %fill.store
fill.value:
  %value.slot = getelementptr inbounds i64, ptr %values, i64 %word
  %value = load i64, ptr %value.slot, align 8
  br label %fill.store
fill.store:
  %stored = phi i64 [ %word, %fill ], [ %value, %fill.value ]
  %block.slot = getelementptr inbounds i64, ptr %block, i64 %slot
  store i64 %stored, ptr %block.slot, align 8
  %slot.next = add i64 %slot, 1
  br label %fill.next
start:
  %several = icmp sgt i64 %blocks, 1
  %helped = icmp sgt i64 %tickets, 0
  %wanted = and i1 %several, %helped
  %driver = load ptr, ptr %pool.words, align 8
  %is.there = icmp ne ptr %driver, null
  %shared = and i1 %wanted, %is.there
  br i1 %shared, label %together, label %alone
alone:
  call void %kernel(ptr %block, i64 0, i64 %blocks, ptr %workspace)
  br label %next
together:
  %others = sub i64 %blocks, 1
  %offered = call i64 @llvm.smin.i64(i64 %tickets, i64 %others)
  %pool.slot = getelementptr inbounds i64, ptr %pool.words, i64 1
  %pool = load i64, ptr %pool.slot, align 8
  %c1 = getelementptr inbounds i64, ptr %call, i64 1
  %c2 = getelementptr inbounds i64, ptr %call, i64 2
  %c3 = getelementptr inbounds i64, ptr %call, i64 3
  %c4 = getelementptr inbounds i64, ptr %call, i64 4
  %c5 = getelementptr inbounds i64, ptr %call, i64 5
  %c6 = getelementptr inbounds i64, ptr %call, i64 6
  store ptr %kernel, ptr %call, align 8
  store ptr %block, ptr %c1, align 8
  store i64 %blocks, ptr %c2, align 8
  store i64 1, ptr %c3, align 8
  store ptr %workspace, ptr %c4, align 8
  store i64 %pool, ptr %c5, align 8
  store i64 %offered, ptr %c6, align 8
  call void %driver(ptr %call)
  br label %next
finished:
  ret i64 @@DONE
}
"""
)
