/* SPDX-License-Identifier: Apache-2.0
 *
 * scan.c -- running sums, products, extremes, log-sum-exps along an axis.
 *
 * One order for every layout and any number of threads: along the axis, each
 * entry is combined with the sum of those before it.  Lines longer than BLOCK
 * are cut into blocks of that length; the blocks' totals, each made in the
 * same order from its first entry, are combined in order, and each block
 * starts from the total of those before it.  Sums of floats carry float64.
 *
 * An axis whose lines lie side by side (everything but the last) is run down
 * with the tier's elementwise kernels, many lines at a time.  A line of
 * adjacent entries is one chain: plain loops where that is a C operator, the
 * tier's kernels on one element otherwise; both give the same bits.
 * Called by: device.c.  Calls: the tier's kernels.
 */
#include <string.h>

#include "cpu/cpu.h"
#include "kernels/tier/tier.h"
#include "ops/params.h"

enum { BLOCK = 1 << 16, BAND = 256, ACC_BYTES = 16 };

static const int64_t steps[2] = {1, 1};

typedef struct scan scan;
/* n entries from x to o (either may lie back to front), from the value at acc
 * on unless `empty`; acc is left with the total.  o may be NULL. */
typedef void line_fn(const scan *s, const char *x, char *o, int64_t n,
                     void *acc, bool empty);

struct scan {
    mr_scan_mode mode;
    mr_dtype dtype, acc; /* what is carried: see carried_dtype */
    bool reverse, inclusive;
    int64_t item, acc_item;
    int64_t outer, n, inner; /* lines: outer x inner */
    const char *from;
    char *to;
    mr_map_fn *map; /* of acc */
    line_fn *line;
    int64_t step; /* along a line in memory, in elements: 1 or -1 */
    _Alignas(16) char neutral[BAND * ACC_BYTES]; /* in acc */
    int64_t n_blocks;
    char *totals; /* outer x n_blocks acc elements */
};

/* ---- lines of adjacent entries
 * ------------------------------------------------- */

#define COMBINE_SUM(a, x)  ((a) + (x))
#define COMBINE_PROD(a, x) ((a) * (x))
/* A NaN is taken, and kept: no comparison with it holds. */
#define COMBINE_MAX(a, x) ((x) > (a) || (x) != (x) ? (x) : (a))
#define COMBINE_MIN(a, x) ((x) < (a) || (x) != (x) ? (x) : (a))

#define LINE(name, type, op)                                                   \
    static void name(const scan *s, const char *from, char *to, int64_t n,     \
                     void *acc, bool empty)                                    \
    {                                                                          \
        const type *x = (const type *)(const void *)from;                      \
        type *o = (type *)(void *)to, sum, *total = acc;                       \
        type neutral = *(const type *)(const void *)s->neutral;                \
        int64_t step = s->step, i = 0;                                         \
                                                                               \
        sum = *total;                                                          \
        if (empty && n > 0) {                                                  \
            sum = *x;                                                          \
            if (o)                                                             \
                *o = s->inclusive ? sum : neutral;                             \
            i = 1;                                                             \
        }                                                                      \
        if (!o)                                                                \
            for (; i < n; i++)                                                 \
                sum = (type)op(sum, x[i * step]);                              \
        else if (s->inclusive)                                                 \
            for (; i < n; i++) {                                               \
                sum = (type)op(sum, x[i * step]);                              \
                o[i * step] = sum;                                             \
            }                                                                  \
        else                                                                   \
            for (; i < n; i++) {                                               \
                o[i * step] = sum;                                             \
                sum = (type)op(sum, x[i * step]);                              \
            }                                                                  \
        *total = sum;                                                          \
    }

/* Sums and products of signed integers wrap as unsigned ones do. */
LINE(sum_8, uint8_t, COMBINE_SUM)
LINE(sum_16, uint16_t, COMBINE_SUM)
LINE(sum_32, uint32_t, COMBINE_SUM)
LINE(sum_64, uint64_t, COMBINE_SUM)
LINE(sum_f32, float, COMBINE_SUM)
LINE(sum_f64, double, COMBINE_SUM)
LINE(prod_8, uint8_t, COMBINE_PROD)
LINE(prod_16, uint16_t, COMBINE_PROD)
LINE(prod_32, uint32_t, COMBINE_PROD)
LINE(prod_64, uint64_t, COMBINE_PROD)
LINE(prod_f32, float, COMBINE_PROD)
LINE(prod_f64, double, COMBINE_PROD)
LINE(max_u8, uint8_t, COMBINE_MAX)
LINE(max_u16, uint16_t, COMBINE_MAX)
LINE(max_u32, uint32_t, COMBINE_MAX)
LINE(max_u64, uint64_t, COMBINE_MAX)
LINE(max_i8, int8_t, COMBINE_MAX)
LINE(max_i16, int16_t, COMBINE_MAX)
LINE(max_i32, int32_t, COMBINE_MAX)
LINE(max_i64, int64_t, COMBINE_MAX)
LINE(max_f32, float, COMBINE_MAX)
LINE(max_f64, double, COMBINE_MAX)
LINE(min_u8, uint8_t, COMBINE_MIN)
LINE(min_u16, uint16_t, COMBINE_MIN)
LINE(min_u32, uint32_t, COMBINE_MIN)
LINE(min_u64, uint64_t, COMBINE_MIN)
LINE(min_i8, int8_t, COMBINE_MIN)
LINE(min_i16, int16_t, COMBINE_MIN)
LINE(min_i32, int32_t, COMBINE_MIN)
LINE(min_i64, int64_t, COMBINE_MIN)
LINE(min_f32, float, COMBINE_MIN)
LINE(min_f64, double, COMBINE_MIN)

