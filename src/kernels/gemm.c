/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.c -- packing, blocks and edges of the matrix product, over the tiles
 * that the tier gives.
 *
 * Called by: cpu/matmul.c, cpu/conv.c.  Calls: the tier's tiles, casts, moves.
 */
#include "kernels/gemm.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/integers.h"
#include "kernels/tier/tier.h"

enum { RUNS_AHEAD = 8 };

int
mr__gemm_rows(void)
{
    return mr__gemm_in_use()->rows;
}

int
mr__gemm_cols(void)
{
    return mr__gemm_in_use()->cols;
}

int64_t
mr__gemm_level2_bytes(void)
{
    enum { USUAL = 1 << 20 };
    static _Atomic int64_t found; /* relaxed: every thread finds the same */
    int64_t bytes = atomic_load_explicit(&found, memory_order_relaxed);

    if (bytes == 0) {
#ifdef _SC_LEVEL2_CACHE_SIZE
        bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
        bytes = bytes > 0 ? bytes : USUAL;
        atomic_store_explicit(&found, bytes, memory_order_relaxed);
    }
    return bytes;
}

bool
mr__gemm_fast(void)
{
    return mr__gemm_in_use()->fast;
}

int64_t
mr__gemm_near_bytes(void)
{
    enum { LARGE = 2 << 20 };
    int64_t bytes = mr__gemm_level2_bytes();

    return bytes >= LARGE ? bytes / 2 : INT64_MAX;
}

static bool
b_near(void)
{
    return mr__gemm_near_bytes() != INT64_MAX;
}

static bool
is_half(mr_dtype t)
{
    return t == MR_FLOAT16 || t == MR_BFLOAT16;
}

static mr_gemm_kind
side_kind(const mr_gemm_side *s)
{
    return s->dtype == MR_FLOAT32   ? MR_GEMM_FLOAT32
           : s->dtype == MR_FLOAT16 ? MR_GEMM_FLOAT16
                                    : MR_GEMM_BFLOAT16;
}

static const void *
side_at(const mr_gemm_side *s, int64_t lane, int64_t depth)
{
    int64_t i = lane * s->lane_stride + depth * s->depth_stride;

    int64_t size = is_half(s->dtype) ? 2 : s->dtype == MR_FLOAT64 ? 8 : 4;

    return (const char *)s->data + i * size;
}

/* n elements, `stride` apart, as floats at `to`; n <= MR_GEMM_DEPTH. */
static void
run_widen(float *to, const mr_gemm_side *s, const void *from, int64_t stride,
          int64_t n)
{
    const mr_tier *tier = mr__tier();
    uint16_t dense[MR_GEMM_DEPTH];

    if (!is_half(s->dtype)) {
        if (stride == 1)
            memcpy(to, from, (size_t)n * sizeof *to);
        else
            tier->moves->gather[2](to, from, stride * 4, n);
        return;
    }
    if (stride != 1) {
        tier->moves->gather[1](dense, from, stride * 2, n);
        from = dense;
    }
    tier->casts->cast[s->dtype][MR_FLOAT32](to, from, n);
}

/* Where packed panels go: n of them, `apart` floats from one to the next. */
typedef struct panels {
    float *to;
    int64_t n, apart;
} panels;

/* Runs of `width` floats `stride` apart; asks for those of some steps ahead,
 * since no prefetcher follows such a walk. */
static inline __attribute__((always_inline)) void
runs_of(float *restrict to, const float *restrict from, int64_t stride,
        const int width, int64_t depth)
{
    for (int64_t p = 0; p < depth; p++, from += stride, to += width) {
        for (int k = 0; k < width; k += 16)
            __builtin_prefetch(from + RUNS_AHEAD * stride + k);
        memcpy(to, from, (size_t)width * sizeof *to);
    }
}

/* The widths of all panels, in floats, each a constant where it is copied:
 * those of b by the tier, which can take several at a time. */
static bool
runs_copy(const panels *o, const float *from, int64_t stride, int width,
          int64_t depth)
{
    if (width == mr__gemm_in_use()->cols) {
        mr__gemm_in_use()->runs(o->to, from, stride, depth, o->n, o->apart);
        return true;
    }
    if (o->n > 1)
        return false;
    switch (width) {
    case 6:
        runs_of(o->to, from, stride, 6, depth);
        return true;
    case 8:
        runs_of(o->to, from, stride, 8, depth);
        return true;
    case 12:
        runs_of(o->to, from, stride, 12, depth);
        return true;
    case 16:
        runs_of(o->to, from, stride, 16, depth);
        return true;
    case 24:
        runs_of(o->to, from, stride, 24, depth);
        return true;
    case 32:
        runs_of(o->to, from, stride, 32, depth);
        return true;
    default:
        return false;
    }
}

