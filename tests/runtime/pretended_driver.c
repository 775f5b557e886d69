// A CUDA driver (libcuda.so.1) without a GPU: memory is that of the host, and a module is the path of a library in which
// kernels are functions (tests/kernel/cuda_emulation.py). Launches run at once.
//
// It is stricter than a driver where that finds mistakes: calls without a current context or with another device's,
// addresses outside of allocations or of another device, modules, functions and memory that were given back, streams
// other than the legacy one, too large launches and shared memory that was not asked for are errors; fresh memory is
// full of rubbish. MEMORY_BYTES (of each device), DEVICES, POOLS and ATTRIBUTES (pairs of numbers) are given by whoever
// compiles it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Status;
typedef uint64_t Address;
enum { OK = 0, INVALID_VALUE = 1, NO_MEMORY = 2, NOT_INITIALISED = 3, INVALID_IMAGE = 200, INVALID_CONTEXT = 201,
       INVALID_DEVICE = 101, INVALID_HANDLE = 400, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719 };
enum { MAX_THREADS = 0, MAX_DYNAMIC = 8, FREE_SHARED = 48 << 10, MODULES = 1 << 12, DEPTH = 16 };
#define LEGACY ((void *)1)  // CU_STREAM_LEGACY: 0 is another stream in each thread where a variable asks for that

typedef struct { size_t used; int retained, number; char pool, has_pool; uint64_t threshold; } Context;
typedef struct { char *start; size_t size; Context *owner; } Piece;
typedef struct { void *library; Context *owner; } Module;
typedef struct { int (*run)(void **, long, long, long); long count; int dynamic; Module *module; } Function;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Piece pieces[1 << 16];
static Module modules[MODULES];
static Context contexts[DEVICES];
static int piece_count, module_count, initialised;
static __thread int depth;
static __thread Context *stack[DEPTH];

#define CURRENT (stack[depth - 1])
#define NEEDS_CONTEXT if (!initialised) return NOT_INITIALISED; if (!depth) return INVALID_CONTEXT

static int is_context(const Context *one) { return one >= contexts && one < contexts + DEVICES && one->retained; }
static int is_loaded(const Module *one) {
    return one >= modules && one < modules + module_count && one->library && one->owner == CURRENT;
}

Status cuInit(unsigned flags) { initialised = 1; return flags ? INVALID_VALUE : OK; }
Status cuDriverGetVersion(int *version) { *version = 13000; return OK; }
Status cuDeviceGetCount(int *count) { *count = DEVICES; return initialised ? OK : NOT_INITIALISED; }
Status cuDeviceGet(int *device, int index) {
    *device = index;
    return index < 0 || index >= DEVICES ? INVALID_DEVICE : OK;
}
Status cuDeviceGetName(char *name, int size, int device) { snprintf(name, size, "Pretended GPU"); return OK; }
Status cuDeviceTotalMem(size_t *bytes, int device) { *bytes = MEMORY_BYTES; return OK; }

Status cuDeviceGetAttribute(int *value, int attribute, int device) {
    static const int known[][2] = {ATTRIBUTES};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; ++i)
        if (known[i][0] == attribute) { *value = known[i][1]; return OK; }
    return INVALID_VALUE;
}

Status cuGetErrorString(Status status, const char **text) { *text = "as it was pretended"; return OK; }
Status cuGetErrorName(Status status, const char **text) { *text = "CUDA_ERROR"; return OK; }

Status cuDevicePrimaryCtxRetain(void **context, int device) {
    if (!initialised) return NOT_INITIALISED;
    if (device < 0 || device >= DEVICES) return INVALID_DEVICE;
    ++contexts[device].retained, contexts[device].number = device, *context = &contexts[device];
    return OK;
}
Status cuCtxPushCurrent(void *context) {
    if (!is_context(context) || depth == DEPTH) return INVALID_CONTEXT;
    stack[depth++] = context;
    return OK;
}
Status cuCtxPopCurrent(void **context) {
    if (!depth) return INVALID_CONTEXT;
    --depth;
    *context = stack[depth];
    return OK;
}
Status cuCtxGetCurrent(void **context) { *context = depth ? stack[depth - 1] : NULL; return OK; }

