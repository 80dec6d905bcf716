/* SPDX-License-Identifier: Apache-2.0
 *
 * scan.c -- running sums, products, extremes, log-sum-exps along an axis.
 *
 * One order for every layout and any number of threads: along the axis, each
 * entry is combined with the sum of those before it.  Lines longer than BLOCK
 * are cut into blocks of that length; the blocks' totals, each made in the
 * same order from its first entry, are combined in order, and each block
 * starts from the total of those before it.  Sums of floats, of their
 * exponentials too, carry float64.
 *
 * A line of adjacent entries is one chain, each step of which waits for the
 * one before: GROUP blocks (or lines) are run at a time, in plain loops where
 * combining is a C operator, else turned so that LANES blocks lie side by side
 * and the tier's elementwise kernels take one entry of each.  Where there are
 * many lines, sums and products of float32 take a line a lane
 * (kernels/scan.h).  An axis whose
 * lines lie side by side as they are (everything but the last) is run down
 * with these kernels too, many lines at a time.  All give the same bits.
 * Called by: device.c.  Calls: the tier's kernels.
 */
#include <string.h>

#include "base/pool.h"
#include "cpu/cpu.h"
#include "kernels/copy.h"
#include "kernels/scan.h"
#include "kernels/tier/tier.h"
#include "ops/params.h"

/* BLOCK: blocks that are run side by side do not lie a power of two apart. */
enum {
    BLOCK = 8000,
    BAND = 256,
    NARROW_BAND = 64,
    BANDS_SHARE = 4, /* for each thread, where lines are enough */
    GROUP = 4,
    LANES = 32,
    ACC_BYTES = 16,
    NARROW = 32
};

static const int64_t steps[2] = {1, 1};

typedef struct scan scan;
/* Of GROUP lines, n entries from x to o (either may lie back to front), from
 * the values at acc on unless `empty`; acc is left with the totals.  o may be
 * NULL.  Lines may be the same one. */
typedef void line_fn(const scan *s, const char *const *x, char *const *o,
                     int64_t n, char *acc, bool empty);

struct scan {
    mr_scan_mode mode;
    mr_dtype dtype, acc; /* what is carried: see carried_dtype */
    bool reverse, inclusive;
    int64_t item, acc_item;
    int64_t outer, n, inner; /* lines: outer x inner */
    int64_t band;            /* of those that lie side by side */
    const char *from;
    char *to;
    mr_map_fn *map;       /* of acc */
    line_fn *line;        /* NULL: turned */
    int64_t lines, apart; /* those run one by one: all where few lie side by
                             side, `apart` of them */
    int64_t step; /* along a line in memory, in elements: apart or -apart */
    _Alignas(16) char neutral[BAND * ACC_BYTES]; /* in acc */
    const scan *near; /* the same with a step of one element */
    int64_t n_blocks;
    char *totals; /* n_blocks x outer x inner acc elements */
};

/* ---- lines of adjacent entries
 * ------------------------------------------------- */

#define COMBINE_SUM(a, x)  ((a) + (x))
#define COMBINE_PROD(a, x) ((a) * (x))
/* A NaN is taken, and kept: no comparison with it holds. */
#define COMBINE_MAX(a, x) ((x) != (x) ? (x) : (x) > (a) ? (x) : (a))
#define COMBINE_MIN(a, x) ((x) != (x) ? (x) : (x) < (a) ? (x) : (a))

/* Arrays of GROUP values are registers only when every loop over them is
 * unrolled. */
#define EACH _Pragma("GCC unroll 4") for (int j = 0; j < GROUP; j++)

/* One more entry of each line: `before` stands in front of the combination
 * where the entry itself does not count, `after` behind it where it does. */
#define LINE_STEP(type, op, before, after)                                     \
    for (; i < n; i++)                                                         \
        EACH                                                                   \
        {                                                                      \
            before;                                                            \
            a[j] = (type)op(a[j], (type)x[j][i * step]);                       \
            after;                                                             \
        }

