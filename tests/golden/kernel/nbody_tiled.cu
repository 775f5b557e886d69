typedef long long i64;
typedef unsigned long long u64;

static __device__ __forceinline__ i64 tw_min_i64(i64 a, i64 b) {
    return a < b ? a : b;
}

extern "C" __global__ void __launch_bounds__(128)
v_tw_streams(
    const float* __restrict__ xs_1,
    const float* __restrict__ ys_1,
    const float* __restrict__ ms_1,
    float* __restrict__ fx_1,
    float* __restrict__ fy_1,
    const i64 per_block_1,
    const i64 items_1,
    const i64 chunk_1,
    const i64 n_1,
    const float eps_1)
{
    __shared__ __align__(16) float staged_1[128];
    __shared__ __align__(16) float staged_2[128];
    __shared__ __align__(16) float staged_3[128];
    const i64 block = (i64)blockIdx.x;
    const i64 thread = (i64)threadIdx.x;
    const i64 block_1 = block;
    const i64 start_1 = (i64)((u64)block_1 * (u64)per_block_1);
    const i64 stop_1 = tw_min_i64((i64)((u64)start_1 + (u64)per_block_1), items_1);
    for (i64 item_1 = start_1; item_1 < stop_1; ++item_1) {
        const i64 low_1 = (i64)((u64)item_1 * (u64)chunk_1);
        const i64 extent_1 = (i64)((u64)n_1 + 127ull) >> 7;
        const i64 high_1 = tw_min_i64((i64)((u64)low_1 + (u64)chunk_1), extent_1);
        for (i64 j_1 = low_1; j_1 < high_1; ++j_1) {
            const i64 thread_1 = thread;
            const i64 place_1 = (i64)(128ull * (u64)j_1 + (u64)thread_1);
            const i64 point_1 = tw_min_i64(place_1, (i64)((u64)n_1 - 1ull));
            const float e_1 = xs_1[point_1];
            const float e_2 = ys_1[point_1];
            float acc_1 = 0.0f;
            float acc_2 = 0.0f;
            const i64 stop_2 = (i64)((u64)n_1 + 127ull) >> 7;
            for (i64 piece_1 = 0ll; piece_1 < stop_2; ++piece_1) {
                const i64 start_2 = 128ll * piece_1;
                const i64 count_1 = tw_min_i64(128ll, (i64)((u64)n_1 - (u64)start_2));
                for (i64 copied_1 = thread_1; copied_1 < 128ll; copied_1 += 128ll) {
                    if (copied_1 < count_1) {
                        const i64 at_1 = copied_1 + start_2;
                        const float e_3 = xs_1[at_1];
                        staged_1[copied_1] = e_3;
                    }
                }
                for (i64 copied_2 = thread_1; copied_2 < 128ll; copied_2 += 128ll) {
                    if (copied_2 < count_1) {
                        const i64 at_2 = copied_2 + start_2;
                        const float e_4 = ys_1[at_2];
                        staged_2[copied_2] = e_4;
                    }
                }
                for (i64 copied_3 = thread_1; copied_3 < 128ll; copied_3 += 128ll) {
                    if (copied_3 < count_1) {
                        const i64 at_3 = copied_3 + start_2;
                        const float e_5 = ms_1[at_3];
                        staged_3[copied_3] = e_5;
                    }
                }
                __syncthreads();
                if (count_1 == 128ll) {
                    for (i64 k_1 = 0ll; k_1 < 128ll; ++k_1) {
                        const float e_6 = staged_1[k_1];
                        const float e_7 = staged_2[k_1];
                        const float e_8 = staged_3[k_1];
                        const float t_1 = e_6 - e_1;
                        const float t_2 = e_7 - e_2;
                        const float t_3 = t_1 * t_1;
                        const float t_4 = t_2 * t_2;
                        const float t_5 = t_3 + t_4;
                        const float t_6 = t_5 + eps_1;
                        const float t_7 = sqrtf(t_6);
                        const float t_8 = e_8 / t_7;
                        const float t_9 = t_8 * t_1;
                        const float t_10 = t_8 * t_2;
                        const float t_11 = acc_1 + t_9;
                        const float t_12 = acc_2 + t_10;
                        const float next_1 = t_11;
                        const float next_2 = t_12;
                        acc_1 = next_1;
                        acc_2 = next_2;
                    }
                } else {
                    for (i64 k_2 = 0ll; k_2 < count_1; ++k_2) {
                        const float e_9 = staged_1[k_2];
                        const float e_10 = staged_2[k_2];
                        const float e_11 = staged_3[k_2];
                        const float t_13 = e_9 - e_1;
                        const float t_14 = e_10 - e_2;
                        const float t_15 = t_13 * t_13;
                        const float t_16 = t_14 * t_14;
                        const float t_17 = t_15 + t_16;
                        const float t_18 = t_17 + eps_1;
                        const float t_19 = sqrtf(t_18);
                        const float t_20 = e_11 / t_19;
                        const float t_21 = t_20 * t_13;
                        const float t_22 = t_20 * t_14;
                        const float t_23 = acc_1 + t_21;
                        const float t_24 = acc_2 + t_22;
                        const float next_3 = t_23;
                        const float next_4 = t_24;
                        acc_1 = next_3;
                        acc_2 = next_4;
                    }
                }
                __syncthreads();
            }
            const bool inside_1 = place_1 < n_1;
            if (inside_1) {
                fx_1[point_1] = acc_1;
                fy_1[point_1] = acc_2;
            }
        }
    }
}