typedef struct { int allocation, handle; struct { int type, id; } location; char rest[80]; } PoolProperties;
Status cuMemPoolCreate(void **pool, const PoolProperties *wanted) {
    NEEDS_CONTEXT;
    int device = wanted->location.id;
    if (wanted->allocation != 1 || wanted->handle || wanted->location.type != 1 || device != CURRENT->number)
        return INVALID_VALUE;
    if (CURRENT->has_pool++) return INVALID_VALUE;  // one is enough
    *pool = &CURRENT->pool;
    return OK;
}
Status cuMemPoolSetAttribute(void *pool, int attribute, void *value) {
    NEEDS_CONTEXT;
    if (attribute != 4 || pool != &CURRENT->pool) return INVALID_VALUE;
    CURRENT->threshold = *(uint64_t *)value;
    return CURRENT->threshold == MEMORY_BYTES / 2 ? OK : INVALID_VALUE;
}
Status cuMemPoolTrimTo(void *pool, size_t kept) {
    NEEDS_CONTEXT;
    return pool == &CURRENT->pool && !kept ? OK : INVALID_VALUE;
}

static Status allocate(Address *address, size_t size) {
    NEEDS_CONTEXT;
    if (!size) return INVALID_VALUE;
    pthread_mutex_lock(&lock);
    Status status = CURRENT->used + size > MEMORY_BYTES ? NO_MEMORY : OK;
    if (!status) {
        char *start = aligned_alloc(256, (size + 255) / 256 * 256);
        memset(start, 0xA5, size);
        pieces[piece_count++] = (Piece){start, size, CURRENT};
        CURRENT->used += size;
        *address = (Address)start;
    }
    pthread_mutex_unlock(&lock);
    return status;
}
static Status release(Address address) {
    NEEDS_CONTEXT;
    Status status = INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < piece_count; ++i)
        if ((Address)pieces[i].start == address && pieces[i].owner == CURRENT) {
            CURRENT->used -= pieces[i].size, free(pieces[i].start), pieces[i] = pieces[--piece_count], status = OK;
            break;
        }
    pthread_mutex_unlock(&lock);
    return status;
}
static int inside(Address address, size_t size) {
    pthread_mutex_lock(&lock);
    int found = 0;
    for (int i = 0; i < piece_count && !found; ++i)
        found = (Address)pieces[i].start <= address && address + size <= (Address)pieces[i].start + pieces[i].size
            && pieces[i].owner == CURRENT;
    pthread_mutex_unlock(&lock);
    return found;
}

#if POOLS
Status cuMemAllocFromPoolAsync(Address *address, size_t size, void *pool, void *stream) {
    NEEDS_CONTEXT;
    return pool == &CURRENT->pool && stream == LEGACY ? allocate(address, size) : INVALID_HANDLE;
}
Status cuMemFreeAsync(Address address, void *stream) { return stream != LEGACY ? INVALID_HANDLE : release(address); }
#else
Status cuMemAlloc(Address *address, size_t size) { return allocate(address, size); }
Status cuMemFree(Address address) { return release(address); }
#endif
Status cuMemGetInfo(size_t *left, size_t *total) {
    NEEDS_CONTEXT;
    *left = MEMORY_BYTES - CURRENT->used, *total = MEMORY_BYTES;
    return OK;
}
Status cuMemcpyHtoDAsync(Address to, const void *from, size_t size, void *stream) {
    NEEDS_CONTEXT;
    if (!size || stream != LEGACY) return INVALID_VALUE;
    if (!inside(to, size)) return ILLEGAL_ADDRESS;
    memcpy((void *)to, from, size);
    return OK;
}
Status cuMemcpyDtoHAsync(void *to, Address from, size_t size, void *stream) {
    NEEDS_CONTEXT;
    if (!size || stream != LEGACY) return INVALID_VALUE;
    if (!inside(from, size)) return ILLEGAL_ADDRESS;
    memcpy(to, (void *)from, size);
    return OK;
}
Status cuMemsetD8Async(Address to, unsigned char value, size_t size, void *stream) {
    NEEDS_CONTEXT;
    if (!size || stream != LEGACY) return INVALID_VALUE;
    if (!inside(to, size)) return ILLEGAL_ADDRESS;
    memset((void *)to, value, size);
    return OK;
}
Status cuStreamSynchronize(void *stream) { NEEDS_CONTEXT; return stream != LEGACY ? INVALID_HANDLE : OK; }

