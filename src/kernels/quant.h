/* SPDX-License-Identifier: Apache-2.0
 *
 * quant.h -- quantised matrices: packing, unpacking, and products with few
 * rows straight from the packed words.
 *
 * A row of codes is one little-endian stream of bits; groups of 16 to 128
 * codes share a scale and in affine formats a bias.  A value is code * scale +
 * bias (multiplied, rounded, added), or element * scale, where elements of 4
 * bits are E2M1 and of 8 bits E4M3.
 *
 * Products keep 16 virtual lanes in every tier.  A cell is 16 * C codes: lane l
 * has the codes l * C + i (C is 32, 16, 8, 8, 4, 4, 4 for 1, 2, 3, 4, 5, 6, 8
 * bits; x is arranged to suit, mr__quant_arrange), added up by i and scaled
 * once; biases meet the sums of x over the groups.  So the bits depend on the
 * operands alone, not on the tier (but baseline; one and two rows may go as
 * digits, quant_digits.h) or the threads.
 */
#ifndef MR_KERNELS_QUANT_H
#define MR_KERNELS_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/tier/tier.h"
#include "marram/types.h"

typedef enum mr_quant_code {
    MR_CODE_INTEGER, /* 1 to 6 or 8 bits */
    MR_CODE_E2M1,    /* 4 bits */
    MR_CODE_E4M3     /* 8 bits */
} mr_quant_code;

typedef enum mr_quant_scale {
    MR_SCALE_FLOAT32,
    MR_SCALE_FLOAT16,
    MR_SCALE_BFLOAT16,
    MR_SCALE_E8M0, /* 2^(byte - 127) */
    MR_SCALE_E4M3
} mr_quant_scale;

/* How a matrix is packed. */
typedef struct mr_quant_format {
    mr_quant_code code;
    mr_quant_scale scale;
    int bits, group;
    bool biased;
} mr_quant_format;

/* A packed matrix, row-major: cols is a multiple of the group. */
typedef struct mr_quant_matrix {
    mr_quant_format f;
    int64_t rows, cols;
    const void *words, *scales, *biases; /* biases NULL unless biased */
} mr_quant_matrix;

/* Codes that one call of a tier's kernels may take, and their most groups. */
#define MR_QUANT_SPAN   8192
#define MR_QUANT_GROUPS (MR_QUANT_SPAN / 16)
/* Rows of x in one product. */
#define MR_QUANT_ROWS 4
/* Rows of w whose lanes wait for their sums together. */
#define MR_QUANT_TOGETHER 16
/* From here on x is huge. */
#define MR_QUANT_HUGE 0x1p64F
/* Where the bits of codes are floats, the sums of a group are less by this, and
 * its scale is more. */
#define MR_QUANT_RAISED 0x1p40F
/* Numbers of the largest group that is not affine. */
#define MR_QUANT_FLOAT_GROUP 32

/* ---- making ---------------------------------------------------------------
 * One group of floats.  Affine: integers' codes, scale and bias as floats (the
 * caller rounds them to their type).  Others: codes and the scale's byte; a
 * global factor (1 without) multiplies before the scale is rounded.  Quotients
 * are rounded to t, the type that x came from, as they are in MLX. */
void mr__quant_affine(const float *x, int n, int bits, uint32_t *codes,
                      float *scale, float *bias);
void mr__quant_float(const float *x, int n, mr_dtype t,
                     const mr_quant_format *f, bool ties_even, float factor,
                     uint32_t *codes, uint8_t *scale);
/* n codes (a multiple of 32 or bits * n of 32) to words. */
void mr__quant_pack(const uint32_t *codes, int n, int bits, uint32_t *words);
/* The element of a code, the number of a scale byte. */
float mr__quant_element(const mr_quant_format *f, uint32_t code);
float mr__quant_scale_byte(mr_quant_scale kind, uint8_t byte);
/* Of one scale. */
int mr__quant_scale_bytes(mr_quant_scale kind);

/* ---- reading --------------------------------------------------------------
 * Columns [k0, k0 + n) of a row as floats; k0 and n are multiples of 8.
 * Scales are multiplied by a factor first.  round: affine values are rounded to
 * the scales' type after the product. */
void mr__quant_read(const mr_quant_matrix *w, int64_t row, int64_t k0,
                    int64_t n, float factor, bool round, float *to);

/* Panels of the packed product (gemm.h): lanes are rows of w when `by_rows`,
 * else columns. */
void mr__quant_panel(const mr_quant_matrix *w, bool by_rows, int width,
                     int64_t panel, int64_t depth0, int64_t depth, float *to);

/* to[g] = the sum of group g of n. */
void mr__quant_group_sums(const float *x, int group, int64_t n, float *to);

/* ---- few rows -------------------------------------------------------------
 * x arranged for products with rows of this format: mr__quant_arranged_floats
 * floats, 64-byte aligned.  m: how many rows meet a matrix, if that is known,
 * or 1; up to two may go as digits (quant_digits.h). */
int64_t mr__quant_arranged_floats(const mr_quant_format *f, int64_t cols);
void mr__quant_arrange(const mr_quant_format *f, int64_t cols, const float *x,
                       int64_t m, float *to);