/* Lanes are adjacent: each depth is a run. */
static void
pack_runs(const mr_gemm_side *s, int width, int64_t lane0, int64_t lanes,
          int64_t depth0, int64_t depth, float *to)
{
    panels o = {.to = to, .n = 1};

    if (!is_half(s->dtype) && lanes == width &&
        runs_copy(&o, side_at(s, lane0, depth0), s->depth_stride, width, depth))
        return;
    for (int64_t p = 0; p < depth; p++, to += width) {
        run_widen(to, s, side_at(s, lane0, depth0 + p), s->lane_stride, lanes);
        for (int64_t l = lanes; l < width; l++)
            to[l] = 0.0F;
    }
}

/* Depths are adjacent: a few lanes at a time are widened, then turned. */
static void
pack_turned(const mr_gemm_side *s, int width, int64_t lane0, int64_t lanes,
            int64_t depth0, int64_t depth, float *to)
{
    enum { PIECE = 128 };
    float wide[MR_GEMM_MAX_COLS * PIECE];

    if (!is_half(s->dtype) && s->depth_stride == 1) {
        mr__gemm_in_use()->turn(to, side_at(s, lane0, depth0), s->lane_stride,
                                lanes, width, depth);
        return;
    }
    for (int64_t p = 0; p < depth; p += PIECE, to += PIECE * width) {
        int64_t n = depth - p < PIECE ? depth - p : PIECE;

        for (int64_t l = 0; l < lanes; l++)
            run_widen(wide + l * PIECE, s, side_at(s, lane0 + l, depth0 + p),
                      s->depth_stride, n);
        mr__gemm_in_use()->turn(to, wide, PIECE, lanes, width, n);
    }
}

/* Float64: a double is as good as two floats where lanes are adjacent. */
static void
pack_doubles(const mr_gemm_side *s, int width, int64_t lane0, int64_t lanes,
             int64_t depth0, int64_t depth, double *to)
{
    enum { PIECE = 64 };
    const double *from = side_at(s, lane0, depth0);
    int64_t lane = s->lane_stride, step = s->depth_stride;
    double dense[MR_GEMM_MAX_COLS * PIECE];
    panels o = {.to = (float *)(void *)to, .n = 1};

    if (step == 1) {
        mr__gemm_in_use()->f64->turn(to, from, lane, lanes, width, depth);
        return;
    }
    if (lane == 1 && lanes == width &&
        runs_copy(&o, (const float *)(const void *)from, 2 * step, 2 * width,
                  depth))
        return;
    for (int64_t p = 0; p < depth; p += PIECE, to += PIECE * width) {
        int64_t n = depth - p < PIECE ? depth - p : PIECE;

        for (int64_t l = 0; l < lanes; l++)
            mr__tier()->moves->gather[3](
                dense + l * PIECE, from + l * lane + p * step, step * 8, n);
        mr__gemm_in_use()->f64->turn(to, dense, PIECE, lanes, width, n);
    }
}

void
mr__gemm_pack(const mr_gemm_side *s, int width, int64_t panel, int64_t depth0,
              int64_t depth, void *to)
{
    int64_t lane0 = panel * width, lanes = s->lanes - lane0;

    if (lanes > width)
        lanes = width;
    if (s->dtype == MR_FLOAT64)
        pack_doubles(s, width, lane0, lanes, depth0, depth, to);
    else if (s->lane_stride == 1 && s->depth_stride != 1)
        pack_runs(s, width, lane0, lanes, depth0, depth, to);
    else
        pack_turned(s, width, lane0, lanes, depth0, depth, to);
}

/* ---- pairs ------------------------------------------------------------------
 */

/* Zen 4 and later take a pair in the time of a float; Intel's cores without a
 * matrix unit take twice as long (82 GFLOP/s where float32 has 173). */