#define LINE(name, elem, type, op)                                             \
    static void name(const scan *s, const char *const *from, char *const *to,  \
                     int64_t n, char *acc, bool empty)                         \
    {                                                                          \
        const elem *x[GROUP];                                                  \
        elem *o[GROUP];                                                        \
        type a[GROUP], *total = (type *)(void *)acc;                           \
        type neutral = *(const type *)(const void *)s->neutral;                \
        int64_t step = s->step, i = empty && n > 0;                            \
                                                                               \
        EACH                                                                   \
        {                                                                      \
            x[j] = (const elem *)(const void *)from[j];                        \
            o[j] = to ? (elem *)(void *)to[j] : NULL;                          \
            a[j] = i > 0 ? (type)*x[j] : total[j];                             \
            if (i > 0 && to)                                                   \
                *o[j] = s->inclusive ? *x[j] : (elem)neutral;                  \
        }                                                                      \
        if (!to)                                                               \
            LINE_STEP(type, op, (void)0, (void)0)                              \
        else if (s->inclusive)                                                 \
            LINE_STEP(type, op, (void)0, o[j][i * step] = (elem)a[j])          \
        else                                                                   \
            LINE_STEP(type, op, o[j][i * step] = (elem)a[j], (void)0)          \
        EACH total[j] = a[j];                                                  \
    }

/* Line by line: integers do not wait long, and few streams of memory are
 * better than many. */
#define LINE_APART(name, type, op)                                             \
    static void name(const scan *s, const char *const *from, char *const *to,  \
                     int64_t n, char *acc, bool empty)                         \
    {                                                                          \
        type neutral = *(const type *)(const void *)s->neutral;                \
        type *total = (type *)(void *)acc;                                     \
        int64_t step = s->step;                                                \
                                                                               \
        for (int j = 0; j < GROUP; j++) {                                      \
            const type *x = (const type *)(const void *)from[j];               \
            type *o = to ? (type *)(void *)to[j] : NULL;                       \
            type a = empty && n > 0 ? *x : total[j];                           \
            int64_t i = empty && n > 0;                                        \
                                                                               \
            if (j > 0 && from[j] == from[j - 1]) {                             \
                total[j] = total[j - 1];                                       \
                continue;                                                      \
            }                                                                  \
            if (i > 0 && o)                                                    \
                *o = s->inclusive ? *x : neutral;                              \
            if (!o)                                                            \
                for (; i < n; i++)                                             \
                    a = (type)op(a, x[i * step]);                              \
            else if (s->inclusive)                                             \
                for (; i < n; i++) {                                           \
                    a = (type)op(a, x[i * step]);                              \
                    o[i * step] = a;                                           \
                }                                                              \
            else                                                               \
                for (; i < n; i++) {                                           \
                    o[i * step] = a;                                           \
                    a = (type)op(a, x[i * step]);                              \
                }                                                              \
            total[j] = a;                                                      \
        }                                                                      \
    }

/* Sums and products of signed integers wrap as unsigned ones do. */
LINE_APART(sum_8, uint8_t, COMBINE_SUM)
LINE_APART(sum_16, uint16_t, COMBINE_SUM)
LINE_APART(sum_32, uint32_t, COMBINE_SUM)
LINE_APART(sum_64, uint64_t, COMBINE_SUM)
LINE(sum_f32, float, float, COMBINE_SUM)
LINE(sum_f32_wide, float, double, COMBINE_SUM)
LINE(sum_f64, double, double, COMBINE_SUM)
LINE(prod_8, uint8_t, uint8_t, COMBINE_PROD)
LINE(prod_16, uint16_t, uint16_t, COMBINE_PROD)
LINE(prod_32, uint32_t, uint32_t, COMBINE_PROD)
LINE(prod_64, uint64_t, uint64_t, COMBINE_PROD)
LINE(prod_f32, float, float, COMBINE_PROD)
LINE(prod_f64, double, double, COMBINE_PROD)
LINE_APART(max_u8, uint8_t, COMBINE_MAX)
LINE_APART(max_u16, uint16_t, COMBINE_MAX)
LINE_APART(max_u32, uint32_t, COMBINE_MAX)
LINE_APART(max_u64, uint64_t, COMBINE_MAX)
LINE_APART(max_i8, int8_t, COMBINE_MAX)
LINE_APART(max_i16, int16_t, COMBINE_MAX)
LINE_APART(max_i32, int32_t, COMBINE_MAX)
LINE_APART(max_i64, int64_t, COMBINE_MAX)
LINE(max_f32, float, float, COMBINE_MAX)
LINE(max_f64, double, double, COMBINE_MAX)
LINE_APART(min_u8, uint8_t, COMBINE_MIN)
LINE_APART(min_u16, uint16_t, COMBINE_MIN)
LINE_APART(min_u32, uint32_t, COMBINE_MIN)
LINE_APART(min_u64, uint64_t, COMBINE_MIN)
LINE_APART(min_i8, int8_t, COMBINE_MIN)
LINE_APART(min_i16, int16_t, COMBINE_MIN)
LINE_APART(min_i32, int32_t, COMBINE_MIN)
LINE_APART(min_i64, int64_t, COMBINE_MIN)
LINE(min_f32, float, float, COMBINE_MIN)
LINE(min_f64, double, double, COMBINE_MIN)

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