/* Has that row a number of MR_QUANT_HUGE or more?  Then sums of codes may
 * exceed float32 before their scale makes them small, and mr__quant_dot is not
 * right.
 */
bool mr__quant_arranged_huge(const mr_quant_format *f, int64_t cols,
                             const float *arranged);
/* y[i][j] (rows y_row apart) = x[i] times row j of w, rows [j0, j1). */
void mr__quant_dot(const mr_quant_matrix *w, int64_t j0, int64_t j1, int m,
                   const float *const *arranged, float *y, int64_t y_row);

/* ---- what a tier gives (tier/quant.c) -------------------------------------
 */
/* Some columns of some rows: one call takes at most MR_QUANT_SPAN codes of a
 * row and MR_QUANT_TOGETHER rows. */
typedef struct mr_quant_span {
    const uint8_t *from, *end; /* packed bytes; what may be read ends there */
    int64_t n;                 /* codes, a multiple of the group */
    int group, n_groups;
    /* 16 more scales may be read; bias NULL: none */
    const float *scale, *bias;
    int64_t row_bytes, row_groups; /* from a row to the next */
    /* not NULL: the scales are these bytes, of E4M3 or E8M0; digits alone */
    const uint8_t *scale_bytes;
    bool bytes_e4m3;
} mr_quant_span;

/* lanes[i * MR_QUANT_TOGETHER + r] += the products of x[i] with row r. */
typedef void mr_quant_dot_fn(const mr_quant_span *s, int rows,
                             const float *const *x, const float *const *x_sums,
                             float (*lanes)[16]);
typedef void mr_quant_unpack_fn(const uint8_t *from, int64_t n, int64_t behind,
                                float *to);

typedef void mr_quant_lanes_fn(const uint32_t *words, int64_t n,
                               const float *scale, const float *bias, float *to,
                               int64_t step);

typedef enum mr_quant_kind {
    MR_QUANT_1,
    MR_QUANT_2,
    MR_QUANT_3,
    MR_QUANT_4,
    MR_QUANT_5,
    MR_QUANT_6,
    MR_QUANT_8,
    MR_QUANT_E2M1,
    MR_QUANT_E4M3,
    MR_N_QUANT_KINDS
} mr_quant_kind;

mr_quant_kind mr__quant_kind(const mr_quant_format *f);

typedef struct mr_quant_tier {
    /* n codes as numbers; n a multiple of 8: their n * bits / 8 bytes and what
       lies `behind` them may be read */
    mr_quant_unpack_fn *unpack[MR_N_QUANT_KINDS];
    /* by the number of rows: 1, 2, 4 */
    mr_quant_dot_fn *dot[MR_N_QUANT_KINDS][3];
    /* the same bits faster, from x arranged `in place`: each number divided by
       2 to the place of its code in the lane (3, 5, 6 bits: only on processors
       with AVX512-VBMI, `bytes`); NULL where there is nothing to win */
    mr_quant_dot_fn *in_place[MR_N_QUANT_KINDS][3];
    mr_quant_dot_fn *bytes[MR_N_QUANT_KINDS][3];
    /* the same where multiply-adds take subnormal numbers as fast as others:
       the bits of a code are a float; x is arranged for that, and scales are
       raised (NULL: none) */
    mr_quant_dot_fn *bits[MR_N_QUANT_KINDS][3];
    /* lanes of rows side by side: from words[i][lane] the n codes of each lane
       (a multiple of 16), scaled: to[k * step + lane] */
    int32_t lanes;
    mr_quant_lanes_fn *turned[MR_N_QUANT_KINDS];
    /* to[i] = the sum of row i of n, in a fixed order */
    void (*sums)(float (*lanes)[16], int n, float *to);
    /* bytes as scales: E8M0, E4M3 */
    void (*scales[2])(const uint8_t *from, int64_t n, float *to);
    /* n (a multiple of 16) scales times MR_QUANT_RAISED; false: one is too
       large for that, or no number */
    bool (*raised)(const float *from, int64_t n, float *to);
    /* the same of n bytes: E8M0, E4M3 */
    bool (*raised_bytes[2])(const uint8_t *from, int64_t n, float *to);
    /* x[i] = x[i] * scale + bias, rounded twice; bias may be 0 */
    void (*scale)(float *x, int64_t n, float scale, float bias);
    /* the least and the largest of n (a multiple of 16) numbers; NaN where one
       is NaN */
    void (*extremes)(const float *x, int n, float *lo, float *hi);
    /* codes[i] = clamp(rint((x[i] - bias) / scale), 0, largest); NaN gives 0 */
    void (*codes)(const float *x, int n, float scale, float bias, float largest,
                  uint32_t *codes);
} mr_quant_tier;

#define MR_X(id, name) extern const mr_quant_tier mr__quant_tier_##name;
MR_TIERS(MR_X)
#undef MR_X

/* The table of one tier, NULL where this machine cannot run it. */
static inline const mr_quant_tier *
mr__quant_of_tier(int id)
{
    return mr__tier_or_none(id)->quant;
}

#endif
