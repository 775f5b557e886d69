// Runs the blocks of a CUDA kernel on one thread of the CPU: each thread of a block is a fiber, and several blocks may be
// resident, begun in the order of their numbers or from the last one on. Which fiber goes on is drawn by chance, so that
// results that depend on an order without a barrier differ. A barrier at which not all threads of a block meet is an
// error. Under the sanitizer for threads each fiber is a thread of its own, and only barriers and atomic operations are
// known to order them, so that it finds data races whatever the order was.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <memory>
#include <mutex>
#include <vector>

extern "C" {
struct { unsigned int x; } threadIdx, blockIdx;
char* emulated_shared;
void* __tsan_create_fiber(unsigned) __attribute__((weak));
void* __tsan_get_current_fiber() __attribute__((weak));
void __tsan_switch_to_fiber(void*, unsigned) __attribute__((weak));
void __tsan_destroy_fiber(void*) __attribute__((weak));
void __tsan_acquire(void*) __attribute__((weak));
void __tsan_release(void*) __attribute__((weak));
}

namespace {
constexpr size_t STACK_BYTES = 256 << 10, GUARD_BYTES = 4 << 10;
constexpr unsigned WITHOUT_ORDER = 1;  // a switch to another fiber orders nothing
enum State { READY, MEETING, ENDED };
struct Fiber { ucontext_t context; char* stack; void* watched; int line; State state; };
struct Block {
    unsigned number, live, meeting;
    char* memory;
    std::vector<Fiber> fibers;
};
struct Launch { void (*kernel)(void**); void** arguments; } now;
ucontext_t scheduler;
void* scheduler_watched;
Block* block;
Fiber* fiber;
bool watched;
uint64_t luck = 88172645463325252u;
std::vector<char*> stacks;
std::mutex one_launch;

unsigned chance(unsigned below) {
    luck ^= luck << 13, luck ^= luck >> 7, luck ^= luck << 17;
    return (luck >> 32) % below;
}

char* stack() {
    if (stacks.empty()) {
        void* fresh = mmap(0, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (fresh == MAP_FAILED) abort();
        mprotect(fresh, GUARD_BYTES, PROT_NONE);
        return (char*)fresh;
    }
    char* last = stacks.back();
    stacks.pop_back();
    return last;
}

void leave() {
    if (watched) __tsan_switch_to_fiber(scheduler_watched, WITHOUT_ORDER);
    swapcontext(&fiber->context, &scheduler);
}

void begin_fiber() {
    now.kernel(now.arguments);
    if (watched) __tsan_release(&now);
    fiber->state = ENDED, --block->live;
    leave();
}

void begin_block(Block& one, unsigned number, long threads) {
    one.number = number, one.live = threads, one.meeting = 0;
    one.fibers.resize(threads);
    for (Fiber& each : one.fibers) {
        each.state = READY, each.stack = stack();
        each.watched = watched ? __tsan_create_fiber(0) : nullptr;
        getcontext(&each.context);
        each.context.uc_stack.ss_sp = each.stack, each.context.uc_stack.ss_size = STACK_BYTES;
        makecontext(&each.context, begin_fiber, 0);
    }
}

void go_on(Block& one, size_t thread) {
    block = &one, fiber = &one.fibers[thread];
    threadIdx.x = thread, blockIdx.x = one.number, emulated_shared = one.memory;
    if (watched) __tsan_switch_to_fiber(fiber->watched, WITHOUT_ORDER);
    swapcontext(&scheduler, &fiber->context);
}

// Each thread of a block that can go on does so once; false if threads wait at a barrier to which others do not come.
bool round(Block& one) {
    size_t count = one.fibers.size(), first = chance(count), step = chance(2) ? 1 : count - 1;
    for (size_t i = 0, at = first; i < count; ++i, at = (at + step) % count)
        if (one.fibers[at].state == READY) go_on(one, at);
    if (!one.live || one.meeting < one.live) return true;
    for (Fiber& each : one.fibers)
        if (each.state == ENDED || each.line != one.fibers[0].line) return false;
    for (Fiber& each : one.fibers) each.state = READY;
    one.meeting = 0;
    return true;
}

void end_block(Block& one) {
    for (Fiber& each : one.fibers) {
        stacks.push_back(each.stack);
        if (watched) __tsan_destroy_fiber(each.watched);
    }
    one.fibers.clear();
}
}  // namespace

extern "C" void emulated_barrier(int line) {
    Block* mine = block;
    Fiber* me = fiber;
    me->line = line, me->state = MEETING, ++mine->meeting;
    if (watched) __tsan_release(mine);
    leave();
    if (watched) __tsan_acquire(mine);
}

// Where a thread touches what other blocks see.
extern "C" void emulated_pause() {
    if (fiber && chance(2)) leave();
}

// The threads of kernels that share nothing run one after the other. 1 if threads did not meet at a barrier.
extern "C" int emulated_launch(void (*kernel)(void**), void** arguments, long blocks, long threads, long residents,
                               long shared_bytes, int together) {
    std::lock_guard<std::mutex> alone(one_launch);
    watched = __tsan_create_fiber != nullptr;
    now = {kernel, arguments}, fiber = nullptr;
    if (!together && !watched) {
        bool turned = chance(2);
        for (long i = 0; i < blocks * threads; ++i) {
            long at = turned ? blocks * threads - 1 - i : i;
            blockIdx.x = at / threads, threadIdx.x = at % threads;
            kernel(arguments);
        }
        return 0;
    }
    if (watched) scheduler_watched = __tsan_get_current_fiber();
    long begun = 0, most = residents < 0 ? -residents : residents;
    std::vector<Block> slots(most < blocks ? most : blocks);
    std::vector<std::unique_ptr<char[], decltype(&free)>> memories;  // of all blocks: races between them are none
    bool met = true;
    for (bool busy = true; busy && met;) {
        busy = false;
        for (Block& one : slots) {
            if (one.fibers.empty() && begun < blocks) {
                if (watched || memories.size() < slots.size()) {
                    memories.emplace_back((char*)aligned_alloc(128, (shared_bytes + 255) / 128 * 128), &free);
                    one.memory = memories.back().get();
                }
                memset(one.memory, 0xA5, shared_bytes);
                begin_block(one, residents < 0 ? blocks - 1 - begun : begun, threads), ++begun;
            }
            if (one.fibers.empty()) continue;
            busy = true;
            met = met && round(one);
            if (!one.live) end_block(one);
        }
    }
    if (watched) __tsan_acquire(&now);
    for (Block& one : slots) end_block(one);
    fiber = nullptr;
    return !met;
}
