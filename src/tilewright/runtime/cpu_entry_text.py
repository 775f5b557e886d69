"""The native half of entries (`cpu_entry`), as LLVM text: guards, new results, argument blocks, launches."""

from __future__ import annotations

import sys

from tilewright.runtime.cpu_entry_guards import GUARDS
from tilewright.runtime.cpu_entry_steps import FIELDS, STEPS
from tilewright.runtime.recycling import HUGE_PAGE

WORKSPACE_BYTES = 64 << 20
"""Kernels that need more than this get no entry. Only the pages that a kernel touches take memory."""

TEMPORARY_BYTES = 16 << 20
"""Room for arrays between launches, behind the kernels' workspace."""

MOST_VALUES, MOST_RESULTS, MOST_SLOTS = 512, 16, 96
BYTES_HEADER = 32
WRITEABLE = 0x400
WRITEABLE_BITS = WRITEABLE - 2**31  # with the bit of arrays that warn when they are written, which must not be set
TRAIT_BITS = int.from_bytes(b"\xff\xff\xff\0\xff\xff\xff\xff", sys.byteorder, signed=True)  # all but the flags
MOST_EXACT = 1 << 53  # of the integers that f64 holds without gaps

# What an operand may be: the first word of a form after its length.
# EXACT_INTEGER is
# an int of one value, the form's third word, that kernels do not read.
ARRAY, F64_SCALAR, F32_SCALAR, I64_SCALAR, I32_SCALAR, EXACT_INTEGER = range(6)

# The words of the state, of eight bytes each. FREE: the first free workspace, which starts with the address of the
# next one; its first 64 bytes are not the kernel's. POOL: where `cpu_pool.POOL_WORDS` are. ADVISE: the system's
# `madvise`, and HUGE what tells it that huge pages are wanted; 0 where it knows none.
STATE = (
    "FREE", "POOL", "SAVE_THREAD", "RESTORE_THREAD", "INCREASE", "DECREASE", "ALLOCATE", "ADVISE", "HUGE", "NEW_ARRAY",
    "AS_SCALAR",
    "NEW_TUPLE", "SET_ITEM", "AS_INTEGER", "CHECK_SIGNALS", "ARRAY_TYPE", "FLOAT_TYPE", "INTEGER_TYPE",
    "F64_TYPE", "F32_TYPE", "I64_TYPE", "I32_TYPE", "NONE",
)  # fmt: skip

# The words of a description before the forms of operands and results, the temporary arrays (place in the workspace,
# bytes of an error record or 0), and the steps, whose words are counted by STEPS. A step is a launch (kernel, blocks,
# slots; for each slot 0 and a word, or 1 and the number of a value: operands, results, temporary arrays, counters), or
# a number of `cpu_entry_steps`, the words of the step, and what it is about.
DESCRIPTION = (
    "STATE", "OPERANDS", "RESULTS", "MAKES", "WORKS", "TEMPORARIES", "STEPS", "TUPLE", "TICKETS",
    "SHARED",
)  # fmt: skip


def entry_text() -> str:
    """LLVM text of `entry(ptr self, ptr arguments, i64 count)`, whose self is a description (of `make_entry`), and of
    `run(ptr position, ptr end, ptr values, ptr workspace, ptr pool_words, i64 tickets)`, which does such steps alone.
    """
    room = WORKSPACE_BYTES + TEMPORARY_BYTES + 128
    fields = {
        "HEADER": BYTES_HEADER, "VALUES": MOST_VALUES, "MADE": MOST_RESULTS, "SLOTS": MOST_SLOTS,
        "WORKSPACE": room, "ROOM": room + HUGE_PAGE, "BEFORE_PAGE": HUGE_PAGE - 1, "PAGE_BITS": -HUGE_PAGE,
        "WRITEABLE_BITS": WRITEABLE_BITS, "WRITEABLE": WRITEABLE, "TRAIT_BITS": TRAIT_BITS,
        "MOST_EXACT": MOST_EXACT, "FORMS": 8 * len(DESCRIPTION), **FIELDS,
    }  # fmt: skip
    fields |= {f"S_{name}": 8 * number for number, name in enumerate(STATE)}
    fields |= {f"D_{name}": 8 * number for number, name in enumerate(DESCRIPTION)}
    text = GUARDS + STEPS + _ENTRY
    for name in sorted(fields, key=len, reverse=True):
        text = text.replace(f"@@{name}", str(fields[name]))
    return text


