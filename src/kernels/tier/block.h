/* SPDX-License-Identifier: Apache-2.0
 *
 * block.h -- square blocks of elements of 1 to 16 bytes, transposed: a cache
 * line high and wide where elements allow it.
 */
#ifndef MR_KERNELS_TIER_BLOCK_H
#define MR_KERNELS_TIER_BLOCK_H

/* A line of a cache, past it; o is aligned to it. */
INLINE void
line_stream(char *o, const void *line)
{
    const lane *x = line;

    for (int i = 0; i < 64; i += VEC_BYTES)
        v_stream((lane *)(void *)(o + i), v_load(x + i));
}

#if VEC_BYTES == 64
#define LOW_8   0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_8  4, 12, 5, 13, 6, 14, 7, 15
#define LOW_16  0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31

/* A register for each row: rows i and i + half are zipped, log2 times.
 * stream: past the caches, where out's rows are aligned to whole blocks. */
#define BLOCK(type, side)                                                      \
    typedef type row_##type __attribute__((vector_size(side * sizeof(type)))); \
    INLINE void block_##type(char *o, int64_t out_row, const char *a,          \
                             int64_t in_row, bool stream)                      \
    {                                                                          \
        row_##type t[side], u[side];                                           \
                                                                               \
        _Pragma("GCC unroll 16") for (int j = 0; j < side; j++)                \
            memcpy(&t[j], a + j * in_row, sizeof t[j]);                        \
        _Pragma("GCC unroll 4") for (int n = 1; n < side; n *= 2)              \
        {                                                                      \
            _Pragma("GCC unroll 8") for (int i = 0; i < side / 2; i++)         \
            {                                                                  \
                u[2 * i] = __builtin_shufflevector(t[i], t[i + side / 2],      \
                                                   LOW_##side);                \
                u[2 * i + 1] = __builtin_shufflevector(t[i], t[i + side / 2],  \
                                                       HIGH_##side);           \
            }                                                                  \
            _Pragma("GCC unroll 16") for (int j = 0; j < side; j++) t[j] =     \
                u[j];                                                          \
        }                                                                      \
        _Pragma("GCC unroll 16") for (int j = 0; j < side; j++)                \
        {                                                                      \
            if (stream && sizeof t[j] == 64)                                   \
                line_stream(o + j * out_row, &t[j]);                           \
            else                                                               \
                memcpy(o + j * out_row, &t[j], sizeof t[j]);                   \
        }                                                                      \
    }
BLOCK(uint8_t, 16)
BLOCK(uint16_t, 16)
BLOCK(uint32_t, 16)
BLOCK(uint64_t, 8)

#else
/* Registers of 16 or 32 bytes: 16 bytes of each row, so that few registers are
 * enough.  One of 32 has rows j and j + 16 / size as halves, so zips stay
 * within halves and end as 32 bytes of a row of the output.  Lines are filled
 * before they are written: rows that are a power of two apart share few places
 * of the first-level cache, and those of the input are done with eight at a
 * time.  A function of its own: inlined, sixteen addresses lie on the stack.
 * Two threads of a Zen 3, 2048 x 2048, ms, registers of a line each, this:
 * float32 5.1, 1.14, int64 9.3, 1.7 (PyTorch 6.1, 28; a copy 0.84, 1.7). */
#define ZIP_LOW_1  0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define ZIP_HIGH_1 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#if VEC_BYTES == 32
#define ZIP_LOW_2  0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27
#define ZIP_HIGH_2 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31
#define ZIP_LOW_4  0, 8, 1, 9, 4, 12, 5, 13
#define ZIP_HIGH_4 2, 10, 3, 11, 6, 14, 7, 15
#define ZIP_LOW_8  0, 4, 2, 6
#define ZIP_HIGH_8 1, 5, 3, 7
#else
#define ZIP_LOW_2  0, 8, 1, 9, 2, 10, 3, 11
#define ZIP_HIGH_2 4, 12, 5, 13, 6, 14, 7, 15
#define ZIP_LOW_4  0, 4, 1, 5
#define ZIP_HIGH_4 2, 6, 3, 7
#define ZIP_LOW_8  0, 2
#define ZIP_HIGH_8 1, 3
#endif

typedef int64_t half_16 __attribute__((vector_size(16)));

INLINE half_16
rows_load_16(const char *a, int64_t apart)
{
    half_16 x;

    (void)apart;
    memcpy(&x, a, sizeof x);
    return x;
}

#if VEC_BYTES == 32
typedef int64_t both_32 __attribute__((vector_size(32)));

INLINE both_32
rows_load_32(const char *a, int64_t apart)
{
    return __builtin_shufflevector(rows_load_16(a, 0),
                                   rows_load_16(a + apart, 0), 0, 1, 2, 3);
}
#endif

/* EACH registers make as many rows of the output, of N rows of the input;
 * stream: past the caches, where out's rows are aligned to whole blocks. */
#define BLOCK(type, size, side, bytes)                                         \
    typedef type row_##type __attribute__((vector_size(bytes)));               \
                                                                               \
    INLINE void zip_##type(row_##type t[16 / size])                            \
    {                                                                          \
        enum { EACH = 16 / size };                                             \
        row_##type u[EACH];                                                    \
                                                                               \
        _Pragma("GCC unroll 4") for (int n = 1; n < EACH; n *= 2)              \
        {                                                                      \
            _Pragma("GCC unroll 8") for (int i = 0; i < EACH / 2; i++)         \
            {                                                                  \
                u[2 * i] = __builtin_shufflevector(t[i], t[i + EACH / 2],      \
                                                   ZIP_LOW_##size);            \
                u[2 * i + 1] = __builtin_shufflevector(t[i], t[i + EACH / 2],  \
                                                       ZIP_HIGH_##size);       \
            }                                                                  \
            _Pragma("GCC unroll 16") for (int j = 0; j < EACH; j++) t[j] =     \
                u[j];                                                          \
        }                                                                      \
    }                                                                          \
                                                                               \
    static __attribute__((noinline)) void block_##type(                        \
        char *o, int64_t out_row, const char *a, int64_t in_row, bool stream)  \
    {                                                                          \
        enum { EACH = 16 / size, N = bytes / size, LINE = side * size };       \
        _Alignas(64) char lines[side * LINE];                                  \
        row_##type t[EACH];                                                    \
                                                                               \
        for (int r = 0; r < side; r += N)                                      \
            for (int c = 0; c < side; c += EACH) {                             \
                const char *from = a + r * in_row + c * size;                  \
                                                                               \
                _Pragma("GCC unroll 16") for (int j = 0; j < EACH; j++) t[j] = \
                    (row_##type)rows_load_##bytes(from + j * in_row,           \
                                                  EACH * in_row);              \
                zip_##type(t);                                                 \
                _Pragma("GCC unroll 16") for (int j = 0; j < EACH; j++)        \
                    memcpy(N == side ? o + (c + j) * out_row                   \
                                     : lines + (c + j) * LINE + r * size,      \
                           &t[j], sizeof t[j]);                                \
            }                                                                  \
        for (int c = 0; N < side && c < side; c++) {                           \
            if (stream && LINE == 64)                                          \
                line_stream(o + c * out_row, lines + c * LINE);                \
            else                                                               \
                memcpy(o + c * out_row, lines + c * LINE, LINE);               \
        }                                                                      \
    }
#define BLOCKS(bytes)                                                          \
    BLOCK(uint16_t, 2, 16, bytes)                                              \
    BLOCK(uint32_t, 4, 16, bytes)                                              \
    BLOCK(uint64_t, 8, 8, bytes)
BLOCK(uint8_t, 1, 16, 16)
#if VEC_BYTES == 32
BLOCKS(32)
#else
BLOCKS(16)
#endif
#endif

INLINE void
block_wide(char *o, int64_t out_row, const char *a, int64_t in_row, bool stream)
{
    (void)stream;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            memcpy(o + i * out_row + j * 16, a + j * in_row + i * 16, 16);
}

#endif