/* n <= BAND entries of a line from x on, as they come along it in memory
 * (backwards if the step is), in the type that is carried, and back. */
static void
piece_in(const scan *s, void *wide, const char *x, int64_t n)
{
    const mr_tier *t = mr__tier();
    _Alignas(16) char near[BAND * 8];
    int64_t gap = s->apart * s->item;

    if (s->step < 0)
        x -= (n - 1) * gap;
    if (s->apart > 1) {
        mr__copy_in((size_t)s->item, near, x, 1, 0, n, gap);
        x = near;
    }
    t->casts->cast[s->dtype][s->acc](wide, x, n);
}

static void
piece_out(const scan *s, char *o, const void *wide, int64_t n)
{
    const mr_tier *t = mr__tier();
    _Alignas(16) char near[BAND * 8];
    int64_t gap = s->apart * s->item;

    if (s->step < 0)
        o -= (n - 1) * gap;
    t->casts->cast[s->acc][s->dtype](s->apart > 1 ? near : o, wide, n);
    if (s->apart > 1)
        mr__copy_out((size_t)s->item, o, 0, gap, near, 1, n);
}

/* A piece at a time in the wider type that is carried. */
static void
line_wide(const scan *s, const char *const *x, char *const *o, int64_t n,
          char *acc, bool empty)
{
    _Alignas(16) char in[GROUP][BAND * 8], out[GROUP][BAND * 8];
    bool back = s->step < 0;

    for (int64_t i = 0, m; i < n; i += m) {
        int64_t at = i * s->step * s->item, first;
        const char *wide_x[GROUP];
        char *wide_o[GROUP];

        m = n - i < BAND ? n - i : BAND;
        first = (back ? m - 1 : 0) * s->acc_item;
        for (int j = 0; j < GROUP; j++) {
            piece_in(s, in[j], x[j] + at, m);
            wide_x[j] = in[j] + first;
            wide_o[j] = out[j] + first;
        }
        lines[s->mode][s->acc](s->near, wide_x, o ? wide_o : NULL, m, acc,
                               empty && i == 0);
        for (int j = 0; o && j < GROUP; j++)
            piece_out(s, o[j] + at, out[j], m);
    }
}

/* ---- blocks of lines
 * ------------------------------------------------------------ */

/* Unit u of n_blocks x lines is a block of a line: those of one length come
 * after each other. */

static int64_t
block_length(const scan *s, int64_t block)
{
    int64_t left = s->n - block * BLOCK;

    return left < BLOCK ? left : BLOCK;
}

static int64_t
unit_length(const scan *s, int64_t u)
{
    return block_length(s, u / s->lines);
}

/* Bytes from the start of the array to the first entry of a unit. */
static int64_t
unit_start(const scan *s, int64_t u)
{
    int64_t i = u / s->lines * BLOCK, line = u % s->lines;

    i = line / s->apart * s->n + (s->reverse ? s->n - 1 - i : i);
    return (i * s->apart + line % s->apart) * s->item;
}

/* Units u[0 .. GROUP-1], each from its place in acc; totals alone if not
 * `write`. */
static void
group_run(const scan *s, const int64_t *u, int64_t first, int64_t n, char *acc,
          bool empty, bool write)
{
    const char *x[GROUP];
    char *o[GROUP];

    for (int j = 0; j < GROUP; j++) {
        int64_t at = unit_start(s, u[j]) + first * s->step * s->item;

        x[j] = s->from + at;
        o[j] = s->to + at;
    }
    s->line(s, x, write ? o : NULL, n, acc, empty);
}

