// What a CUDA text needs to be compiled for the CPU: its threads are run by cuda_engine.cpp.
#include <math.h>
#include <string.h>
#include <type_traits>
#include <utility>
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __syncthreads() emulated_barrier(__LINE__)
extern "C" {
extern struct { unsigned int x; } threadIdx, blockIdx;
extern char* emulated_shared;
void emulated_barrier(int line);
void emulated_pause();
int emulated_launch(void (*kernel)(void**), void** arguments, long blocks, long threads, long residents,
                    long shared_bytes, int together);
}
#define ATOMIC(Name, operation) template <class T> static T atomic##Name(T* p, T value) { \
    emulated_pause(); return __atomic_fetch_##operation(p, value, __ATOMIC_RELAXED); }
ATOMIC(Add, add) ATOMIC(And, and) ATOMIC(Or, or) ATOMIC(Xor, xor)
#define ATOMIC_CHOICE(Name, sign) template <class T> static T atomic##Name(T* p, T value) { \
    emulated_pause(); T old = __atomic_load_n(p, __ATOMIC_RELAXED); \
    while (value sign old && !__atomic_compare_exchange_n(p, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)); \
    return old; }
ATOMIC_CHOICE(Min, <) ATOMIC_CHOICE(Max, >)
template <class To, class From> static To bits_as(From from) { To to; memcpy(&to, &from, sizeof to); return to; }
static inline float __uint_as_float(unsigned int bits) { return bits_as<float>(bits); }
static inline float __int_as_float(int bits) { return bits_as<float>(bits); }
static inline unsigned int __float_as_uint(float value) { return bits_as<unsigned int>(value); }
static inline double __longlong_as_double(long long bits) { return bits_as<double>(bits); }
static inline float half_to_float(unsigned short bits) { return (float)bits_as<_Float16>(bits); }
static inline unsigned short float_to_half(float value) { return bits_as<unsigned short>((_Float16)value); }
static inline float rsqrtf(float value) { return 1 / sqrtf(value); }
static inline double rsqrt(double value) { return 1 / sqrt(value); }
template <class T> static inline void __stcs(T* p, T value) { *p = value; }
template <class P> static P argument(void* given) {
    if constexpr (std::is_pointer_v<P>) return (P)given;
    else { P value; memcpy(&value, &given, sizeof value); return value; }
}
template <class... P> constexpr long count_of(void (*)(P...)) { return sizeof...(P); }
template <class... P, size_t... I>
static void call(void (*kernel)(P...), void** arguments, std::index_sequence<I...>) {
    kernel(argument<P>(arguments[I])...);
}
template <class... P> static void call(void (*kernel)(P...), void** arguments) {
    call(kernel, arguments, std::index_sequence_for<P...>{});
}