Status cuModuleLoadData(Module **module, const void *image) {
    NEEDS_CONTEXT;
    void *library = dlopen(image, RTLD_NOW | RTLD_LOCAL);
    if (!library) return INVALID_IMAGE;
    pthread_mutex_lock(&lock);
    *module = module_count < MODULES ? &modules[module_count++] : NULL;
    if (*module) **module = (Module){library, CURRENT};
    pthread_mutex_unlock(&lock);
    return *module ? OK : NO_MEMORY;
}
Status cuModuleUnload(Module *module) {
    NEEDS_CONTEXT;
    if (!is_loaded(module)) return INVALID_HANDLE;
    module->library = NULL;  // the library stays, since another module may be the same one
    return OK;
}
Status cuModuleGetFunction(Function **function, Module *module, const char *name) {
    NEEDS_CONTEXT;
    if (!is_loaded(module)) return INVALID_HANDLE;
    char launch[512], count[512];
    snprintf(launch, sizeof launch, "launch_%s", name), snprintf(count, sizeof count, "arguments_%s", name);
    Function found = {(int (*)(void **, long, long, long))dlsym(module->library, launch)};
    const long *arguments = dlsym(module->library, count);
    if (!found.run || !arguments) return NOT_FOUND;
    found.count = *arguments, found.module = module;
    *function = memcpy(malloc(sizeof found), &found, sizeof found);
    return OK;
}
Status cuFuncGetAttribute(int *value, int attribute, Function *function) {
    NEEDS_CONTEXT;
    *value = 1024;
    return !is_loaded(function->module) ? INVALID_HANDLE : attribute == MAX_THREADS ? OK : INVALID_VALUE;
}
Status cuFuncSetAttribute(Function *function, int attribute, int value) {
    NEEDS_CONTEXT;
    function->dynamic = value;
    return !is_loaded(function->module) ? INVALID_HANDLE : attribute == MAX_DYNAMIC ? OK : INVALID_VALUE;
}
Status cuLaunchKernel(Function *function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned ty, unsigned tz,
                      unsigned dynamic, void *stream, void **parameters, void **extra) {
    NEEDS_CONTEXT;
    if (!is_loaded(function->module)) return INVALID_HANDLE;
    if (!x || x > 0x7fffffff || y != 1 || z != 1 || ty != 1 || tz != 1 || !threads || threads > 1024 || extra)
        return INVALID_VALUE;
    if (stream != LEGACY || (function->count && !parameters)) return INVALID_VALUE;
    if (dynamic > FREE_SHARED && (int)dynamic > function->dynamic) return INVALID_VALUE;
    void *values[256];
    for (long i = 0; i < function->count; ++i) {
        if (!parameters[i]) return INVALID_VALUE;
        memcpy(&values[i], parameters[i], sizeof values[i]);
    }
    return function->run(values, x, threads, 3) ? LAUNCH_FAILED : OK;
}

Status cuGetExportTable(const void **table, const void *wanted) { return NOT_FOUND; }  // NVRTC asks for one

Status cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *found) {
    Dl_info self;
    dladdr((void *)&cuInit, &self);
    void *library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    *function = dlsym(library, symbol);
    if (found) *found = *function ? 0 : 1;
    return *function ? OK : NOT_FOUND;
}
Status cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
