/* SPDX-License-Identifier: Apache-2.0
 *
 * moves.c -- moving elements of 1 to 16 bytes: strided and transposed.
 */
#define MR_LANE_BITS     8
#define MR_LANE_UNSIGNED 1
#include "kernels/tier/lanes.h"

typedef struct wide {
    uint64_t half[2];
} wide;

/* Elements may lie at any address: they are read and written as bytes. */
#define MOVES(type)                                                            \
    static void gather_##type(void *out, const void *in, int64_t stride,       \
                              int64_t n)                                       \
    {                                                                          \
        type *o = out;                                                         \
        const char *a = in;                                                    \
                                                                               \
        for (int64_t i = 0; i < n; i++)                                        \
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
    }                                                                          \
    static void transpose_##type(void *out, int64_t out_row, const void *in,   \
                                 int64_t in_row, int64_t n_rows,               \
                                 int64_t n_cols)                               \
    {                                                                          \
        char *o = out;                                                         \
        const char *a = in;                                                    \
        int64_t r = 0;                                                         \
                                                                               \
        for (; r + 8 <= n_rows; r += 8) {                                      \
            int64_t c = 0;                                                     \
                                                                               \
            for (; c + 8 <= n_cols; c += 8) {                                  \
                type t[8][8];                                                  \
                                                                               \
                for (int j = 0; j < 8; j++)                                    \
                    memcpy(t[j],                                               \
                           a + (c + j) * in_row + r * (int64_t)sizeof(type),   \
                           sizeof t[j]);                                       \
                for (int i = 0; i < 8; i++) {                                  \
                    type row[8];                                               \
                                                                               \
                    for (int j = 0; j < 8; j++)                                \
                        row[j] = t[j][i];                                      \
                    memcpy(o + (r + i) * out_row + c * (int64_t)sizeof(type),  \
                           row, sizeof row);                                   \
                }                                                              \
            }                                                                  \
            for (int i = 0; i < 8; i++)                                        \
                gather_##type(                                                 \
                    o + (r + i) * out_row + c * (int64_t)sizeof(type),         \
                    a + c * in_row + (r + i) * (int64_t)sizeof(type), in_row,  \
                    n_cols - c);                                               \
        }                                                                      \
        for (; r < n_rows; r++)                                                \
            gather_##type(o + r * out_row, a + r * (int64_t)sizeof(type),      \
                          in_row, n_cols);                                     \
    }
MOVES(uint8_t)
MOVES(uint16_t)
MOVES(uint32_t)
MOVES(uint64_t)
MOVES(wide)

#define EACH(f)                                                                \
    {                                                                          \
        f##_uint8_t, f##_uint16_t, f##_uint32_t, f##_uint64_t, f##_wide        \
    }

const mr_tier_moves MR_TIER_SYM(mr__tier_moves) = {
    .gather = EACH(gather),
    .scatter = EACH(scatter),
    .transpose = EACH(transpose),
    .fill = EACH(fill),
};
