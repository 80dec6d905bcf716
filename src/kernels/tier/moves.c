/* SPDX-License-Identifier: Apache-2.0
 *
 * moves.c -- moving elements of 1 to 16 bytes: strided and transposed.
 *
 * A transposition goes by square blocks (block.h).
 */
#define MR_LANE_BITS     8
#define MR_LANE_UNSIGNED 1
#include "kernels/tier/lanes.h"

typedef struct wide {
    uint64_t half[2];
} wide;

/* One piece of memory, by 32 bytes: from the third-level cache that is up to a
 * quarter faster than by 64, and than memcpy, which moves as much at a time. */
INLINE void
piece_move(char *o, const char *a, int64_t bytes)
{
    typedef uint8_t part __attribute__((vector_size(32)));
    part x[4];

    for (; bytes >= (int64_t)sizeof x; bytes -= (int64_t)sizeof x) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            memcpy(&x[i], a + i * (int64_t)sizeof x[i], sizeof x[i]);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            memcpy(o + i * (int64_t)sizeof x[i], &x[i], sizeof x[i]);
        a += sizeof x;
        o += sizeof x;
    }
    if (bytes > 0)
        memcpy(o, a, (size_t)bytes);
}

/* n elements backwards, `a` the last of them in memory; how many are done. */
#define BACKWARDS(type)                                                        \
    INLINE int64_t backwards_##type(type *o, const char *a, int64_t n)         \
    {                                                                          \
        typedef type run __attribute__((vector_size(16 * sizeof(type))));      \
        int64_t i = 0;                                                         \
                                                                               \
        for (; i + 16 <= n; i += 16) {                                         \
            run x;                                                             \
                                                                               \
            memcpy(&x, a - (i + 15) * (int64_t)sizeof(type), sizeof x);        \
            x = __builtin_shufflevector(x, x, 15, 14, 13, 12, 11, 10, 9, 8, 7, \
                                        6, 5, 4, 3, 2, 1, 0);                  \
            memcpy(o + i, &x, sizeof x);                                       \
        }                                                                      \
        return i;                                                              \
    }
BACKWARDS(uint8_t)
BACKWARDS(uint16_t)
BACKWARDS(uint32_t)
BACKWARDS(uint64_t)

INLINE int64_t
backwards_wide(wide *o, const char *a, int64_t n)
{
    (void)o;
    (void)a;
    (void)n;
    return 0;
}

/* Elements may lie at any address: they are read and written as bytes. */
#define MOVES(type)                                                            \
    static void gather_##type(void *out, const void *in, int64_t stride,       \
                              int64_t n)                                       \
    {                                                                          \
        type *o = out;                                                         \
        const char *a = in;                                                    \
        int64_t i = 0;                                                         \
                                                                               \
        if (stride == (int64_t)sizeof(type)) {                                 \
            piece_move(out, in, n *stride);                                    \
            return;                                                            \
        }                                                                      \
        if (stride == -(int64_t)sizeof(type))                                  \
            i = backwards_##type(o, a, n);                                     \
        for (; i < n; i++)                                                     \
            memcpy(o + i, a + i * stride, sizeof(type));                       \
    }                                                                          \
    static void scatter_##type(void *out, int64_t stride, const void *in,      \
                               int64_t n)                                      \
    {                                                                          \
        char *o = out;                                                         \
        const type *a = in;                                                    \
                                                                               \
        for (int64_t i = 0; i < n; i++)                                        \
            memcpy(o + i * stride, a + i, sizeof(type));                       \
    }                                                                          \
    static void fill_##type(void *out, const void *value, int64_t n)           \
    {                                                                          \
        type *o = out, x;                                                      \
                                                                               \
        memcpy(&x, value, sizeof x);                                           \
        for (int64_t i = 0; i < n; i++)                                        \
            o[i] = x;                                                          \
    }
MOVES(uint8_t)
MOVES(uint16_t)
MOVES(uint32_t)
MOVES(uint64_t)
MOVES(wide)

#include "kernels/tier/block.h"

/* The lines of the blocks to come are brought near: they may lie far apart.
 * Where a block takes eight places of the first-level cache they come into the
 * second. */
#define AHEAD 2
#define LEVEL (VEC_BYTES == 64 ? 3 : 2)

#define TRANSPOSE_ROWS(type, side, stream)                                     \
    for (; r + side <= n_rows; r += side) {                                    \
        int64_t c = 0;                                                         \
                                                                               \
        for (; c + side <= n_cols; c += side) {                                \
            for (int j = AHEAD * side;                                         \
                 j < (AHEAD + 1) * side && c + j < n_cols; j++)                \
                __builtin_prefetch(a + (c + j) * in_row + r * size, 0, LEVEL); \
            block_##type(o + r * out_row + c * size, out_row,                  \
                         a + c * in_row + r * size, in_row, stream);           \
        }                                                                      \
        for (int i = 0; c < n_cols && i < side; i++)                           \
            gather_##type(o + (r + i) * out_row + c * size,                    \
                          a + c * in_row + (r + i) * size, in_row,             \
                          n_cols - c);                                         \
    }

#define TRANSPOSE(type, side, stream, name)                                    \
    static void name##_##type(void *out, int64_t out_row, const void *in,      \
                              int64_t in_row, int64_t n_rows, int64_t n_cols)  \
    {                                                                          \
        int64_t size = (int64_t)sizeof(type), r = 0;                           \
        char *o = out;                                                         \
        const char *a = in;                                                    \
                                                                               \
        TRANSPOSE_ROWS(type, side, stream)                                     \
        for (; r < n_rows; r++)                                                \
            gather_##type(o + r * out_row, a + r * size, in_row, n_cols);      \
    }
TRANSPOSE(uint8_t, 16, false, transpose)
TRANSPOSE(uint16_t, 16, false, transpose)
TRANSPOSE(uint32_t, 16, false, transpose)
TRANSPOSE(uint32_t, 16, true, transpose_past)
TRANSPOSE(uint64_t, 8, false, transpose)
TRANSPOSE(uint64_t, 8, true, transpose_past)
TRANSPOSE(wide, 4, false, transpose)

static void
past_end(void)
{
    stream_end();
}

#define EACH(f)                                                                \
    {                                                                          \
        f##_uint8_t, f##_uint16_t, f##_uint32_t, f##_uint64_t, f##_wide        \
    }

const mr_tier_moves MR_TIER_SYM(mr__tier_moves) = {
    .gather = EACH(gather),
    .scatter = EACH(scatter),
    .transpose = EACH(transpose),
    .transpose_past = {NULL, NULL, transpose_past_uint32_t,
                       transpose_past_uint64_t, NULL},
    .fill = EACH(fill),
    .past_end = past_end,
};