_ENTRY = """
define ptr @entry(ptr %self, ptr %given, i64 %count) {
entry:
  %values = alloca [@@VALUES x i64], align 16
  %made = alloca [@@MADE x ptr], align 16
  %position = alloca ptr, align 8
  %description = getelementptr inbounds i8, ptr %self, i64 @@HEADER
  %state = load ptr, ptr %description, align 8
  %operands.slot = getelementptr inbounds i8, ptr %description, i64 @@D_OPERANDS
  %operands = load i64, ptr %operands.slot, align 8
  %results.slot = getelementptr inbounds i8, ptr %description, i64 @@D_RESULTS
  %results = load i64, ptr %results.slot, align 8
  %tickets.slot = getelementptr inbounds i8, ptr %description, i64 @@D_TICKETS
  %tickets = load i64, ptr %tickets.slot, align 8
  %forms = getelementptr inbounds i8, ptr %description, i64 @@FORMS
  %pool.slot = getelementptr inbounds i8, ptr %state, i64 @@S_POOL
  %pool.words = load ptr, ptr %pool.slot, align 8
  %none.slot = getelementptr inbounds i8, ptr %state, i64 @@S_NONE
  %none = load ptr, ptr %none.slot, align 8
  %increase.slot = getelementptr inbounds i8, ptr %state, i64 @@S_INCREASE
  %increase = load ptr, ptr %increase.slot, align 8
  %decrease.slot = getelementptr inbounds i8, ptr %state, i64 @@S_DECREASE
  %decrease = load ptr, ptr %decrease.slot, align 8
  %wanted = add i64 %operands, %results
  %as.many = icmp eq i64 %count, %wanted
  %results.left.out = icmp eq i64 %count, %operands
  %may.fit = or i1 %as.many, %results.left.out
  br i1 %may.fit, label %threads, label %unfit

; So many workers must be there, with workspaces that are large enough: the long way sees to that.
threads:
  %alone = icmp eq i64 %tickets, 0
  br i1 %alone, label %next.operand, label %pool.look
pool.look:
  %pool.address.slot = getelementptr inbounds i64, ptr %pool.words, i64 1
  %pool = load i64, ptr %pool.address.slot, align 8
  %pool.bytes.slot = getelementptr inbounds i64, ptr %pool.words, i64 2
  %pool.bytes = load i64, ptr %pool.bytes.slot, align 8
  %shared.slot = getelementptr inbounds i8, ptr %description, i64 @@D_SHARED
  %shared = load i64, ptr %shared.slot, align 8
  %is.there = icmp ne i64 %pool, 0
  %is.large = icmp sge i64 %pool.bytes, %shared
  %workers.slot = getelementptr inbounds i64, ptr %pool.words, i64 3
  %workers = load i64, ptr %workers.slot, align 8
  %are.enough = icmp sge i64 %workers, %tickets
  %is.ready = and i1 %is.large, %are.enough
  %can.share = and i1 %is.there, %is.ready
  br i1 %can.share, label %next.operand, label %unfit

next.operand:
  %operand = phi i64 [ 0, %threads ], [ 0, %pool.look ], [ %operand.next, %array ], [ %operand.next, %scalar ]
  %form = phi ptr [ %forms, %threads ], [ %forms, %pool.look ], [ %form.next, %array ], [ %form.next, %scalar ]
  %more.operands = icmp slt i64 %operand, %operands
  br i1 %more.operands, label %check, label %next.result
check:
  %given.slot = getelementptr inbounds ptr, ptr %given, i64 %operand
  %object = load ptr, ptr %given.slot, align 8
  %place = getelementptr inbounds i64, ptr %values, i64 %operand
  %length = load i64, ptr %form, align 8
  %form.next = getelementptr inbounds i64, ptr %form, i64 %length
  %kind.slot = getelementptr inbounds i64, ptr %form, i64 1
  %kind = load i64, ptr %kind.slot, align 8
  %operand.next = add i64 %operand, 1
  %is.array = icmp eq i64 %kind, 0
  br i1 %is.array, label %array, label %scalar
array:
  %array.fits = call i1 @array_fits(ptr %object, ptr %form, ptr %state, ptr %place)
  br i1 %array.fits, label %next.operand, label %unfit
scalar:
  %scalar.fits = call i1 @scalar_fits(ptr %object, i64 %kind, ptr %form, ptr %state, ptr %place)
  br i1 %scalar.fits, label %next.operand, label %unfit

next.result:
  %result = phi i64 [ 0, %next.operand ], [ %result.next, %kept ], [ %result.next, %fresh ]
  %all.made = phi i1 [ true, %next.operand ], [ false, %kept ], [ %all.made, %fresh ]
  %result.form = phi ptr [ %form, %next.operand ], [ %result.form.next, %kept ], [ %result.form.next, %fresh ]
  %more.results = icmp slt i64 %result, %results
  br i1 %more.results, label %place.result, label %workspace.look
place.result:
  %result.number = add i64 %operands, %result
  %result.listed.slot = getelementptr ptr, ptr %given, i64 %result.number
  %result.given.slot = select i1 %as.many, ptr %result.listed.slot, ptr %none.slot
  %result.object = load ptr, ptr %result.given.slot, align 8
  %result.place = getelementptr inbounds i64, ptr %values, i64 %result.number
  %result.slot = getelementptr inbounds ptr, ptr %made, i64 %result
  %result.length = load i64, ptr %result.form, align 8
  %result.form.next = getelementptr inbounds i64, ptr %result.form, i64 %result.length
  %result.next = add i64 %result, 1
  %is.none = icmp eq ptr %result.object, %none
  br i1 %is.none, label %may.make, label %result.look
result.look:
  %result.fits = call i1 @array_fits(ptr %result.object, ptr %result.form, ptr %state, ptr %result.place)
  br i1 %result.fits, label %result.write, label %drop
result.write:
  %may.write = call i1 @may_be_written(ptr %result.object, ptr %result.form, ptr %forms, i64 %result.number,
    ptr %values)
  br i1 %may.write, label %kept, label %drop
kept:
  call void %increase(ptr %result.object)
  store ptr %result.object, ptr %result.slot, align 8
  br label %next.result
may.make:
  %makes.slot = getelementptr inbounds i8, ptr %description, i64 @@D_MAKES
  %makes = load i64, ptr %makes.slot, align 8
  %allowed = icmp ne i64 %makes, 0
  br i1 %allowed, label %make, label %drop
make:
  %form.dtype.slot = getelementptr inbounds i64, ptr %result.form, i64 2
  %form.dtype = load ptr, ptr %form.dtype.slot, align 8
  %form.rank.slot = getelementptr inbounds i64, ptr %result.form, i64 3
  %form.rank = load i64, ptr %form.rank.slot, align 8
  %form.shape = getelementptr inbounds i64, ptr %result.form, i64 7
  %form.strides = getelementptr inbounds i64, ptr %form.shape, i64 %form.rank
  %rank = trunc i64 %form.rank to i32
  %array.type.slot = getelementptr inbounds i8, ptr %state, i64 @@S_ARRAY_TYPE
  %array.type = load ptr, ptr %array.type.slot, align 8
  %new.array.slot = getelementptr inbounds i8, ptr %state, i64 @@S_NEW_ARRAY
  %new.array = load ptr, ptr %new.array.slot, align 8
  call void %increase(ptr %form.dtype)
  %new = call ptr %new.array(ptr %array.type, ptr %form.dtype, i32 %rank, ptr %form.shape, ptr %form.strides,
    ptr null, i32 0, ptr null)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %drop, label %new.look
new.look:
  store ptr %new, ptr %result.slot, align 8
  %data.slot = getelementptr inbounds i8, ptr %new, i64 16
  %data = load i64, ptr %data.slot, align 8
  store i64 %data, ptr %result.place, align 8
  %mask.slot = getelementptr inbounds i64, ptr %result.form, i64 4
  %mask = load i64, ptr %mask.slot, align 8
  %low.bits = and i64 %data, %mask
  %aligned = icmp eq i64 %low.bits, 0
  br i1 %aligned, label %fresh, label %drop
fresh:
  br label %next.result

workspace.look:
  %works.slot = getelementptr inbounds i8, ptr %description, i64 @@D_WORKS
  %works = load i64, ptr %works.slot, align 8
  %works.not = icmp eq i64 %works, 0
  br i1 %works.not, label %run, label %take
take:
  %head = load ptr, ptr %state, align 8
  %is.empty = icmp eq ptr %head, null
  br i1 %is.empty, label %grow, label %pop
pop:
  %rest = load ptr, ptr %head, align 8
  store ptr %rest, ptr %state, align 8
  br label %run
grow:
  %allocate.slot = getelementptr inbounds i8, ptr %state, i64 @@S_ALLOCATE
  %allocate = load ptr, ptr %allocate.slot, align 8
  %raw = call ptr %allocate(i64 @@ROOM)
  %none.left = icmp eq ptr %raw, null
  br i1 %none.left, label %drop, label %grown
grown:
  %raw.number = ptrtoint ptr %raw to i64
  %raw.up = add i64 %raw.number, @@BEFORE_PAGE
  %raw.aligned = and i64 %raw.up, @@PAGE_BITS
  %new.node = inttoptr i64 %raw.aligned to ptr
  %advise.slot = getelementptr inbounds i8, ptr %state, i64 @@S_ADVISE
  %advise = load ptr, ptr %advise.slot, align 8
  %no.advice = icmp eq ptr %advise, null
  br i1 %no.advice, label %run, label %advised
advised: ; without huge pages it serves as well, only slower
  %huge.slot = getelementptr inbounds i8, ptr %state, i64 @@S_HUGE
  %huge = load i32, ptr %huge.slot, align 8
  call i32 %advise(ptr %new.node, i64 @@WORKSPACE, i32 %huge)
  br label %run
run:
  %node = phi ptr [ null, %workspace.look ], [ %head, %pop ], [ %new.node, %grown ], [ %new.node, %advised ]
  %workspace = getelementptr i8, ptr %node, i64 64
  %temporaries.slot = getelementptr inbounds i8, ptr %description, i64 @@D_TEMPORARIES
  %temporaries = load i64, ptr %temporaries.slot, align 8
  %temporary.words = mul i64 %temporaries, 2
  %launches = getelementptr inbounds i64, ptr %result.form, i64 %temporary.words
  br label %next.temporary
next.temporary:
  %temporary = phi i64 [ 0, %run ], [ %temporary.next, %place.temporary ]
  %more.temporaries = icmp slt i64 %temporary, %temporaries
  br i1 %more.temporaries, label %place.temporary, label %start
place.temporary:
  %twice = mul i64 %temporary, 2
  %offset.slot = getelementptr inbounds i64, ptr %result.form, i64 %twice
  %offset = load i64, ptr %offset.slot, align 8
  %temporary.place = getelementptr i8, ptr %workspace, i64 %offset
  %temporary.number = add i64 %wanted, %temporary
  %temporary.slot = getelementptr inbounds i64, ptr %values, i64 %temporary.number
  store ptr %temporary.place, ptr %temporary.slot, align 8
  %temporary.next = add i64 %temporary, 1
  br label %next.temporary

start:
  %step.words.slot = getelementptr inbounds i8, ptr %description, i64 @@D_STEPS
  %step.words = load i64, ptr %step.words.slot, align 8
  %end = getelementptr inbounds i64, ptr %launches, i64 %step.words
  store ptr %launches, ptr %position, align 8
  call void @clear_records(ptr %result.form, i64 %temporaries, ptr %workspace)
  %save.thread.slot = getelementptr inbounds i8, ptr %state, i64 @@S_SAVE_THREAD
  %save.thread = load ptr, ptr %save.thread.slot, align 8
  %restore.thread.slot = getelementptr inbounds i8, ptr %state, i64 @@S_RESTORE_THREAD
  %restore.thread = load ptr, ptr %restore.thread.slot, align 8
  br label %go
go:
  %thread = call ptr %save.thread()
  %status = call i64 @run(ptr %position, ptr %end, ptr %values, ptr %workspace, ptr %pool.words, i64 %tickets)
  call void %restore.thread(ptr %thread)
  %is.paused = icmp eq i64 %status, @@PAUSED
  br i1 %is.paused, label %signals, label %ran
signals:
  %check.signals.slot = getelementptr inbounds i8, ptr %state, i64 @@S_CHECK_SIGNALS
  %check.signals = load ptr, ptr %check.signals.slot, align 8
  %raised = call i32 %check.signals()
  %goes.on = icmp eq i32 %raised, 0
  br i1 %goes.on, label %go, label %ran
ran:
  %reply = phi ptr [ %none, %go ], [ null, %signals ]
  %right = icmp eq i64 %status, @@DONE
  br i1 %works.not, label %finished, label %push
push:
  %next.free = load ptr, ptr %state, align 8
  store ptr %next.free, ptr %node, align 8
  store ptr %node, ptr %state, align 8
  br label %finished
finished:
  br i1 %right, label %deliver, label %drop

; New arrays without dimensions become NumPy scalars.
deliver:
  %as.scalar.slot = getelementptr inbounds i8, ptr %state, i64 @@S_AS_SCALAR
  %as.scalar = load ptr, ptr %as.scalar.slot, align 8
  %tuple.slot = getelementptr inbounds i8, ptr %description, i64 @@D_TUPLE
  %gives.tuple = load i64, ptr %tuple.slot, align 8
  %gives.one = icmp eq i64 %gives.tuple, 0
  br i1 %gives.one, label %one, label %several
one:
  %single = load ptr, ptr %made, align 8
  %single.rank.slot = getelementptr inbounds i8, ptr %single, i64 24
  %single.rank = load i32, ptr %single.rank.slot, align 8
  %is.point = icmp eq i32 %single.rank, 0
  %is.scalar = and i1 %all.made, %is.point
  br i1 %is.scalar, label %element, label %give
element:
  %scalar.object = call ptr %as.scalar(ptr %single)
  ret ptr %scalar.object
give:
  ret ptr %single
several:
  %new.tuple.slot = getelementptr inbounds i8, ptr %state, i64 @@S_NEW_TUPLE
  %new.tuple = load ptr, ptr %new.tuple.slot, align 8
  %set.item.slot = getelementptr inbounds i8, ptr %state, i64 @@S_SET_ITEM
  %set.item = load ptr, ptr %set.item.slot, align 8
  %tuple = call ptr %new.tuple(i64 %results)
  %no.tuple = icmp eq ptr %tuple, null
  br i1 %no.tuple, label %drop, label %next.item
next.item:
  %item = phi i64 [ 0, %several ], [ %item.next, %set ]
  %more.items = icmp slt i64 %item, %results
  br i1 %more.items, label %fetch, label %whole
fetch:
  %item.given.number = add i64 %operands, %item
  %item.listed.slot = getelementptr ptr, ptr %given, i64 %item.given.number
  %item.given.slot = select i1 %as.many, ptr %item.listed.slot, ptr %none.slot
  %item.given = load ptr, ptr %item.given.slot, align 8
  %item.made = icmp eq ptr %item.given, %none
  %item.slot = getelementptr inbounds ptr, ptr %made, i64 %item
  %item.array = load ptr, ptr %item.slot, align 8
  %item.next = add i64 %item, 1
  br i1 %item.made, label %convert, label %set
convert:
  %item.converted = call ptr %as.scalar(ptr %item.array)
  br label %set
set:
  %item.object = phi ptr [ %item.array, %fetch ], [ %item.converted, %convert ]
  %stored = call i32 %set.item(ptr %tuple, i64 %item, ptr %item.object)
  br label %next.item
whole:
  ret ptr %tuple

; The results so far are given up: those made, and what was held of those given. With null as the answer an exception
; has been set.
drop:
  %held = phi i64 [ %result, %result.look ], [ %result, %result.write ],
    [ %result, %may.make ], [ %result, %make ], [ %result.next, %new.look ], [ %results, %grow ],
    [ %results, %finished ], [ %results, %several ]
  %answer = phi ptr [ %none, %result.look ], [ %none, %result.write ],
    [ %none, %may.make ], [ null, %make ], [ %none, %new.look ], [ %none, %grow ],
    [ %reply, %finished ], [ null, %several ]
  br label %next.drop
next.drop:
  %dropped = phi i64 [ 0, %drop ], [ %dropped.next, %let.go ]
  %more.held = icmp slt i64 %dropped, %held
  br i1 %more.held, label %let.go, label %dropped.all
let.go:
  %held.slot = getelementptr inbounds ptr, ptr %made, i64 %dropped
  %held.object = load ptr, ptr %held.slot, align 8
  call void %decrease(ptr %held.object)
  %dropped.next = add i64 %dropped, 1
  br label %next.drop
dropped.all:
  %is.exception = icmp eq ptr %answer, null
  br i1 %is.exception, label %raise, label %unfit
raise:
  ret ptr null
unfit:
  call void %increase(ptr %none)
  ret ptr %none
}
"""