/* Groups of units; the last one's is filled up with its last unit. */
static void
group_of(int64_t *u, int64_t group, int64_t n)
{
    for (int j = 0; j < GROUP; j++)
        u[j] = group * GROUP + j < n ? group * GROUP + j : n - 1;
}

static void
totals_piece(void *ctx, int64_t begin, int64_t end)
{
    const scan *s = ctx;

    for (int64_t g = begin; g < end; g++) {
        _Alignas(16) char acc[GROUP * ACC_BYTES] = {0};
        int64_t u[GROUP];

        group_of(u, g, (s->n_blocks - 1) * s->lines);
        group_run(s, u, 0, BLOCK, acc, true, false);
        for (int j = 0; j < GROUP; j++)
            memcpy(s->totals + u[j] * s->acc_item, acc + j * s->acc_item,
                   (size_t)s->acc_item);
    }
}

/* Each block's total becomes that of all blocks up to it. */
static void
totals_combine(const scan *s)
{
    int64_t n = s->outer * s->inner;

    for (int64_t b = 1; b < s->n_blocks - 1; b++) {
        char *t = s->totals + b * n * s->acc_item;
        const void *both[2] = {t - n * s->acc_item, t};

        s->map(t, both, steps, n);
    }
}

/* What the lines of a group have in common, then the rest of each. */
static void
blocks_group(const scan *s, const int64_t *u)
{
    _Alignas(16) char acc[GROUP * ACC_BYTES] = {0};
    int64_t n = unit_length(s, u[GROUP - 1]); /* the shortest */
    bool empty = u[GROUP - 1] < s->lines;

    for (int j = 0; j < GROUP; j++)
        if (u[j] >= s->lines)
            memcpy(acc + j * s->acc_item,
                   s->totals + (u[j] - s->lines) * s->acc_item,
                   (size_t)s->acc_item);
    group_run(s, u, 0, n, acc, empty, true);
    for (int j = 0; j < GROUP; j++) {
        int64_t same[GROUP] = {u[j], u[j], u[j], u[j]};
        _Alignas(16) char own[GROUP * ACC_BYTES];

        for (int k = 0; k < GROUP; k++)
            memcpy(own + k * s->acc_item, acc + j * s->acc_item,
                   (size_t)s->acc_item);
        if (unit_length(s, u[j]) > n)
            group_run(s, same, n, unit_length(s, u[j]) - n, own, false, true);
    }
}

static void
blocks_piece(void *ctx, int64_t begin, int64_t end)
{
    const scan *s = ctx;

    for (int64_t g = begin; g < end; g++) {
        int64_t u[GROUP];

        group_of(u, g, s->n_blocks * s->lines);
        for (int j = 0; j < GROUP; j++) {
            int64_t same[GROUP] = {u[j], u[j], u[j], u[j]};

            /* first blocks start from nothing, the others from a total */
            if (u[0] < s->lines && u[GROUP - 1] >= s->lines) {
                blocks_group(s, same);
            } else {
                blocks_group(s, u);
                break;
            }
        }
    }
}

/* ---- many lines side by side
 * ------------------------------------------------------------ */

/* Bunches of lines that are one block each, as many as the tier takes at a
 * time; a last one that is not full goes in groups. */

static bool
lines_are_bunched(const scan *s)
{
    int width = mr__scan_of()->width;

    return s->dtype == MR_FLOAT32 &&
           (s->mode == MR_SCAN_SUM || s->mode == MR_SCAN_PROD) &&
           s->apart == 1 && s->n_blocks == 1 && width > 0 &&
           s->lines >= 8 * width;
}

static void
bunches_piece(void *ctx, int64_t begin, int64_t end)
{
    const scan *s = ctx;
    const mr_scan_tier *t = mr__scan_of();

    for (int64_t b = begin; b < end; b++) {
        int64_t first = b * t->width, at = first * s->n * s->item;
        mr_scan_lines l = {.from = (const float *)(const void *)(s->from + at),
                           .to = (float *)(void *)(s->to + at),
                           .n = s->n,
                           .apart = s->n,
                           .reverse = s->reverse,
                           .inclusive = s->inclusive};

        if (s->lines - first < t->width)
            blocks_piece(ctx, first / GROUP, (s->lines - 1) / GROUP + 1);
        else if (s->mode == MR_SCAN_SUM)
            t->sum(&l);
        else
            t->product(&l);
    }
}

