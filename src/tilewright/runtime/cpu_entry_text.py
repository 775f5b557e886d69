"""The native half of entries (`cpu_entry`), as LLVM text: guards, the new result, the argument block, the launch."""

from __future__ import annotations

WORKSPACE_BYTES = 8 << 20
"""Kernels that need more than this get no entry. Only the pages that a kernel touches take memory."""

TEMPORARY_BYTES = 1 << 20
"""Room for arrays between launches, behind the kernels' workspace."""

MOST_ARRAYS, MOST_SLOTS = 32, 96
BYTES_HEADER = 32
WRITEABLE = 0x400
WRITEABLE_BITS = WRITEABLE - 2**31  # with the bit of arrays that warn when they are written, which must not be set


def entry_text() -> str:
    """LLVM text of `entry(ptr self, ptr arguments, i64 count)`, whose self is a description (of `make_entry`)."""
    return (
        _TEMPLATE.replace("@@HEADER", str(BYTES_HEADER))
        .replace("@@ARRAYS", str(MOST_ARRAYS))
        .replace("@@SLOTS", str(MOST_SLOTS))
        .replace("@@WORKSPACE", str(WORKSPACE_BYTES + TEMPORARY_BYTES + 128))
        .replace("@@WRITEABLE_BITS", str(WRITEABLE_BITS))
        .replace("@@WRITEABLE", str(WRITEABLE))
    )