static line_fn *const lines[4][MR_N_DTYPES] = {
    [MR_SCAN_SUM] = {[MR_UINT8] = sum_8,
                     [MR_UINT16] = sum_16,
                     [MR_UINT32] = sum_32,
                     [MR_UINT64] = sum_64,
                     [MR_INT8] = sum_8,
                     [MR_INT16] = sum_16,
                     [MR_INT32] = sum_32,
                     [MR_INT64] = sum_64,
                     [MR_FLOAT32] = sum_f32,
                     [MR_FLOAT64] = sum_f64},
    [MR_SCAN_PROD] = {[MR_UINT8] = prod_8,
                      [MR_UINT16] = prod_16,
                      [MR_UINT32] = prod_32,
                      [MR_UINT64] = prod_64,
                      [MR_INT8] = prod_8,
                      [MR_INT16] = prod_16,
                      [MR_INT32] = prod_32,
                      [MR_INT64] = prod_64,
                      [MR_FLOAT32] = prod_f32,
                      [MR_FLOAT64] = prod_f64},
    [MR_SCAN_MAX] = {[MR_BOOL] = max_u8,
                     [MR_UINT8] = max_u8,
                     [MR_UINT16] = max_u16,
                     [MR_UINT32] = max_u32,
                     [MR_UINT64] = max_u64,
                     [MR_INT8] = max_i8,
                     [MR_INT16] = max_i16,
                     [MR_INT32] = max_i32,
                     [MR_INT64] = max_i64,
                     [MR_FLOAT32] = max_f32,
                     [MR_FLOAT64] = max_f64},
    [MR_SCAN_MIN] = {[MR_BOOL] = min_u8,
                     [MR_UINT8] = min_u8,
                     [MR_UINT16] = min_u16,
                     [MR_UINT32] = min_u32,
                     [MR_UINT64] = min_u64,
                     [MR_INT8] = min_i8,
                     [MR_INT16] = min_i16,
                     [MR_INT32] = min_i32,
                     [MR_INT64] = min_i64,
                     [MR_FLOAT32] = min_f32,
                     [MR_FLOAT64] = min_f64},
};

/* The elements' dtype and acc are the same here. */
static void
line_mapped(const scan *s, const char *x, char *o, int64_t n, void *acc,
            bool empty)
{
    size_t item = (size_t)s->item;

    for (int64_t i = 0; i < n; i++) {
        int64_t at = i * s->step * s->item;
        const void *both[2] = {acc, x + at};

        if (o && !s->inclusive)
            memcpy(o + at, empty ? (const void *)s->neutral : acc, item);
        if (empty)
            memcpy(acc, x + at, item);
        else
            s->map(acc, both, steps, 1);
        empty = false;
        if (o && s->inclusive)
            memcpy(o + at, acc, item);
    }
}

/* A piece at a time in the wider type that is carried. */
static void
line_wide(const scan *s, const char *x, char *o, int64_t n, void *acc,
          bool empty)
{
    const mr_tier_casts *casts = mr__tier()->casts;
    line_fn *line =
        s->mode == MR_SCAN_LOGADDEXP ? NULL : lines[s->mode][s->acc];
    _Alignas(16) char in[BAND * ACC_BYTES], out[BAND * ACC_BYTES];
    scan wide_scan = *s;

    wide_scan.item = s->acc_item;
    if (line == NULL)
        line = line_mapped;
    for (int64_t i = 0, m; i < n; i += m) {
        /* the piece's first byte in memory, whichever way it is run */
        int64_t low, first;

        m = n - i < BAND ? n - i : BAND;
        low = (s->step > 0 ? i : -(i + m - 1)) * s->item;
        first = s->step > 0 ? 0 : m - 1;
        casts->cast[s->dtype][s->acc](in, x + low, m);
        line(&wide_scan, in + first * s->acc_item,
             o ? out + first * s->acc_item : NULL, m, acc, empty && i == 0);
        if (o)
            casts->cast[s->acc][s->dtype](o + low, out, m);
    }
}

