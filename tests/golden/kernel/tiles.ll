; kernel tiles
target triple = "x86_64-unknown-linux-gnu"

define void @tiles(ptr %.arguments, i64 %.first, i64 %.last, ptr %.workspace) #0 {
  %slot.0 = getelementptr inbounds i64, ptr %.arguments, i64 0
  %value.0 = load ptr, ptr %slot.0, align 8
  %slot.1 = getelementptr inbounds i64, ptr %.arguments, i64 1
  %value.1 = load ptr, ptr %slot.1, align 8
  %slot.2 = getelementptr inbounds i64, ptr %.arguments, i64 2
  %value.2 = load ptr, ptr %slot.2, align 8
  call void @tiles.body(ptr %value.0, ptr %value.1, ptr %value.2, i64 %.first, i64 %.last, ptr %.workspace)
  ret void
}

define internal void @tiles.body(ptr noalias nonnull readonly align 4 %x, ptr noalias nonnull readonly align 4 %y, ptr noalias nonnull align 4 %sums, i64 %.first, i64 %.last, ptr noalias align 64 %.workspace) #0 {
entry:
  call void @llvm.x86.ldtilecfg(ptr @.tiles)
  %v.2 = icmp slt i64 %.first, %.last
  br i1 %v.2, label %block.1.preheader, label %block.1.exit
block.1.preheader:
  br label %block.1.body
block.1.body:
  %.block = phi i64 [ %.first, %block.1.preheader ], [ %block.next.3, %block.1.latch ]
  call void @llvm.x86.tilezero(i8 0)
  %p.4 = getelementptr inbounds i32, ptr %x, i64 %.block
  %v.5 = mul i64 128, 4
  call void @llvm.x86.tileloadd64(i8 4, ptr %p.4, i64 %v.5)
  %v.6 = add i64 %.block, 16
  %p.7 = getelementptr inbounds i32, ptr %y, i64 %v.6
  %v.8 = mul i64 16, 4
  call void @llvm.x86.tileloaddt164(i8 6, ptr %p.7, i64 %v.8)
  call void @llvm.x86.tdpbf16ps(i8 0, i8 4, i8 6)
  %p.9 = getelementptr inbounds float, ptr %sums, i64 %.block
  %v.10 = mul i64 16, 4
  call void @llvm.x86.tilestored64(i8 0, ptr %p.9, i64 %v.10)
  br label %block.1.latch
block.1.latch:
  %block.next.3 = add nsw i64 %.block, 1
  %v.11 = icmp slt i64 %block.next.3, %.last
  br i1 %v.11, label %block.1.body, label %block.1.exit
block.1.exit:
  call void @llvm.x86.tilerelease()
  ret void
}

@.tiles = private unnamed_addr constant [64 x i8] [i8 1, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 64, i8 0, i8 64, i8 0, i8 64, i8 0, i8 64, i8 0, i8 64, i8 0, i8 64, i8 0, i8 64, i8 0, i8 64, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 16, i8 16, i8 16, i8 16, i8 16, i8 16, i8 16, i8 16, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0], align 64
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tdpbf16ps(i8 immarg, i8 immarg, i8 immarg)
declare void @llvm.x86.tileloadd64(i8 immarg, ptr, i64)
declare void @llvm.x86.tileloaddt164(i8 immarg, ptr, i64)
declare void @llvm.x86.tilerelease()
declare void @llvm.x86.tilestored64(i8 immarg, ptr, i64)
declare void @llvm.x86.tilezero(i8 immarg)

attributes #0 = { nounwind "prefer-vector-width"="512" }
attributes #1 = { nounwind willreturn memory(none) }
