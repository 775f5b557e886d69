// Runs one kernel on arrays from a file, in a process of its own: for the CPU of another computer, under an emulator.
//
//   driver INPUT OUTPUT
//
// INPUT holds 64-bit numbers (how many buffers, how many scalars, blocks, chunk, bytes of workspace, workers, rounds),
// for each buffer how many bytes it has, how far its first byte is from a multiple of 64, and where in it the kernel's
// pointer points, then the scalars, a slot of eight bytes each, then the buffers' bytes. OUTPUT gets those bytes
// afterwards. With workers, the blocks are shared out by the thread pool, as often as there are rounds.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

void kernel_under_test(void *arguments, int64_t first, int64_t last, void *workspace);
void launch(void *call);
void worker(void *pool, int64_t number);
void prepare(void *pool);
void stop(void *pool);

enum { BUFFERS, SCALARS, BLOCKS, CHUNK, WORKSPACE, WORKERS, ROUNDS, HEAD };
static char *pool;

static void check(int right, const char *what) {
    if (!right) { fprintf(stderr, "%s failed\n", what); exit(3); }
}

static void *memory(int64_t bytes) {  // more than asked for, so that `shift` has room
    void *made = aligned_alloc(64, (bytes + 191) / 64 * 64);
    check(made != NULL, "aligned_alloc");
    return made;
}

static void *work(void *number) {
    worker(pool, (int64_t)(intptr_t)number);
    return NULL;
}

int main(int count, char **names) {
    check(count == 3, "reading the command line");
    FILE *in = fopen(names[1], "rb");
    check(in != NULL, "opening the input");
    int64_t head[HEAD];
    check(fread(head, 8, HEAD, in) == HEAD, "reading the head");
    int64_t buffers = head[BUFFERS], workers = head[WORKERS];
    int64_t (*forms)[3] = memory(24 * buffers);
    check((int64_t)fread(forms, 24, buffers, in) == buffers, "reading the forms");
    int64_t *arguments = memory(8 * (buffers + head[SCALARS]));
    check((int64_t)fread(arguments + buffers, 8, head[SCALARS], in) == head[SCALARS], "reading the scalars");
    char **bytes = memory(8 * buffers);
    for (int64_t i = 0; i < buffers; ++i) {
        bytes[i] = (char *)memory(forms[i][0]) + forms[i][1];
        check((int64_t)fread(bytes[i], 1, forms[i][0], in) == forms[i][0], "reading a buffer");
        arguments[i] = (int64_t)(intptr_t)(bytes[i] + forms[i][2]);
    }
    int64_t call[7] = {(int64_t)(intptr_t)kernel_under_test, (int64_t)(intptr_t)arguments, head[BLOCKS], head[CHUNK],
                       (int64_t)(intptr_t)memory(head[WORKSPACE]), 0, workers};
    pthread_t threads[64];
    if (workers) {
        pool = memory(POOL_BYTES);
        for (int64_t i = 0; i < POOL_BYTES; ++i) pool[i] = 0;
        prepare(pool);
        for (int64_t i = 0; i < workers; ++i) {
            ((void **)(pool + POOL_WORKSPACES))[i] = memory(head[WORKSPACE]);
            check(pthread_create(threads + i, NULL, work, (void *)(intptr_t)i) == 0, "pthread_create");
        }
        call[5] = (int64_t)(intptr_t)pool;
    }
    for (int64_t i = 0; i < head[ROUNDS]; ++i) launch(call);
    if (workers) {
        stop(pool);
        for (int64_t i = 0; i < workers; ++i) pthread_join(threads[i], NULL);
    }
    FILE *out = fopen(names[2], "wb");
    check(out != NULL, "opening the output");
    for (int64_t i = 0; i < buffers; ++i)
        check((int64_t)fwrite(bytes[i], 1, forms[i][0], out) == forms[i][0], "writing a buffer");
    return fclose(out) != 0;
}
