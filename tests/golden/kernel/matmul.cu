typedef long long i64;
typedef unsigned long long u64;

static __device__ __forceinline__ i64 tw_floordiv_i64(i64 a, i64 b) {
    if (b == 0) return 0;
    if (b == -1) return (i64)(-(u64)a);  // the least value stays
    const i64 quotient = (i64)(a / b);
    return quotient * b != a && (a ^ b) < 0 ? (i64)(quotient - 1) : quotient;
}

static __device__ __forceinline__ i64 tw_mod_i64(i64 a, i64 b) {
    if (b == 0 || b == -1) return 0;
    const i64 remainder = (i64)(a % b);
    return remainder != 0 && (remainder ^ b) < 0 ? (i64)(remainder + b) : remainder;
}

extern "C" __global__ void __launch_bounds__(64)
matmul(
    const float* __restrict__ a,
    const float* __restrict__ b,
    float* __restrict__ c,
    const i64 n)
{
    __shared__ __align__(16) float tile_a[64];
    __shared__ __align__(16) float tile_b[64];
    const i64 block = (i64)blockIdx.x;
    const i64 thread = (i64)threadIdx.x;
    const i64 across = (i64)((u64)n + 7ull) >> 3;
    const i64 i = thread / 8ll;
    const i64 j = thread % 8ll;
    const i64 row = (i64)((u64)tw_floordiv_i64(block, across) * 8ull + (u64)i);
    const i64 column = (i64)((u64)tw_mod_i64(block, across) * 8ull + (u64)j);
    float sum = 0.0f;
    for (i64 first = 0ll; first < n; first += 8ll) {
        // stage one tile of each operand
        const i64 at_a = (i64)((u64)row * (u64)n + ((u64)first + (u64)j));
        if (row < n && (i64)((u64)first + (u64)j) < n) {
            tile_a[thread] = a[at_a];
        } else {
            tile_a[thread] = 0.0f;
        }
        const i64 at_b = (i64)(((u64)first + (u64)i) * (u64)n + (u64)column);
        if ((i64)((u64)first + (u64)i) < n && column < n) {
            tile_b[thread] = b[at_b];
        } else {
            tile_b[thread] = 0.0f;
        }
        __syncthreads();
        #pragma unroll
        for (i64 k = 0ll; k < 8ll; ++k) {
            sum = fmaf(tile_a[i * 8ll + k], tile_b[k * 8ll + j], sum);
        }
        __syncthreads();
    }
    if (row < n && column < n) {
        c[(i64)((u64)row * (u64)n + (u64)column)] = sum;
    }
}