/* ---- one block of one line
 * ------------------------------------------------------- */

static int64_t
block_length(const scan *s, int64_t block)
{
    int64_t left = s->n - block * BLOCK;

    return left < BLOCK ? left : BLOCK;
}

/* Bytes from the start of the line to the first entry of a block. */
static int64_t
block_start(const scan *s, int64_t block)
{
    int64_t i = block * BLOCK;

    return (s->reverse ? s->n - 1 - i : i) * s->item;
}

static void
totals_piece(void *ctx, int64_t begin, int64_t end)
{
    const scan *s = ctx;

    for (int64_t i = begin; i < end; i++) {
        int64_t line = i / s->n_blocks, block = i % s->n_blocks;

        if (block < s->n_blocks - 1)
            s->line(s, s->from + line * s->n * s->item + block_start(s, block),
                    NULL, BLOCK, s->totals + i * s->acc_item, true);
    }
}

/* Each block's total becomes that of all blocks up to it. */
static void
totals_combine(const scan *s)
{
    for (int64_t line = 0; line < s->outer; line++) {
        char *t = s->totals + line * s->n_blocks * s->acc_item;

        for (int64_t b = 1; b < s->n_blocks - 1; b++) {
            const void *both[2] = {t + (b - 1) * s->acc_item,
                                   t + b * s->acc_item};

            s->map(t + b * s->acc_item, both, steps, 1);
        }
    }
}

static void
blocks_piece(void *ctx, int64_t begin, int64_t end)
{
    const scan *s = ctx;

    for (int64_t i = begin; i < end; i++) {
        int64_t line = i / s->n_blocks, block = i % s->n_blocks;
        int64_t at = line * s->n * s->item + block_start(s, block);
        _Alignas(16) char acc[ACC_BYTES] = {0};

        if (block > 0)
            memcpy(acc, s->totals + (i - 1) * s->acc_item, (size_t)s->acc_item);
        s->line(s, s->from + at, s->to + at, block_length(s, block), acc,
                block == 0);
    }
}

/* ---- lines side by side
 * ------------------------------------------------------------ */

/* BAND lines from `from` down one block; acc holds their totals. */
static void
band_block(const scan *s, const char *from, char *to, int64_t lines_n,
           int64_t block, char *acc, bool empty)
{
    const mr_tier_casts *casts = mr__tier()->casts;
    bool wide_acc = s->acc != s->dtype;
    size_t bytes = (size_t)(lines_n * s->acc_item);
    _Alignas(16) char wide[BAND * ACC_BYTES];

    for (int64_t i = 0; i < block_length(s, block); i++) {
        int64_t k = block * BLOCK + i;
        int64_t at = (s->reverse ? s->n - 1 - k : k) * s->inner * s->item;
        const void *x = from + at, *out = acc;

        if (wide_acc) {
            casts->cast[s->dtype][s->acc](wide, x, lines_n);
            x = wide;
        }
        for (int now = 0; now < 2; now++) {
            const void *both[2] = {acc, x};

            if (now == (s->inclusive ? 0 : 1)) {
                if (empty)
                    memcpy(acc, x, bytes);
                else
                    s->map(acc, both, steps, lines_n);
                empty = false;
            } else if (to) {
                out = empty ? (const void *)s->neutral : acc;
                if (wide_acc)
                    casts->cast[s->acc][s->dtype](to + at, out, lines_n);
                else
                    memcpy(to + at, out, bytes);
            }
        }
    }
}

static void
bands_piece(void *ctx, int64_t begin, int64_t end)
{
    const scan *s = ctx;
    int64_t bands = (s->inner - 1) / BAND + 1;
    _Alignas(16) char carry[BAND * ACC_BYTES], total[BAND * ACC_BYTES];

    for (int64_t u = begin; u < end; u++) {
        int64_t line = u % bands * BAND, n = s->inner - line;
        int64_t at = (u / bands * s->n * s->inner + line) * s->item;
        const char *from = s->from + at;

        n = n < BAND ? n : BAND;
        for (int64_t b = 0; b < s->n_blocks; b++) {
            const void *both[2] = {carry, total};

            if (b == 1) {
                band_block(s, from, NULL, n, 0, carry, true);
            } else if (b > 1) {
                band_block(s, from, NULL, n, b - 1, total, true);
                s->map(carry, both, steps, n);
            }
            if (b > 0)
                memcpy(total, carry, (size_t)(n * s->acc_item));
            band_block(s, from, s->to + at, n, b, total, b == 0);
        }
    }
}

/* ---- the row of the table
 * ------------------------------------------------------------ */