static void
bunches_all(scan *s)
{
    int width = mr__scan_of()->width;

    mr__cpu_for((s->lines - 1) / width + 1,
                mr__cpu_grain((double)(s->n * width)), bunches_piece, s);
}

/* ---- turned blocks
 * ------------------------------------------------------------ */

typedef struct turned {
    const scan *s;
    int64_t first, n_units; /* all units: first ... */
    bool write;
} turned;

/* Entries [i, i + LANES) of n units from u on, an entry of each in a row. */
static void
turned_in(const scan *s, int64_t u, int64_t n, int64_t i, char *rows)
{
    _Alignas(64) char lines_of[LANES * LANES * ACC_BYTES] = {0};
    int64_t line = LANES * s->acc_item;

    for (int64_t j = 0; j < n; j++) {
        int64_t m = unit_length(s, u + j) - i;
        const char *x = s->from + unit_start(s, u + j);

        m = m < LANES ? m : LANES;
        if (m > 0)
            piece_in(s, lines_of + j * line, x + i * s->step * s->item, m);
        if (m > 0 && s->step < 0 && m < LANES)
            memmove(lines_of + j * line + (LANES - m) * s->acc_item,
                    lines_of + j * line, (size_t)(m * s->acc_item));
    }
    mr__copy_in((size_t)s->acc_item, rows, lines_of, LANES, s->acc_item, LANES,
                line);
}

static void
turned_out(const scan *s, int64_t u, int64_t n, int64_t i, const char *rows)
{
    _Alignas(64) char lines_of[LANES * LANES * ACC_BYTES];
    int64_t line = LANES * s->acc_item;

    mr__copy_in((size_t)s->acc_item, lines_of, rows, LANES, s->acc_item, LANES,
                line);
    for (int64_t j = 0; j < n; j++) {
        int64_t m = unit_length(s, u + j) - i;
        char *o = s->to + unit_start(s, u + j);

        m = m < LANES ? m : LANES;
        if (m > 0)
            piece_out(s, o + i * s->step * s->item,
                      lines_of + j * line +
                          (s->step < 0 ? LANES - m : 0) * s->acc_item,
                      m);
    }
}

/* One entry of each unit: row becomes what is written. */
static void
turned_step(const scan *s, char *acc, char *row, bool empty)
{
    _Alignas(64) char before[LANES * ACC_BYTES];
    size_t bytes = (size_t)(LANES * s->acc_item);
    const void *both[2] = {acc, row};

    memcpy(before, empty ? s->neutral : acc, bytes);
    if (empty)
        memcpy(acc, row, bytes);
    else
        s->map(acc, both, steps, LANES);
    memcpy(row, s->inclusive ? acc : before, bytes);
}

static void
turned_group(const turned *w, int64_t u, int64_t n)
{
    const scan *s = w->s;
    _Alignas(64) char acc[LANES * ACC_BYTES] = {0};
    _Alignas(64) char rows[LANES * LANES * ACC_BYTES];
    int64_t row = LANES * s->acc_item, length = unit_length(s, u);
    bool empty = !w->write || u < s->lines;

    if (!empty)
        memcpy(acc, s->totals + (u - s->lines) * s->acc_item,
               (size_t)(n * s->acc_item));
    for (int64_t i = 0; i < length; i += LANES) {
        int64_t m = length - i < LANES ? length - i : LANES;

        turned_in(s, u, n, i, rows);
        for (int64_t k = 0; k < m; k++) {
            turned_step(s, acc, rows + (s->step > 0 ? k : LANES - 1 - k) * row,
                        empty);
            empty = false;
        }
        if (w->write)
            turned_out(s, u, n, i, rows);
    }
    if (!w->write)
        memcpy(s->totals + u * s->acc_item, acc, (size_t)(n * s->acc_item));
}

/* Groups of units from `first` on. */
static void
turned_piece(void *ctx, int64_t begin, int64_t end)
{
    const turned *w = ctx;

    for (int64_t g = begin; g < end; g++) {
        int64_t u = w->first + g * LANES, n = w->n_units - g * LANES;

        turned_group(w, u, n < LANES ? n : LANES);
    }
}

