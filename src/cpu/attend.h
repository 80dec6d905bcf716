/* SPDX-License-Identifier: Apache-2.0
 *
 * attend.h -- attention as numbers, and its two routes.
 *
 * The query heads that share a key head are rows of one problem: row r is
 * query r % lq of the head's (r / lq)-th one.  attend.c picks the route from
 * shape and strides alone; attend_back.c is the way back.
 */
#ifndef MR_CPU_ATTEND_H
#define MR_CPU_ATTEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/cpu.h"
#include "kernels/attend.h"
#include "marram/types.h"

/* Rows of a key head that are done one by one, keys read where they are. */
#define MR_ATTEND_FEW 8

typedef struct mr_attend_job {
    mr_kernel_view q, k, v;
    const mr_kernel_view *mask, *sinks; /* or NULL */
    int64_t mask_stride[4], sink_stride[2];
    char *to;
    mr_dtype dtype;
    float scale;
    bool late; /* scores are scaled, not queries */
    bool causal;
    int64_t batch, heads, group, lq, lk, depth, width; /* heads of k */
    int64_t rows;                                      /* group * lq */
    int pieces; /* of a number on the matrix unit; 0: it is not used */
    int n_slots;
    /* set: only these are wanted, for each row of each item: the largest score
     * and the sum of exp(score - top), width being 0; or, the width as it is,
     * also the sum of the output times g, which looks like it */
    float *top, *sum, *dot;
    const mr_kernel_view *g;
    /* or NULL: of each item, does it go in pieces?  Others than the job are
     * left alone */
    const bool *in_pieces;
} mr_attend_job;

/* n to a multiple of `to`; floats to whole lines of the caches. */
static inline int64_t
mr__attend_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}
static inline int64_t
mr__attend_lines(int64_t floats)
{
    return mr__attend_up(floats, 16);
}

/* The operands and parameters of a call; the first three inputs are q, k, v. */
void mr__attend_job(const mr_kernel_args *a, mr_attend_job *j);

/* The same by vectors, whatever the machine has. */
void mr__attend_by_vectors(mr_attend_job *j);

/* Elements of a key head's matrices from the start of the operand. */
int64_t mr__attend_offset(const mr_kernel_view *x, int64_t item, int64_t heads);
/* That element. */
static inline const void *
mr__attend_place(const mr_kernel_view *x, int64_t at)
{
    return (const char *)x->data + at * mr__dtype_size(x->dtype);
}
/* Row r of an item's queries, scaled, `depth` floats. */
void mr__attend_query(const mr_attend_job *j, int64_t item, int64_t r,
                      float *to);
/* Row r of an item of x (B, Hq, Lq, n), as n floats. */
void mr__attend_row(const mr_attend_job *j, const mr_kernel_view *x,
                    int64_t item, int64_t r, int64_t n, float *to);
/* n floats as bfloat16, which may lie over them; false when one is none, or is
 * below 2^-126. */
bool mr__attend_narrow(const float *from, int64_t n, uint16_t *to);
/* All lanes of a side of `depth`, panel after panel, a right side or a left
 * one; false when they must not have that form. */
bool mr__attend_pack(const mr_gemm_side *s, bool right, int64_t depth,
                     mr_gemm_form form, float *to);
mr_gemm_kind mr__attend_kind(mr_dtype t);
/* Rows of a side of up to 32 that must not be in pieces, each by itself, bit i
 * the ith; all of it has the range r. */
uint32_t mr__attend_unfit(const mr_gemm_side *s, mr_gemm_range r,
                          int64_t depth);
/* The last key that row r of an item sees, causally. */
static inline int64_t
mr__attend_limit(const mr_attend_job *j, int64_t r)
{
    return r % j->lq + j->lk - j->lq;
}
/* The first element of the mask for row r of an item and key 0. */
const void *mr__attend_mask(const mr_attend_job *j, int64_t item, int64_t r);
/* n elements of `data`, `stride` apart from number `at` on, as floats. */
void mr__attend_load(float *to, const void *data, mr_dtype t, int64_t at,
                     int64_t stride, int64_t n);
/* The logit that joins row r; -inf without sinks. */
float mr__attend_sink(const mr_attend_job *j, int64_t item, int64_t r);
/* Rows r ... r + n of an item's output, from floats; n * width of them. */
void mr__attend_store(const mr_attend_job *j, int64_t item, int64_t r,
                      int64_t n, float *from);
/* Tiles of keys; with j->top set, only the sums. */
size_t mr__attend_tiles_bytes(const mr_attend_job *j);
void mr__attend_tiles(const mr_attend_job *j, char *workspace);

/* ---- values that are infinite or none, where masks drop pairs
 * (attend_odd.c) ----------------------------------------------------------- */

static inline bool
mr__attend_drops(const mr_attend_job *j)
{
    return j->causal || j->mask;
}

/* Those of n floats become 0; are there any? */
bool mr__attend_clear(float *x, int64_t n);
/* The same of panels of values, `high` lanes of n_keys each, and which keys
 * have any. */
bool mr__attend_odd_clear(float *v, int64_t panels, int64_t high,
                          int64_t n_keys, bool *odd);

/* The sums of up to MR_GEMM_MAX_COLS rows from row0 on, += what such values of
 * the keys from key0 on that are `odd` give to those that see them. */
typedef struct mr_attend_odd {
    const mr_attend_job *j;
    int64_t item, row0, rows, key0, n_keys;
    const bool *odd;
    const float *weights; /* of a key, of a row: so far apart */
    int64_t weight_key, weight_row;
    float *sums;
    int64_t sum_col, sum_row;
} mr_attend_odd;

void mr__attend_odd_add(const mr_attend_odd *x);

/* Few rows: keys and values are read once, in place. */
bool mr__attend_few_fits(const mr_attend_job *j);
size_t mr__attend_few_bytes(const mr_attend_job *j);
void mr__attend_few(const mr_attend_job *j, char *workspace);

#endif