static bool
pairs_pay(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_is("amd") && __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

/* Relaxed: every thread finds the same. */
static const mr_gemm_pairs *
gemm_pairs(void)
{
    static atomic_int found; /* 1: not worth it, 2: use them */
    int f = atomic_load_explicit(&found, memory_order_relaxed);

    if (f == 0) {
        f = mr__tier() == mr__tier_by_id(MR_TIER_AVX512) && pairs_pay() ? 2 : 1;
        atomic_store_explicit(&found, f, memory_order_relaxed);
    }
#if defined(__x86_64__)
    return f == 2 ? &mr__gemm_pairs_avx512 : NULL;
#else
    return NULL;
#endif
}

bool
mr__gemm_pairs(mr_dtype t)
{
    return t == MR_BFLOAT16 && gemm_pairs();
}

/* Depths are adjacent, so a pair is a word.  Halves may lie at odd places, or
 * end with half a pair: then lanes are brought together first. */
static void
pairs_turned(const mr_gemm_side *s, int width, int64_t lane0, int64_t lanes,
             int64_t depth0, int64_t depth, float *to)
{
    enum { PIECE = 64 };
    float words[MR_GEMM_MAX_COLS * PIECE];
    uint16_t *halves = (uint16_t *)(void *)words;
    const void *from = side_at(s, lane0, depth0);
    bool even = (uintptr_t)from % sizeof *to == 0 && s->lane_stride % 2 == 0;

    if (even && depth % 2 == 0) {
        mr__gemm_in_use()->turn(to, from, s->lane_stride / 2, lanes, width,
                                depth / 2);
        return;
    }
    for (int64_t p = 0; p < depth; p += 2 * PIECE, to += PIECE * width) {
        int64_t n = depth - p < 2 * PIECE ? depth - p : 2 * PIECE;

        for (int64_t l = 0; l < lanes; l++) {
            uint16_t *lane = halves + l * 2 * PIECE;

            memcpy(lane, side_at(s, lane0 + l, depth0 + p), (size_t)n * 2);
            if (n % 2 != 0)
                lane[n] = 0;
        }
        mr__gemm_in_use()->turn(to, words, PIECE, lanes, width, (n + 1) / 2);
    }
}

/* Any other layout: two depths at a time. */
static void
pairs_zipped(const mr_gemm_side *s, int width, int64_t lane0, int64_t lanes,
             int64_t depth0, int64_t depth, uint32_t *to)
{
    uint16_t dense[2][MR_GEMM_MAX_COLS];

    for (int64_t p = 0; p < depth; p += 2, to += width) {
        const uint16_t *row[2] = {NULL, NULL};

        for (int i = 0; i < 2 && p + i < depth; i++) {
            row[i] = side_at(s, lane0, depth0 + p + i);
            if (s->lane_stride == 1)
                continue;
            for (int64_t l = 0; l < lanes; l++)
                dense[i][l] = row[i][l * s->lane_stride];
            row[i] = dense[i];
        }
        gemm_pairs()->zip(to, row[0], row[1], lanes, width);
    }
}

bool
mr__gemm_pack_pairs(const mr_gemm_side *s, int width, int64_t panel,
                    int64_t depth0, int64_t depth, float *to)
{
    int64_t lane0 = panel * width, lanes = s->lanes - lane0;
    uint32_t *pairs = (uint32_t *)(void *)to;
    bool small = false;

    lanes = lanes < width ? lanes : width;
    if (s->depth_stride == 1) {
        pairs_turned(s, width, lane0, lanes, depth0, depth, to);
    } else {
        if (s->lane_stride == 1 && width == mr__gemm_in_use()->cols &&
            lanes == width) {
            small = gemm_pairs()->zip_cols(pairs, side_at(s, lane0, depth0),
                                           s->depth_stride, depth / 2, 1, 0);
            pairs += depth / 2 * width;
            depth0 += depth / 2 * 2;
            depth %= 2;
        }
        pairs_zipped(s, width, lane0, lanes, depth0, depth, pairs);
    }
    small |= gemm_pairs()->order(pairs, (depth + 1) / 2 * width);
    return !small;
}

/* ---- several panels --------------------------------------------------------
 */

/* Halves, a row of all panels widened at a time. */
static void
halves_copy(const mr_gemm_side *s, int width, int64_t lane0, int64_t depth0,
            int64_t depth, const panels *o)
{
    float row[MR_GEMM_MAX_PANELS * MR_GEMM_MAX_COLS];
    float *to = o->to;

    for (int64_t p = 0; p < depth; p++, to += width) {
        run_widen(row, s, side_at(s, lane0, depth0 + p), 1, o->n * width);
        for (int64_t k = 0; k < o->n; k++)
            memcpy(to + k * o->apart, row + k * width,
                   (size_t)width * sizeof *to);
    }
}

/* Lanes are adjacent, panels whole.  False: some other way must do. */
static bool
panels_copy(const mr_gemm_side *s, int width, int64_t lane0, int64_t depth0,
            int64_t depth, const panels *o)
{
    const float *from = side_at(s, lane0, depth0);

    if (s->dtype == MR_FLOAT64)
        return runs_copy(o, from, 2 * s->depth_stride, 2 * width, depth);
    if (s->dtype == MR_FLOAT32)
        return runs_copy(o, from, s->depth_stride, width, depth);
    halves_copy(s, width, lane0, depth0, depth, o);
    return true;
}

int
mr__gemm_form_rows(mr_gemm_form f)
{
    return f == MR_GEMM_IN_PIECES ? MR_GEMM_PIECES_LANES : mr__gemm_rows();
}

int
mr__gemm_form_cols(mr_gemm_form f)
{
    return f == MR_GEMM_IN_PIECES ? MR_GEMM_PIECES_LANES : mr__gemm_cols();
}

int64_t
mr__gemm_steps(mr_gemm_form f, mr_dtype t, int64_t depth)
{
    enum { STEP = MR_GEMM_PIECES_STEP };

    if (f == MR_GEMM_IN_PIECES)
        return (depth + STEP - 1) / STEP * (STEP / 2) * mr__gemm_pieces(t);
    return f == MR_GEMM_IN_PAIRS ? (depth + 1) / 2 : depth;
}

/* Panels whose lanes are adjacent and all there; how many. */
static int64_t
whole_panels(const mr_gemm_side *s, int width, const panels *all, int64_t lane0,
             int64_t depth0, int64_t depth, bool pairs, bool *fits)
{
    int64_t whole = (s->lanes - lane0) / width;
    panels o = *all;

    o.n = whole < o.n ? whole : o.n;
    if (s->lane_stride != 1 || s->depth_stride == 1 || o.n < 2)
        return 0;
    if (!pairs)
        return panels_copy(s, width, lane0, depth0, depth, &o) ? o.n : 0;
    if (width != mr__gemm_in_use()->cols || depth % 2 != 0)
        return 0;
    *fits = !gemm_pairs()->zip_cols((uint32_t *)(void *)o.to,
                                    side_at(s, lane0, depth0), s->depth_stride,
                                    depth / 2, o.n, o.apart);
    return o.n;
}

bool
mr__gemm_pack_panels(const mr_gemm_side *s, bool right, int64_t panel,
                     int64_t n, int64_t depth0, int64_t depth,
                     mr_gemm_form form, float *to, int64_t apart)
{
    int width = right ? mr__gemm_form_cols(form) : mr__gemm_form_rows(form);
    bool pairs = form == MR_GEMM_IN_PAIRS, fits = true;
    panels o = {to, n, apart};

    assert(n <= MR_GEMM_MAX_PANELS);
    if (form == MR_GEMM_IN_PIECES)
        return mr__gemm_pieces_panels(s, right, panel, n, depth0, depth, to,
                                      apart);
    if (right && s->dtype == MR_FLOAT64)
        width /= 2;
    for (int64_t k = whole_panels(s, width, &o, panel * width, depth0, depth,
                                  pairs, &fits);
         k < n; k++)
        if (pairs)
            fits &= mr__gemm_pack_pairs(s, width, panel + k, depth0, depth,
                                        to + k * apart);
        else
            mr__gemm_pack(s, width, panel + k, depth0, depth, to + k * apart);
    return fits;
}

/* ---- tiles ------------------------------------------------------------------
 */

/* A tile of c: where, of how many rows and columns, and whether chunks came
 * before. */
typedef struct part {
    float *to; /* float64: doubles */
    int64_t row, rows, cols;
    int r, v;        /* of the smallest tile that covers it */
    bool whole, add; /* it is just as large */
} part;

/* The rows and columns that c has from (row, col) on, of a tile of so many. */
static part
part_at(const mr_gemm_chunk *g, int rows, int cols, int64_t row, int64_t col)
{
    part c = {.add = !g->first};

    c.rows = g->m - row < rows ? g->m - row : rows;
    c.cols = g->n - col < cols ? g->n - col : cols;
    if (c.rows == rows && c.cols == cols) { /* mostly: without a division */
        c.r = 2;
        c.v = 1;
        c.whole = true;
        return c;
    }
    c.r = (int)((c.rows - 1) / (rows / 3));
    c.v = (int)((c.cols - 1) / (cols / 2));
    c.whole =
        c.rows == (c.r + 1) * (rows / 3) && c.cols == (c.v + 1) * (cols / 2);
    return c;
}

/* It is on its way while it is computed. */
static void
part_fetch(const part *c, int64_t words)
{
    for (int64_t k = 0; k < c->rows; k++)
        for (int64_t l = 0; l < c->cols * words; l += 16)
            __builtin_prefetch(c->to + k * c->row * words + l, 1);
}

/* A whole tile's sums, `from_row` apart, of which c takes its part. */
#define TAKE(name, type)                                                       \
    static void name(const part *c, const type *from, int64_t from_row)        \
    {                                                                          \
        type *to = (type *)(void *)c->to;                                      \
                                                                               \
        for (int64_t k = 0; k < c->rows; k++, to += c->row, from += from_row)  \
            for (int64_t l = 0; l < c->cols; l++)                              \
                to[l] = c->add ? to[l] + from[l] : from[l];                    \
    }
TAKE(take_f32, float)
TAKE(take_f64, double)

/* The same in float64: straight into c where it fits, else through a buffer. */
static void
tile64_run(const mr_gemm_chunk *g, const mr_gemm_tier *t, int64_t i, int64_t j)
{
    double buffer[MR_GEMM_MAX_ROWS * MR_GEMM_MAX_COLS / 2];
    int cols = t->cols / 2;
    int64_t row = i * t->rows, col = j * cols;
    int64_t b_row = g->b_row ? g->b_row : cols;
    const double *a = (const double *)(const void *)g->a +
                      (i - g->a_first) * t->rows * g->depth;
    const double *b = (const double *)(const void *)g->b +
                      (g->b_row ? col : (j - g->b_first) * cols * g->depth);
    double *to = (double *)g->c + row * g->c_row + col;
    part c = part_at(g, t->rows, cols, row, col);
    mr_gemm_tile64_fn *tile = t->f64->tile[b_near()][c.r][c.v];

    if (c.whole) {
        tile(g->depth, a, b, b_row, to, g->c_row, c.add);
        return;
    }
    c.to = (float *)(void *)to;
    c.row = g->c_row;
    part_fetch(&c, 2);
    tile(g->depth, a, b, b_row, buffer, cols, false);
    take_f64(&c, buffer, cols);
}

/* Sums of a whole tile of halves, `width` columns, rounded in one go. */
static void
part_round(const mr_gemm_chunk *g, int64_t width, const part *c,
           const float *sums, int64_t row, int64_t col)
{
    uint16_t rounded[MR_GEMM_PIECES_LANES * MR_GEMM_MAX_COLS];
    uint16_t *to = (uint16_t *)g->c + row * g->c_row + col;

    mr__tier()->casts->cast[MR_FLOAT32][g->dtype](rounded, sums,
                                                  c->rows * width);
    for (int64_t k = 0; k < c->rows; k++, to += g->c_row)
        if (c->cols == MR_GEMM_MAX_COLS) /* a move or two, no call */
            memcpy(to, rounded + k * width, MR_GEMM_MAX_COLS * sizeof *to);
        else
            memcpy(to, rounded + k * width, (size_t)c->cols * sizeof *to);
}

/* One tile: straight into c where it fits and c is float32, else through a
 * buffer.  Halves add up in `sums` and are rounded after the last chunk. */
static void
tile_run(const mr_gemm_chunk *g, const mr_gemm_tier *t, int64_t i, int64_t j)
{
    float buffer[MR_GEMM_MAX_ROWS * MR_GEMM_MAX_COLS];
    int64_t row = i * t->rows, col = j * t->cols;
    int64_t b_row = g->b_row ? g->b_row : t->cols;
    const float *a = g->a + (i - g->a_first) * t->rows * g->depth;
    const float *b =
        g->b + (g->b_row ? col : (j - g->b_first) * t->cols * g->depth);
    part c = part_at(g, t->rows, t->cols, row, col);
    mr_gemm_tile_fn *tile = t->tile[b_near()][c.r][c.v];

    if (g->form == MR_GEMM_IN_PAIRS && g->dtype == MR_BFLOAT16 && !g->sums &&
        c.rows == t->rows && c.cols == t->cols) {
        gemm_pairs()->rounded(g->depth, a, b, b_row,
                              (uint16_t *)g->c + row * g->c_row + col,
                              g->c_row);
        return;
    }
    if (g->form == MR_GEMM_IN_PAIRS)
        tile = gemm_pairs()->tile[c.r][c.v];
    if (g->dtype == MR_FLOAT32) {
        c.to = (float *)g->c + row * g->c_row + col;
        c.row = g->c_row;
    } else if (g->sums) {
        c.to = g->sums + row * g->n + col;
        c.row = g->n;
    }
    if (c.to && c.whole) {
        tile(g->depth, a, b, b_row, c.to, c.row, c.add);
    } else {
        if (c.to)
            part_fetch(&c, 1);
        tile(g->depth, a, b, b_row, buffer, t->cols, false);
        if (c.to)
            take_f32(&c, buffer, t->cols);
    }
    if (g->dtype == MR_FLOAT32 || !g->last)
        return;
    if (!c.to) {
        part_round(g, t->cols, &c, buffer, row, col);
        return;
    }
    for (int64_t k = 0; k < c.rows; k++)
        mr__tier()->casts->cast[MR_FLOAT32][g->dtype](
            (uint16_t *)g->c + (row + k) * g->c_row + col, c.to + k * c.row,
            c.cols);
}

void
mr__gemm_block(const mr_gemm_chunk *g, int64_t i0, int64_t i1, int64_t j0,
               int64_t j1)
{
    const mr_gemm_tier *t = mr__gemm_in_use();

    if (g->form == MR_GEMM_IN_PIECES) {
        mr__gemm_pieces_block(g, i0, i1, j0, j1);
        return;
    }
    for (int64_t i = i0; i < i1; i++)
        for (int64_t j = j0; j < j1; j++)
            if (g->dtype == MR_FLOAT64)
                tile64_run(g, t, i, j);
            else
                tile_run(g, t, i, j);
}

/* ---- few rows --------------------------------------------------------------
 */

int64_t
mr__gemv_band(int64_t n, int64_t m, int64_t size, int64_t units)
{
    enum { SUM_BYTES = 16 << 10, LEAST = 2 << 10, UNITS = 16 };
    int64_t bytes = SUM_BYTES;

    while (bytes > LEAST && (bytes / size * m > SUM_BYTES / size ||
                             ((n - 1) / (bytes / size) + 1) * units < UNITS))
        bytes /= 2;
    return bytes / size;
}

int64_t
mr__gemv_halves(int64_t band, int64_t n)
{
    int64_t half = mr__round_up(n / 2, 64);

    return band >= n && n >= 2 * MR_GEMV_COLS ? half : band;
}

static void
rows_clear(float *y, int64_t y_row, int m, int64_t n)
{
    for (int i = 0; i < m; i++)
        memset(y + i * y_row, 0, (size_t)n * sizeof *y);
}

void
mr__gemv_wide(float *y, int64_t y_row, const float *x, int64_t x_row, int m,
              const mr_gemm_side *b, int64_t depth, int64_t n)
{
    rows_clear(y, y_row, m, n);
    mr__gemm_in_use()->wide[side_kind(b)](y, y_row, x, x_row, m, b->data,
                                          b->depth_stride, depth, n, false);
}

void
mr__gemv_far(float *y, int64_t y_row, const float *x, int64_t x_row, int m,
             const mr_gemm_side *b, int64_t depth, int64_t n)
{
    rows_clear(y, y_row, m, n);
    mr__gemm_in_use()->wide[side_kind(b)](y, y_row, x, x_row, m, b->data,
                                          b->depth_stride, depth, n, true);
}

void
mr__gemv_deep(float *y, int64_t y_row, const float *x, int64_t x_row, int m,
              const mr_gemm_side *b, int64_t depth, int64_t n)
{
    const mr_fold_fns *sum = &mr__tier()->dtype[MR_FLOAT32]->fold[MR_FOLD_SUM];
    mr_gemv_dot_fn *dot = mr__gemm_in_use()->dot[side_kind(b)];
    float lanes[MR_LANES];

    for (int64_t j = 0; j < n; j++)
        for (int i = 0; i < m; i++) {
            memset(lanes, 0, sizeof lanes);
            dot(lanes, x + i * x_row, side_at(b, j, 0), depth);
            sum->done(y + i * y_row + j, lanes);
        }
}