/* The value that an empty sum has, in acc, many times. */
static void
neutral_fill(scan *s)
{
    static const mr_fold folds[] = {[MR_SCAN_SUM] = MR_FOLD_SUM,
                                    [MR_SCAN_PROD] = MR_FOLD_PROD,
                                    [MR_SCAN_MAX] = MR_FOLD_MAX,
                                    [MR_SCAN_MIN] = MR_FOLD_MIN};
    static const mr_c128 zero_sum = {-__builtin_inf(), 0.0};
    const mr_tier *t = mr__tier();

    if (s->mode == MR_SCAN_SUM) {
        memset(s->neutral, 0, sizeof s->neutral); /* 0, not the fold's -0 */
        return;
    }
    if (s->mode != MR_SCAN_LOGADDEXP) {
        t->dtype[s->acc]->fold[folds[s->mode]].fill(s->neutral, BAND);
        return;
    }
    for (int i = 0; i < BAND; i++) {
        char *to = s->neutral + i * s->acc_item;

        if (s->acc == MR_COMPLEX128)
            memcpy(to, &zero_sum, sizeof zero_sum);
        else
            t->casts->cast[MR_COMPLEX128][s->acc](to, &zero_sum, 1);
    }
}

/* Sums carry float64, so that each entry of a long one is rounded once; the
 * rest of halves' scans float32. */
static mr_dtype
carried_dtype(mr_scan_mode mode, mr_dtype t)
{
    if (mode == MR_SCAN_SUM &&
        (t == MR_FLOAT16 || t == MR_BFLOAT16 || t == MR_FLOAT32))
        return MR_FLOAT64;
    if (mode == MR_SCAN_SUM && t == MR_COMPLEX64)
        return MR_COMPLEX128;
    return mr__accumulate_dtype(t);
}

static void
scan_plan(const mr_kernel_args *a, scan *s)
{
    static const mr_k k[] = {[MR_SCAN_SUM] = MR_K_ADD,
                             [MR_SCAN_PROD] = MR_K_MULTIPLY,
                             [MR_SCAN_MAX] = MR_K_MAXIMUM,
                             [MR_SCAN_MIN] = MR_K_MINIMUM,
                             [MR_SCAN_LOGADDEXP] = MR_K_LOGADDEXP};
    const mr_scan_params *p = a->params;
    const mr_kernel_view *x = &a->in[0];

    s->mode = (mr_scan_mode)p->mode;
    s->dtype = x->dtype;
    s->acc = carried_dtype(s->mode, x->dtype);
    s->reverse = p->reverse;
    s->inclusive = p->inclusive;
    s->item = mr__dtype_size(s->dtype);
    s->acc_item = mr__dtype_size(s->acc);
    s->outer = s->inner = 1;
    for (int32_t i = 0; i < p->axis; i++)
        s->outer *= x->dim[i];
    for (int32_t i = p->axis + 1; i < x->ndim; i++)
        s->inner *= x->dim[i];
    s->n = x->dim[p->axis];
    s->from = x->data;
    s->to = a->out[0].data;
    s->map = mr__tier()->dtype[s->acc]->map[k[s->mode]];
    s->step = s->reverse ? -1 : 1;
    s->n_blocks = (s->n - 1) / BLOCK + 1;
    s->totals = NULL;
    s->line = line_mapped;
    if (s->acc != s->dtype)
        s->line = line_wide;
    else if (s->mode != MR_SCAN_LOGADDEXP && lines[s->mode][s->dtype])
        s->line = lines[s->mode][s->dtype];
    neutral_fill(s);
}

/* The totals of the blocks of long lines. */
size_t
mr__cpu_scan_workspace(const mr_kernel_args *a)
{
    scan s;

    if (a->in[0].size == 0)
        return 0;
    scan_plan(a, &s);
    return s.inner == 1 && s.n_blocks > 1
               ? (size_t)(s.outer * s.n_blocks * s.acc_item)
               : 0;
}

mr_code
mr__cpu_scan(const mr_kernel_args *a)
{
    bool slow;
    scan s;

    if (a->in[0].size == 0)
        return MR_OK;
    scan_plan(a, &s);
    slow = s.line == line_mapped || s.mode == MR_SCAN_LOGADDEXP;
    if (s.inner > 1) {
        int64_t bands = (s.inner - 1) / BAND + 1;

        mr__cpu_for(s.outer * bands,
                    mr__cpu_grain((slow ? 5.0 : 0.5) * BAND * (double)s.n),
                    bands_piece, &s);
        return MR_OK;
    }
    if (s.n_blocks > 1) {
        s.totals = a->workspace;
        mr__cpu_for(s.outer * s.n_blocks, 1, totals_piece, &s);
        totals_combine(&s);
    }
    mr__cpu_for(s.outer * s.n_blocks,
                mr__cpu_grain((slow ? 20.0 : 1.5) * (double)s.n), blocks_piece,
                &s);
    return MR_OK;
}
