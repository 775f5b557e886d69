/* Memory for NumPy's arrays that may not be touched outside: each array has pages of its own between two that nobody
   may touch. It ends where the one behind it begins, or (some of them) begins where the one before it ends. New memory
   is full of bytes that no program writes; memory that was freed may not be touched any more. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { AT_END, AT_START, BY_TURNS };
enum { UNWRITTEN = 0xFF };

int guarded_mode = BY_TURNS;
static unsigned turn;

struct header { size_t mapped, size; };

static size_t page(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* The pages of an array: its header, one that is closed, its own, one that is closed. */
static struct header *header_of(void *data) {
    return (struct header *)(((uintptr_t)data / page() - 2) * page());
}

static void *take(size_t size, int fill) {
    size_t one = page(), own = (size + (size == 0) + one - 1) / one * one, all = own + 3 * one;
    char *start = mmap(0, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return 0;
    *(struct header *)start = (struct header){all, size};
    if (fill)
        memset(start + 2 * one, UNWRITTEN, own);
    mprotect(start + one, one, PROT_NONE);
    mprotect(start + 2 * one + own, one, PROT_NONE);
    int at_end = guarded_mode == AT_END || (guarded_mode == BY_TURNS && __atomic_fetch_add(&turn, 1, 0) % 4 != 3);
    return start + 2 * one + (at_end ? own - (size + (size == 0)) : 0);
}

void *guarded_malloc(void *context, size_t size) { return take(size, 1); }

void *guarded_calloc(void *context, size_t count, size_t size) {
    return size && count > SIZE_MAX / size ? 0 : take(count * size, 0);
}

void guarded_free(void *context, void *data, size_t size) {
    if (data)
        munmap(header_of(data), header_of(data)->mapped);
}

void *guarded_realloc(void *context, void *data, size_t size) {
    void *moved = take(size, 1);
    if (moved && data) {
        size_t before = header_of(data)->size;
        memcpy(moved, data, before < size ? before : size);
        guarded_free(context, data, size);
    }
    return moved;
}
