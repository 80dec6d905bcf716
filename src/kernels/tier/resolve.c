/* SPDX-License-Identifier: Apache-2.0
 *
 * resolve.c -- entries of index arrays as places, once per instruction set.
 *
 * Without a branch or a compare.  SSE2 has no arithmetic shift of 64 bits, and
 * what stands for it takes longer than the element that is read afterwards.
 */
#include "kernels/resolve.h"

#define RESOLVE(name, type)                                                    \
    static int64_t name(int64_t *at, const type *index, int64_t n,             \
                        int64_t size, int64_t last)                            \
    {                                                                          \
        int64_t bad = last;                                                    \
                                                                               \
        for (int64_t i = 0; i < n; i++) {                                      \
            int64_t k = (int64_t)index[i];                                     \
                                                                               \
            k += k >> 63 & size;                                               \
            bad |= k | (last - k);                                             \
            at[i] = k;                                                         \
        }                                                                      \
        return bad;                                                            \
    }

RESOLVE(resolve_i32, int32_t)
RESOLVE(resolve_u32, uint32_t)
RESOLVE(resolve_i64, int64_t)

#define PICK(name, type)                                                       \
    static bool name(void *to, const void *from, const uint32_t *index,        \
                     int64_t n, uint32_t last)                                 \
    {                                                                          \
        const type *x = from;                                                  \
        type *o = to;                                                          \
        uint32_t bad = 0;                                                      \
                                                                               \
        for (int64_t i = 0; i < n; i++)                                        \
            bad |= index[i] | (last - index[i]);                               \
        if (bad >> 31)                                                         \
            return false;                                                      \
        _Pragma("GCC unroll 4") for (int64_t i = 0; i < n; i++) o[i] =         \
            x[index[i]];                                                       \
        return true;                                                           \
    }

PICK(pick_4, uint32_t)
PICK(pick_8, uint64_t)

const mr_resolve_tier MR_TIER_SYM(mr__resolve_tier) = {
    .i32 = resolve_i32,
    .u32 = resolve_u32,
    .i64 = resolve_i64,
    .pick4 = pick_4,
    .pick8 = pick_8,
};
