/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix.h -- the matrix unit of x86 processors (AMX): what all that run on it
 * share.
 *
 * Included by: gemm_matrix.c, conv_matrix.c.
 */
#ifndef MR_KERNELS_TIER_MATRIX_H
#define MR_KERNELS_TIER_MATRIX_H

#define LANES       16  /* rows of a tile, and its columns of 32 bits */
#define TILE_FLOATS 256 /* of 1 KB */
#define UNIT        __attribute__((target("amx-tile,amx-bf16")))

/* The intrinsics say nothing of memory to the compiler. */
#define MEMORY_SEEN __asm__ volatile("" ::: "memory")

/* Without this the state of the tiles would be kept from thread to thread. */
UNIT static void
leave(void)
{
    _tile_release();
}

/* Sums are in tiles 0 to 3: two of rows by two of columns, of which the second
 * ones may be missing. */
#define SUMS_ZERO                                                              \
    do {                                                                       \
        _tile_zero(0);                                                         \
        _tile_zero(1);                                                         \
        _tile_zero(2);                                                         \
        _tile_zero(3);                                                         \
    } while (0)

/* A function for each of these shapes: make(name, ..., two_rows, two_cols). */
#define SHAPES(make, name, ...)                                                \
    make(name##_quarter, __VA_ARGS__, 0, 0)                                    \
        make(name##_upper, __VA_ARGS__, 0, 1)                                  \
            make(name##_left, __VA_ARGS__, 1, 0)                               \
                make(name##_whole, __VA_ARGS__, 1, 1)
/* They as a table, by two_rows and two_cols. */
#define OF_SHAPES(name)                                                        \
    {                                                                          \
        {name##_quarter, name##_upper},                                        \
        {                                                                      \
            name##_left, name##_whole                                          \
        }                                                                      \
    }

#endif
