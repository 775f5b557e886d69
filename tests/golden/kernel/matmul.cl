long tw_floordiv_i64(long a, long b) {
    if (b == 0) return 0;
    if (b == -1) return (long)(-(ulong)a);  // the least value stays
    const long quotient = (long)(a / b);
    return quotient * b != a && (a ^ b) < 0 ? (long)(quotient - 1) : quotient;
}

long tw_mod_i64(long a, long b) {
    if (b == 0 || b == -1) return 0;
    const long remainder = (long)(a % b);
    return remainder != 0 && (remainder ^ b) < 0 ? (long)(remainder + b) : remainder;
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void matmul(
    __global const float* restrict a,
    __global const float* restrict b,
    __global float* restrict c,
    const long n)
{
    __local float tile_a[64] __attribute__((aligned(16)));
    __local float tile_b[64] __attribute__((aligned(16)));
    const long block = (long)get_group_id(0);
    const long thread = (long)get_local_id(0);
    const long across = (long)((ulong)n + 7UL) >> 3;
    const long i = thread / 8L;
    const long j = thread % 8L;
    const long row = (long)((ulong)tw_floordiv_i64(block, across) * 8UL + (ulong)i);
    const long column = (long)((ulong)tw_mod_i64(block, across) * 8UL + (ulong)j);
    float sum = 0.0f;
    for (long first = 0L; first < n; first += 8L) {
        // stage one tile of each operand
        const long at_a = (long)((ulong)row * (ulong)n + ((ulong)first + (ulong)j));
        if (row < n && (long)((ulong)first + (ulong)j) < n) {
            tile_a[thread] = a[at_a];
        } else {
            tile_a[thread] = 0.0f;
        }
        const long at_b = (long)(((ulong)first + (ulong)i) * (ulong)n + (ulong)column);
        if ((long)((ulong)first + (ulong)i) < n && column < n) {
            tile_b[thread] = b[at_b];
        } else {
            tile_b[thread] = 0.0f;
        }
        barrier(CLK_LOCAL_MEM_FENCE); mem_fence(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (long k = 0L; k < 8L; ++k) {
            sum = fma(tile_a[i * 8L + k], tile_b[k * 8L + j], sum);
        }
        barrier(CLK_LOCAL_MEM_FENCE); mem_fence(CLK_LOCAL_MEM_FENCE);
    }
    if (row < n && column < n) {
        c[(long)((ulong)row * (ulong)n + (ulong)column)] = sum;
    }
}