static void
turned_units(const scan *s, int64_t first, int64_t n, bool write)
{
    turned w = {s, first, n, write};

    if (n > 0)
        mr__cpu_for((n - 1) / LANES + 1, 1, turned_piece, &w);
}

/* First blocks start from nothing, the others from a total. */
static void
turned_all(const scan *s)
{
    int64_t later = (s->n_blocks - 1) * s->lines;

    turned_units(s, 0, later, false);
    totals_combine(s);
    turned_units(s, 0, s->lines, true);
    turned_units(s, s->lines, later, true);
}

/* ---- lines side by side
 * ------------------------------------------------------------ */

/* A band: up to `band` of the lines that lie side by side. */
static int64_t
n_bands(const scan *s)
{
    return ((s->inner - 1) / s->band + 1) * s->outer;
}

/* Narrow ones read less of a row at a time, so only where threads would have
 * none: down 2048 x 2048 float32 eight threads and more took 0.45 ms each. */
static void
band_plan(scan *s)
{
    int64_t wanted = BANDS_SHARE * (int64_t)mr__pool_threads();

    for (s->band = BAND; s->band > NARROW_BAND && n_bands(s) < wanted;)
        s->band /= 2;
}

typedef struct band {
    int64_t line; /* of all outer x inner */
    int64_t n;
    const char *from;
    char *to;
} band;

static band
band_at(const scan *s, int64_t i)
{
    int64_t of_row = (s->inner - 1) / s->band + 1;
    int64_t line = i % of_row * s->band, n = s->inner - line;
    int64_t at = (i / of_row * s->n * s->inner + line) * s->item;

    return (band){i / of_row * s->inner + line, n < s->band ? n : s->band,
                  s->from + at, s->to + at};
}

/* Down one block; acc holds the lines' totals unless `empty`, and `fresh`
 * takes those of the block alone, if given.  write: or totals alone. */
static void
band_block(const scan *s, const band *w, int64_t block, char *acc, bool empty,
           char *fresh, bool write)
{
    const mr_tier_casts *casts = mr__tier()->casts;
    bool wide_acc = s->acc != s->dtype;
    size_t bytes = (size_t)(w->n * s->acc_item);
    _Alignas(64) char wide[BAND * ACC_BYTES];

    for (int64_t i = 0; i < block_length(s, block); i++) {
        int64_t k = block * BLOCK + i;
        int64_t at = (s->reverse ? s->n - 1 - k : k) * s->inner * s->item;
        const void *x = w->from + at, *both[2], *out = acc;

        if (wide_acc) {
            casts->cast[s->dtype][s->acc](wide, x, w->n);
            x = wide;
        }
        both[1] = x;
        both[0] = fresh;
        if (fresh && i == 0)
            memcpy(fresh, x, bytes);
        else if (fresh)
            s->map(fresh, both, steps, w->n);
        both[0] = acc;
        for (int now = 0; now < 2; now++) {
            if (now == (s->inclusive ? 0 : 1)) {
                if (empty)
                    memcpy(acc, x, bytes);
                else
                    s->map(acc, both, steps, w->n);
                empty = false;
                continue;
            }
            out = empty ? (const void *)s->neutral : acc;
            if (write && wide_acc)
                casts->cast[s->acc][s->dtype](w->to + at, out, w->n);
            else if (write)
                memcpy(w->to + at, out, bytes);
        }
    }
}

/* Whole bands, all blocks of each. */
static void
bands_piece(void *ctx, int64_t begin, int64_t end)
{
    const scan *s = ctx;
    _Alignas(64) char carry[BAND * ACC_BYTES], total[BAND * ACC_BYTES];
    _Alignas(64) char fresh[BAND * ACC_BYTES];

    for (int64_t u = begin; u < end; u++) {
        band w = band_at(s, u);
        size_t bytes = (size_t)(w.n * s->acc_item);

        for (int64_t b = 0; b < s->n_blocks; b++) {
            const void *both[2] = {carry, fresh};
            bool more = b > 0 && b + 1 < s->n_blocks;

            band_block(s, &w, b, total, b == 0, more ? fresh : NULL, true);
            if (b == 0)
                memcpy(carry, total, bytes);
            else if (more)
                s->map(carry, both, steps, w.n);
            memcpy(total, carry, bytes);
        }
    }
}

