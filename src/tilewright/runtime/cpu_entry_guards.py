"""The guards of entries (`cpu_entry_text`), as LLVM text: whether an argument is what a description says.

The fields in capitals are filled in by `cpu_entry_text`.
"""

from __future__ import annotations

# An array's fields after the header of every object (16 bytes, the type in the second half): data, rank (i32), shape,
# strides, base, dtype, flags (i32). A form of an array: length, kind, dtype, rank, mask, low, high, shape, strides.
# A dtype is mostly the one object that NumPy has of it, but arrays that were pickled have their own, and so have those
# computed from them. Its fields: the type of its scalars; kind, letter, order of bytes, flags (one byte each), number
# (i32). They say all of a type of numbers.
GUARDS = """
define internal i1 @array_fits(ptr %object, ptr %form, ptr %state, ptr %place) {
entry:
  %type.slot = getelementptr inbounds i8, ptr %object, i64 8
  %type = load ptr, ptr %type.slot, align 8
  %array.type.slot = getelementptr inbounds i8, ptr %state, i64 @@S_ARRAY_TYPE
  %array.type = load ptr, ptr %array.type.slot, align 8
  %is.array = icmp eq ptr %type, %array.type
  br i1 %is.array, label %look, label %unfit
look:
  %dtype.slot = getelementptr inbounds i8, ptr %object, i64 56
  %dtype = load ptr, ptr %dtype.slot, align 8
  %form.dtype.slot = getelementptr inbounds i64, ptr %form, i64 2
  %form.dtype = load ptr, ptr %form.dtype.slot, align 8
  %same.dtype = icmp eq ptr %dtype, %form.dtype
  br i1 %same.dtype, label %place.look, label %alike
alike:
  %kind.slot = getelementptr inbounds i8, ptr %dtype, i64 16
  %kind = load ptr, ptr %kind.slot, align 8
  %form.kind.slot = getelementptr inbounds i8, ptr %form.dtype, i64 16
  %form.kind = load ptr, ptr %form.kind.slot, align 8
  %same.kind = icmp eq ptr %kind, %form.kind
  %traits.slot = getelementptr inbounds i8, ptr %dtype, i64 24
  %traits = load i64, ptr %traits.slot, align 8
  %form.traits.slot = getelementptr inbounds i8, ptr %form.dtype, i64 24
  %form.traits = load i64, ptr %form.traits.slot, align 8
  %apart = xor i64 %traits, %form.traits
  %apart.bits = and i64 %apart, @@TRAIT_BITS
  %same.traits = icmp eq i64 %apart.bits, 0
  %is.alike = and i1 %same.kind, %same.traits
  br i1 %is.alike, label %place.look, label %unfit
place.look:
  %rank.slot = getelementptr inbounds i8, ptr %object, i64 24
  %rank.short = load i32, ptr %rank.slot, align 8
  %rank = sext i32 %rank.short to i64
  %form.rank.slot = getelementptr inbounds i64, ptr %form, i64 3
  %form.rank = load i64, ptr %form.rank.slot, align 8
  %same.rank = icmp eq i64 %rank, %form.rank
  %data.slot = getelementptr inbounds i8, ptr %object, i64 16
  %data = load i64, ptr %data.slot, align 8
  %mask.slot = getelementptr inbounds i64, ptr %form, i64 4
  %mask = load i64, ptr %mask.slot, align 8
  %low.bits = and i64 %data, %mask
  %aligned = icmp eq i64 %low.bits, 0
  %fine = and i1 %same.rank, %aligned
  %shape.slot = getelementptr inbounds i8, ptr %object, i64 32
  %shape = load ptr, ptr %shape.slot, align 8
  %strides.slot = getelementptr inbounds i8, ptr %object, i64 40
  %strides = load ptr, ptr %strides.slot, align 8
  %form.shape = getelementptr inbounds i64, ptr %form, i64 7
  %form.strides = getelementptr inbounds i64, ptr %form.shape, i64 %form.rank
  store i64 %data, ptr %place, align 8
  br i1 %fine, label %axes, label %unfit
axes:
  %axis = phi i64 [ 0, %place.look ], [ %axis.next, %compare ]
  %more = icmp slt i64 %axis, %rank
  br i1 %more, label %compare, label %fit
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
  %axis.next = add i64 %axis, 1
  br i1 %same.both, label %axes, label %unfit
fit:
  ret i1 true
unfit:
  ret i1 false
}

; A float or int, of Python or of NumPy, as the word that a kernel reads. Exact types only; nothing here can raise an
; exception.
define internal i1 @scalar_fits(ptr %object, i64 %kind, ptr %form, ptr %state, ptr %place) {
entry:
  %overflow = alloca i32, align 4
  %type.slot = getelementptr inbounds i8, ptr %object, i64 8
  %type = load ptr, ptr %type.slot, align 8
  %float.type.slot = getelementptr inbounds i8, ptr %state, i64 @@S_FLOAT_TYPE
  %float.type = load ptr, ptr %float.type.slot, align 8
  %integer.type.slot = getelementptr inbounds i8, ptr %state, i64 @@S_INTEGER_TYPE
  %integer.type = load ptr, ptr %integer.type.slot, align 8
  %value.slot = getelementptr inbounds i8, ptr %object, i64 16
  %is.integer = icmp eq ptr %type, %integer.type
  br i1 %is.integer, label %integer, label %perhaps.i64
perhaps.i64:
  %i64.type.slot = getelementptr inbounds i8, ptr %state, i64 @@S_I64_TYPE
  %i64.type = load ptr, ptr %i64.type.slot, align 8
  %is.i64 = icmp eq ptr %type, %i64.type
  br i1 %is.i64, label %i64, label %perhaps.i32
i64:
  %given.i64 = load i64, ptr %value.slot, align 8
  br label %integer.kinds
perhaps.i32:
  %i32.type.slot = getelementptr inbounds i8, ptr %state, i64 @@S_I32_TYPE
  %i32.type = load ptr, ptr %i32.type.slot, align 8
  %is.i32 = icmp eq ptr %type, %i32.type
  br i1 %is.i32, label %i32, label %perhaps.float
i32:
  %given.i32 = load i32, ptr %value.slot, align 8
  %widened.i32 = sext i32 %given.i32 to i64
  br label %integer.kinds
perhaps.float:
  %takes.float = icmp sle i64 %kind, 2
  br i1 %takes.float, label %some.float, label %unfit
some.float:
  %f64.type.slot = getelementptr inbounds i8, ptr %state, i64 @@S_F64_TYPE
  %f64.type = load ptr, ptr %f64.type.slot, align 8
  %is.own = icmp eq ptr %type, %float.type
  %is.f64 = icmp eq ptr %type, %f64.type
  %is.double = or i1 %is.own, %is.f64
  br i1 %is.double, label %float, label %perhaps.f32
float:
  %given.float = load double, ptr %value.slot, align 8
  br label %number
perhaps.f32:
  %f32.type.slot = getelementptr inbounds i8, ptr %state, i64 @@S_F32_TYPE
  %f32.type = load ptr, ptr %f32.type.slot, align 8
  %is.f32 = icmp eq ptr %type, %f32.type
  br i1 %is.f32, label %f32, label %unfit
f32:
  %given.f32 = load float, ptr %value.slot, align 4
  %widened.f32 = fpext float %given.f32 to double
  br label %number
integer:
  %as.integer.slot = getelementptr inbounds i8, ptr %state, i64 @@S_AS_INTEGER
  %as.integer = load ptr, ptr %as.integer.slot, align 8
  %given.int = call i64 %as.integer(ptr %object, ptr %overflow)
  %overflown = load i32, ptr %overflow, align 4
  %too.large = icmp ne i32 %overflown, 0
  br i1 %too.large, label %unfit, label %integer.kinds
integer.kinds:
  %given.integer = phi i64 [ %given.int, %integer ], [ %given.i64, %i64 ], [ %widened.i32, %i32 ]
  switch i64 %kind, label %unfit [
    i64 1, label %exact i64 2, label %exact i64 3, label %whole i64 4, label %half i64 5, label %same
  ]
same:
  %wanted.slot = getelementptr inbounds i64, ptr %form, i64 2
  %wanted = load i64, ptr %wanted.slot, align 8
  %is.same = icmp eq i64 %given.integer, %wanted
  br i1 %is.same, label %keep, label %unfit
exact:
  %below = icmp slt i64 %given.integer, @@MOST_EXACT
  %above = icmp sgt i64 %given.integer, -@@MOST_EXACT
  %is.exact = and i1 %below, %above
  %converted = sitofp i64 %given.integer to double
  br i1 %is.exact, label %number, label %unfit
number:
  %value = phi double [ %given.float, %float ], [ %widened.f32, %f32 ], [ %converted, %exact ]
  %is.short = icmp eq i64 %kind, 2
  br i1 %is.short, label %short, label %long
short:
  %single = fptrunc double %value to float
  %single.bits = bitcast float %single to i32
  %single.word = zext i32 %single.bits to i64
  br label %keep
long:
  %double.word = bitcast double %value to i64
  br label %keep
whole:
  br label %keep
half:
  %narrow = trunc i64 %given.integer to i32
  %widened = sext i32 %narrow to i64
  %is.narrow = icmp eq i64 %widened, %given.integer
  br i1 %is.narrow, label %keep, label %unfit
keep:
  %word = phi i64 [ %single.word, %short ], [ %double.word, %long ], [ %given.integer, %whole ],
    [ %widened, %half ], [ %wanted, %same ]
  store i64 %word, ptr %place, align 8
  ret i1 true
unfit:
  ret i1 false
}

; Whether an array that a caller gave for a result may be written, and shares no bytes with `count` earlier arrays.
define internal i1 @may_be_written(ptr %object, ptr %form, ptr %forms, i64 %count, ptr %values) {
entry:
  %flags.slot = getelementptr inbounds i8, ptr %object, i64 64
  %flags = load i32, ptr %flags.slot, align 8
  %write.bits = and i32 %flags, @@WRITEABLE_BITS
  %may.write = icmp eq i32 %write.bits, @@WRITEABLE
  %data.slot = getelementptr inbounds i8, ptr %object, i64 16
  %data = load i64, ptr %data.slot, align 8
  %own.low.slot = getelementptr inbounds i64, ptr %form, i64 5
  %own.low.offset = load i64, ptr %own.low.slot, align 8
  %own.high.slot = getelementptr inbounds i64, ptr %form, i64 6
  %own.high.offset = load i64, ptr %own.high.slot, align 8
  %own.low = add i64 %data, %own.low.offset
  %own.high = add i64 %data, %own.high.offset
  br i1 %may.write, label %others, label %unfit
others:
  %number = phi i64 [ 0, %entry ], [ %number.next, %other ], [ %number.next, %measure ]
  %other.form = phi ptr [ %forms, %entry ], [ %other.next, %other ], [ %other.next, %measure ]
  %more = icmp slt i64 %number, %count
  br i1 %more, label %other, label %fit
other:
  %length = load i64, ptr %other.form, align 8
  %other.next = getelementptr inbounds i64, ptr %other.form, i64 %length
  %number.next = add i64 %number, 1
  %kind.slot = getelementptr inbounds i64, ptr %other.form, i64 1
  %kind = load i64, ptr %kind.slot, align 8
  %is.array = icmp eq i64 %kind, 0
  br i1 %is.array, label %measure, label %others
measure:
  %other.data.slot = getelementptr inbounds i64, ptr %values, i64 %number
  %other.data = load i64, ptr %other.data.slot, align 8
  %low.slot = getelementptr inbounds i64, ptr %other.form, i64 5
  %low.offset = load i64, ptr %low.slot, align 8
  %high.slot = getelementptr inbounds i64, ptr %other.form, i64 6
  %high.offset = load i64, ptr %high.slot, align 8
  %low = add i64 %other.data, %low.offset
  %high = add i64 %other.data, %high.offset
  %is.below = icmp ult i64 %low, %own.high
  %is.above = icmp ult i64 %own.low, %high
  %overlaps = and i1 %is.below, %is.above
  br i1 %overlaps, label %unfit, label %others
fit:
  ret i1 true
unfit:
  ret i1 false
}

; Error records: written with zeros before the first step.
define internal void @clear_records(ptr %temporaries, i64 %count, ptr %workspace) {
entry:
  br label %next
next:
  %number = phi i64 [ 0, %entry ], [ %number.next, %words ]
  %more = icmp slt i64 %number, %count
  br i1 %more, label %record, label %finished
record:
  %twice = mul i64 %number, 2
  %place.slot = getelementptr inbounds i64, ptr %temporaries, i64 %twice
  %place = load i64, ptr %place.slot, align 8
  %bytes.slot = getelementptr inbounds i64, ptr %place.slot, i64 1
  %bytes = load i64, ptr %bytes.slot, align 8
  %start = getelementptr i8, ptr %workspace, i64 %place
  %number.next = add i64 %number, 1
  br label %words
words:
  %byte = phi i64 [ 0, %record ], [ %byte.next, %clear ]
  %more.bytes = icmp slt i64 %byte, %bytes
  br i1 %more.bytes, label %clear, label %next
clear:
  %word = getelementptr i8, ptr %start, i64 %byte
  store i64 0, ptr %word, align 8
  %byte.next = add i64 %byte, 8
  br label %words
finished:
  ret void
}
"""