# Slots of eight bytes. The state: the first free workspace, PyEval_SaveThread, PyEval_RestoreThread, Py_IncRef,
# Py_DecRef, PyMem_RawMalloc, PyArray_NewFromDescr, the type of arrays, None, PyArray_Return. The description: see
# `make_entry`.
# A free workspace starts with the address of the next one; the 64 bytes of this are not the kernel's.
_TEMPLATE = """
define ptr @entry(ptr %self, ptr %given, i64 %count) {
entry:
  %addresses = alloca [@@ARRAYS x i64], align 16
  %block = alloca [@@SLOTS x i64], align 16
  %description = getelementptr inbounds i8, ptr %self, i64 @@HEADER
  %state = load ptr, ptr %description, align 8
  %d1 = getelementptr inbounds i64, ptr %description, i64 1
  %d2 = getelementptr inbounds i64, ptr %description, i64 2
  %d3 = getelementptr inbounds i64, ptr %description, i64 3
  %d4 = getelementptr inbounds i64, ptr %description, i64 4
  %d5 = getelementptr inbounds i64, ptr %description, i64 5
  %forms = getelementptr inbounds i64, ptr %description, i64 6
  %arrays = load i64, ptr %d1, align 8
  %works = load i64, ptr %d2, align 8
  %makes = load i64, ptr %d3, align 8
  %temporaries = load i64, ptr %d4, align 8
  %launches = load i64, ptr %d5, align 8
  %s1 = getelementptr inbounds i64, ptr %state, i64 1
  %s2 = getelementptr inbounds i64, ptr %state, i64 2
  %s3 = getelementptr inbounds i64, ptr %state, i64 3
  %s4 = getelementptr inbounds i64, ptr %state, i64 4
  %s5 = getelementptr inbounds i64, ptr %state, i64 5
  %s6 = getelementptr inbounds i64, ptr %state, i64 6
  %s7 = getelementptr inbounds i64, ptr %state, i64 7
  %s8 = getelementptr inbounds i64, ptr %state, i64 8
  %save.thread = load ptr, ptr %s1, align 8
  %restore.thread = load ptr, ptr %s2, align 8
  %increase = load ptr, ptr %s3, align 8
  %decrease = load ptr, ptr %s4, align 8
  %allocate = load ptr, ptr %s5, align 8
  %new.array = load ptr, ptr %s6, align 8
  %array.type = load ptr, ptr %s7, align 8
  %none = load ptr, ptr %s8, align 8
  %s9 = getelementptr inbounds i64, ptr %state, i64 9
  %as.scalar = load ptr, ptr %s9, align 8
  %last = sub i64 %arrays, 1
  %as.many = icmp eq i64 %count, %arrays
  br i1 %as.many, label %next.array, label %unfit

next.array:
  %number = phi i64 [ 0, %entry ], [ %number.next, %fits ]
  %form = phi ptr [ %forms, %entry ], [ %form.next, %fits ]
  %given.slot = getelementptr inbounds ptr, ptr %given, i64 %number
  %object = load ptr, ptr %given.slot, align 8
  %is.last = icmp eq i64 %number, %last
  %is.none = icmp eq ptr %object, %none
  %is.wanted = and i1 %is.last, %is.none
  %form.rank.slot = getelementptr inbounds i64, ptr %form, i64 1
  %rank = load i64, ptr %form.rank.slot, align 8
  %form.mask.slot = getelementptr inbounds i64, ptr %form, i64 2
  %mask = load i64, ptr %form.mask.slot, align 8
  %form.shape = getelementptr inbounds i64, ptr %form, i64 5
  %form.strides = getelementptr inbounds i64, ptr %form.shape, i64 %rank
  %form.next = getelementptr inbounds i64, ptr %form.strides, i64 %rank
  %address.slot = getelementptr inbounds i64, ptr %addresses, i64 %number
  %number.next = add i64 %number, 1
  br i1 %is.wanted, label %make, label %look
look:
  %type.slot = getelementptr inbounds i8, ptr %object, i64 8
  %type = load ptr, ptr %type.slot, align 8
  %is.array = icmp eq ptr %type, %array.type
  br i1 %is.array, label %look.dtype, label %unfit
look.dtype:
  %dtype.slot = getelementptr inbounds i8, ptr %object, i64 56
  %dtype = load ptr, ptr %dtype.slot, align 8
  %form.dtype = load ptr, ptr %form, align 8
  %same.dtype = icmp eq ptr %dtype, %form.dtype
  %rank.slot = getelementptr inbounds i8, ptr %object, i64 24
  %object.rank.short = load i32, ptr %rank.slot, align 8
  %object.rank = sext i32 %object.rank.short to i64
  %same.rank = icmp eq i64 %object.rank, %rank
  %data.slot = getelementptr inbounds i8, ptr %object, i64 16
  %data = load i64, ptr %data.slot, align 8
  %low.bits = and i64 %data, %mask
  %aligned = icmp eq i64 %low.bits, 0
  %fine.a = and i1 %same.dtype, %same.rank
  %fine.b = and i1 %fine.a, %aligned
  %shape.slot = getelementptr inbounds i8, ptr %object, i64 32
  %shape = load ptr, ptr %shape.slot, align 8
  %strides.slot = getelementptr inbounds i8, ptr %object, i64 40
  %strides = load ptr, ptr %strides.slot, align 8
  store i64 %data, ptr %address.slot, align 8
  br i1 %fine.b, label %axes, label %unfit
axes:
  %axis = phi i64 [ 0, %look.dtype ], [ %axis.next, %same.axis ]
  %more.axes = icmp slt i64 %axis, %rank
  br i1 %more.axes, label %compare, label %fits.or.last
compare:
  %extent.slot = getelementptr inbounds i64, ptr %shape, i64 %axis
  %extent = load i64, ptr %extent.slot, align 8
  %form.extent.slot = getelementptr inbounds i64, ptr %form.shape, i64 %axis
  %form.extent = load i64, ptr %form.extent.slot, align 8
  %stride.slot = getelementptr inbounds i64, ptr %strides, i64 %axis
  %stride = load i64, ptr %stride.slot, align 8
  %form.stride.slot = getelementptr inbounds i64, ptr %form.strides, i64 %axis
  %form.stride = load i64, ptr %form.stride.slot, align 8
  %same.extent = icmp eq i64 %extent, %form.extent
  %same.stride = icmp eq i64 %stride, %form.stride
  %same.both = and i1 %same.extent, %same.stride
  br i1 %same.both, label %same.axis, label %unfit
same.axis:
  %axis.next = add i64 %axis, 1
  br label %axes
fits.or.last:
  br i1 %is.last, label %writeable, label %fits
fits:
  br label %next.array

writeable:
  %flags.slot = getelementptr inbounds i8, ptr %object, i64 64
  %flags = load i32, ptr %flags.slot, align 8
  %write.bits = and i32 %flags, @@WRITEABLE_BITS
  %may.write = icmp eq i32 %write.bits, @@WRITEABLE
  br i1 %may.write, label %apart, label %unfit
apart:
  %out.low.slot = getelementptr inbounds i64, ptr %form, i64 3
  %out.low.offset = load i64, ptr %out.low.slot, align 8
  %out.high.slot = getelementptr inbounds i64, ptr %form, i64 4
  %out.high.offset = load i64, ptr %out.high.slot, align 8
  %out.low = add i64 %data, %out.low.offset
  %out.high = add i64 %data, %out.high.offset
  br label %other
other:
  %operand = phi i64 [ 0, %apart ], [ %operand.next, %disjoint ]
  %other.form = phi ptr [ %forms, %apart ], [ %other.form.next, %disjoint ]
  %some.operand = icmp slt i64 %operand, %last
  br i1 %some.operand, label %measure, label %keep
measure:
  %operand.slot = getelementptr inbounds i64, ptr %addresses, i64 %operand
  %operand.data = load i64, ptr %operand.slot, align 8
  %other.rank.slot = getelementptr inbounds i64, ptr %other.form, i64 1
  %other.rank = load i64, ptr %other.rank.slot, align 8
  %low.slot = getelementptr inbounds i64, ptr %other.form, i64 3
  %low.offset = load i64, ptr %low.slot, align 8
  %high.slot = getelementptr inbounds i64, ptr %other.form, i64 4
  %high.offset = load i64, ptr %high.slot, align 8
  %other.shape = getelementptr inbounds i64, ptr %other.form, i64 5
  %other.strides = getelementptr inbounds i64, ptr %other.shape, i64 %other.rank
  %other.form.next = getelementptr inbounds i64, ptr %other.strides, i64 %other.rank
  %low = add i64 %operand.data, %low.offset
  %high = add i64 %operand.data, %high.offset
  %below = icmp ult i64 %low, %out.high
  %above = icmp ult i64 %out.low, %high
  %overlaps = and i1 %below, %above
  %operand.next = add i64 %operand, 1
  br i1 %overlaps, label %unfit, label %disjoint
disjoint:
  br label %other
keep:
  call void %increase(ptr %object)
  br label %fill

make:
  %may.make = icmp ne i64 %makes, 0
  br i1 %may.make, label %make.array, label %unfit
make.array:
  %made.dtype = load ptr, ptr %form, align 8
  call void %increase(ptr %made.dtype)
  %made.rank = trunc i64 %rank to i32
  %made = call ptr %new.array(ptr %array.type, ptr %made.dtype, i32 %made.rank, ptr %form.shape, ptr %form.strides,
    ptr null, i32 0, ptr null)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %error, label %made.look
error:
  ret ptr null
made.look:
  %made.data.slot = getelementptr inbounds i8, ptr %made, i64 16
  %made.data = load i64, ptr %made.data.slot, align 8
  store i64 %made.data, ptr %address.slot, align 8
  %made.low.bits = and i64 %made.data, %mask
  %made.aligned = icmp eq i64 %made.low.bits, 0
  br i1 %made.aligned, label %fill, label %drop

fill:
  %result = phi ptr [ %object, %keep ], [ %made, %made.look ]
  br label %workspace.look

workspace.look:
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
  %raw = call ptr %allocate(i64 @@WORKSPACE)
  %none.left = icmp eq ptr %raw, null
  br i1 %none.left, label %drop, label %grown
grown:
  %raw.number = ptrtoint ptr %raw to i64
  %raw.up = add i64 %raw.number, 63
  %raw.aligned = and i64 %raw.up, -64
  %fresh = inttoptr i64 %raw.aligned to ptr
  br label %run
run:
  %node = phi ptr [ null, %workspace.look ], [ %head, %pop ], [ %fresh, %grown ]
  %workspace = getelementptr i8, ptr %node, i64 64
  %first.launch = getelementptr inbounds i64, ptr %form.next, i64 %temporaries
  br label %next.temporary
next.temporary:
  %temporary = phi i64 [ 0, %run ], [ %temporary.next, %place ]
  %more.temporaries = icmp slt i64 %temporary, %temporaries
  br i1 %more.temporaries, label %place, label %release
place:
  %offset.slot = getelementptr inbounds i64, ptr %form.next, i64 %temporary
  %offset = load i64, ptr %offset.slot, align 8
  %temporary.place = getelementptr i8, ptr %workspace, i64 %offset
  %temporary.number = add i64 %arrays, %temporary
  %temporary.slot = getelementptr inbounds i64, ptr %addresses, i64 %temporary.number
  store ptr %temporary.place, ptr %temporary.slot, align 8
  %temporary.next = add i64 %temporary, 1
  br label %next.temporary

release:
  %thread = call ptr %save.thread()
  br label %next.launch
next.launch:
  %launch = phi ptr [ %first.launch, %release ], [ %launch.next, %call ]
  %launched = phi i64 [ 0, %release ], [ %launched.next, %call ]
  %more.launches = icmp slt i64 %launched, %launches
  br i1 %more.launches, label %prepare, label %finished
prepare:
  %kernel = load ptr, ptr %launch, align 8
  %l1 = getelementptr inbounds i64, ptr %launch, i64 1
  %blocks = load i64, ptr %l1, align 8
  %l2 = getelementptr inbounds i64, ptr %launch, i64 2
  %buffers = load i64, ptr %l2, align 8
  %l3 = getelementptr inbounds i64, ptr %launch, i64 3
  %slots = load i64, ptr %l3, align 8
  %template = getelementptr inbounds i64, ptr %launch, i64 4
  %launch.next = getelementptr inbounds i64, ptr %template, i64 %slots
  %launched.next = add i64 %launched, 1
  br label %fill.next
fill.next:
  %slot = phi i64 [ 0, %prepare ], [ %slot.next, %fill.store ]
  %more.slots = icmp slt i64 %slot, %slots
  br i1 %more.slots, label %fill.slot, label %call
fill.slot:
  %template.slot = getelementptr inbounds i64, ptr %template, i64 %slot
  %word = load i64, ptr %template.slot, align 8
  %is.buffer = icmp slt i64 %slot, %buffers
  br i1 %is.buffer, label %fill.address, label %fill.store
fill.address:
  %buffer.slot = getelementptr inbounds i64, ptr %addresses, i64 %word
  %buffer = load i64, ptr %buffer.slot, align 8
  br label %fill.store
fill.store:
  %stored = phi i64 [ %word, %fill.slot ], [ %buffer, %fill.address ]
  %block.slot = getelementptr inbounds i64, ptr %block, i64 %slot
  store i64 %stored, ptr %block.slot, align 8
  %slot.next = add i64 %slot, 1
  br label %fill.next
call:
  call void %kernel(ptr %block, i64 0, i64 %blocks, ptr %workspace)
  br label %next.launch

finished:
  call void %restore.thread(ptr %thread)
  br i1 %works.not, label %done, label %push
push:
  %next.free = load ptr, ptr %state, align 8
  store ptr %next.free, ptr %node, align 8
  store ptr %node, ptr %state, align 8
  br label %done
done:
  %is.scalar = icmp eq i64 %rank, 0
  %is.element = and i1 %is.wanted, %is.scalar
  br i1 %is.element, label %element, label %give
element:
  %scalar = call ptr %as.scalar(ptr %result)
  ret ptr %scalar
give:
  ret ptr %result

drop:
  %dropped = phi ptr [ %made, %made.look ], [ %result, %grow ]
  call void %decrease(ptr %dropped)
  br label %unfit
unfit:
  call void %increase(ptr %none)
  ret ptr %none
}
"""