/* Few bands, so blocks are units too, as for lines. */
static bool
bands_are_split(const scan *s)
{
    return s->inner > NARROW && s->n_blocks > 3 && n_bands(s) < 16;
}

static void
bands_totals(void *ctx, int64_t begin, int64_t end)
{
    const scan *s = ctx;
    _Alignas(64) char acc[BAND * ACC_BYTES];

    for (int64_t u = begin; u < end; u++) {
        int64_t block = u / n_bands(s);
        band w = band_at(s, u % n_bands(s));

        band_block(s, &w, block, acc, true, NULL, false);
        memcpy(s->totals + (block * s->outer * s->inner + w.line) * s->acc_item,
               acc, (size_t)(w.n * s->acc_item));
    }
}

static void
bands_blocks(void *ctx, int64_t begin, int64_t end)
{
    const scan *s = ctx;
    _Alignas(64) char acc[BAND * ACC_BYTES];

    for (int64_t u = begin; u < end; u++) {
        int64_t block = u / n_bands(s);
        band w = band_at(s, u % n_bands(s));
        int64_t before = (block - 1) * s->outer * s->inner + w.line;

        if (block > 0)
            memcpy(acc, s->totals + before * s->acc_item,
                   (size_t)(w.n * s->acc_item));
        band_block(s, &w, block, acc, block == 0, NULL, true);
    }
}

static void
bands_all(scan *s)
{
    double ns = (s->mode == MR_SCAN_LOGADDEXP ? 5.0 : 0.5) * (double)s->band;

    if (!bands_are_split(s)) {
        mr__cpu_for(n_bands(s), mr__cpu_grain(ns * (double)s->n), bands_piece,
                    s);
        return;
    }
    mr__cpu_for((s->n_blocks - 1) * n_bands(s), 1, bands_totals, s);
    totals_combine(s);
    mr__cpu_for(s->n_blocks * n_bands(s), 1, bands_blocks, s);
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

/* Sums carry float64, so that each entry of a long one is rounded once, and
 * so do sums of exponentials (of a million zeros the log was wrong by 0.004);
 * the rest of halves' scans float32. */
static mr_dtype
carried_dtype(mr_scan_mode mode, mr_dtype t)
{
    if ((mode == MR_SCAN_SUM || mode == MR_SCAN_LOGADDEXP) &&
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
    s->apart = s->inner <= NARROW ? s->inner : 1;
    s->lines = s->outer * s->apart;
    s->step = s->reverse ? -s->apart : s->apart;
    s->n_blocks = (s->n - 1) / BLOCK + 1;
    s->totals = NULL;
    s->line = NULL;
    band_plan(s);
    if (s->mode == MR_SCAN_SUM && s->dtype == MR_FLOAT32)
        s->line = sum_f32_wide;
    else if (s->mode != MR_SCAN_LOGADDEXP && lines[s->mode][s->acc])
        s->line = s->acc != s->dtype ? line_wide : lines[s->mode][s->acc];
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
    return (s.inner <= NARROW && s.n_blocks > 1) || bands_are_split(&s)
               ? (size_t)(s.n_blocks * s.outer * s.inner * s.acc_item)
               : 0;
}

mr_code
mr__cpu_scan(const mr_kernel_args *a)
{
    scan s, near;
    double ns;

    if (a->in[0].size == 0)
        return MR_OK;
    scan_plan(a, &s);
    s.totals = a->workspace;
    near = s;
    near.step = s.reverse ? -1 : 1;
    s.near = &near;
    if (s.inner > NARROW) {
        bands_all(&s);
        return MR_OK;
    }
    if (s.line == NULL) {
        turned_all(&s);
        return MR_OK;
    }
    if (lines_are_bunched(&s)) {
        bunches_all(&s);
        return MR_OK;
    }
    ns = GROUP * (double)(s.n < BLOCK ? s.n : BLOCK);
    if (s.n_blocks > 1) {
        mr__cpu_for(((s.n_blocks - 1) * s.lines - 1) / GROUP + 1,
                    mr__cpu_grain(0.5 * ns), totals_piece, &s);
        totals_combine(&s);
    }
    mr__cpu_for((s.n_blocks * s.lines - 1) / GROUP + 1, mr__cpu_grain(ns),
                blocks_piece, &s);
    return MR_OK;
}
