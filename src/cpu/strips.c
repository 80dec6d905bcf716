/* SPDX-License-Identifier: Apache-2.0
 *
 * strips.c -- products with some rows: more than meet b where it lies, too few
 * to pay for a packed copy of it.
 *
 * All of a is packed.  Then each strip of b, as many columns as a register tile
 * has, is packed in pieces of STRIP_DEPTH that stay in the first-level cache,
 * and meets all rows at once: b is read once and its packed form is never in
 * memory.  A quantised matrix is dequantised on the way.  Sums wait in floats
 * on the stack, so halves are rounded once; the depth is cut alike in all
 * tiers, so a strip's bits depend on neither tier nor threads.
 * Called by: matmul.c, quant_product.c.  Calls: kernels/gemm.h, the pool.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/integers.h"
#include "cpu/product.h"
#include "kernels/tier/tier.h"

enum { STRIP_DEPTH = 256 }; /* elements of a panel's lane */

/* Depths of a piece. */
static int64_t
piece_depth(mr_gemm_form form, mr_dtype t)
{
    enum { STEP = MR_GEMM_PIECES_STEP };

    if (form == MR_GEMM_IN_PIECES)
        return 2 * STRIP_DEPTH / mr__gemm_pieces(t) / STEP * STEP;
    return form == MR_GEMM_IN_PAIRS ? 2 * STRIP_DEPTH : STRIP_DEPTH;
}

static int64_t
panels_of(mr_gemm_form form, int64_t m)
{
    return (m - 1) / mr__gemm_form_rows(form) + 1;
}

int64_t
mr__strip_floats(mr_gemm_form form, mr_dtype t, int64_t m, int64_t k)
{
    int64_t lanes = panels_of(form, m) * mr__gemm_form_rows(form);

    return mr__round_up(lanes * mr__gemm_steps(form, t, k), 16);
}

/* Panels in a form; false when these numbers must not have it (in pieces the
 * caller judges what is seen). */
static bool
panels_pack(const mr_gemm_side *side, bool right, int64_t panel, int64_t at,
            int64_t depth, mr_gemm_form form, mr_ranges *ranges, float *to)
{
    if (form != MR_GEMM_IN_PIECES)
        return mr__gemm_pack_panels(side, right, panel, 1, at, depth, form, to,
                                    0);
    mr__ranges_take(
        ranges, mr__gemm_pack_pieces(side, right, panel, 1, at, depth, to, 0));
    return true;
}

/* Rows of a go to panels, those of a piece of depth together. */
bool
mr__strip_pack(const mr_gemm_side *a, int64_t k, int64_t panel,
               mr_gemm_form form, mr_ranges *ranges, float *to)
{
    int64_t rows = mr__gemm_form_rows(form), panels = panels_of(form, a->lanes);
    int64_t most = piece_depth(form, a->dtype), depth;
    bool fine = true;

    for (int64_t at = 0; at < k; at += depth) {
        int64_t steps;

        depth = k - at < most ? k - at : most;
        steps = mr__gemm_steps(form, a->dtype, depth);
        fine &= panels_pack(a, false, panel, at, depth, form, ranges,
                            to + panel * rows * steps);
        to += panels * rows * steps;
    }
    return fine;
}

void
mr__strip_pack_rows(const float *const *x, int64_t m, int64_t k, int64_t panel,
                    float *to)
{
    float piece[MR_GEMM_MAX_ROWS * STRIP_DEPTH];
    int64_t rows = mr__gemm_rows(), panels = panels_of(MR_GEMM_FLOATS, m);
    int64_t lanes = m - panel * rows < rows ? m - panel * rows : rows;
    mr_gemm_side a = {piece, MR_FLOAT32, lanes, STRIP_DEPTH, 1};

    for (int64_t at = 0; at < k; at += STRIP_DEPTH) {
        int64_t depth = k - at < STRIP_DEPTH ? k - at : STRIP_DEPTH;

        for (int64_t i = 0; i < lanes; i++)
            memcpy(piece + i * STRIP_DEPTH, x[panel * rows + i] + at,
                   (size_t)depth * sizeof *piece);
        mr__gemm_pack(&a, (int)rows, 0, 0, depth,
                      to + panels * rows * at + panel * rows * depth);
    }
}

/* One piece of b's strip. */
static bool
piece_pack(const mr_strip *s, int64_t strip, int64_t at, int64_t depth,
           float *to)
{
    if (s->pack_b == NULL)
        return panels_pack(&s->b, true, strip, at, depth, s->form, s->ranges,
                           to);
    s->pack_b(s->pack_ctx, s->at, mr__gemm_cols(), strip, at, depth, to);
    return true;
}

bool
mr__strip_run(const mr_strip *s, int64_t strip, float *y)
{
    _Alignas(64) float b[STRIP_DEPTH * MR_GEMM_MAX_COLS];
    int64_t rows = mr__gemm_form_rows(s->form);
    int64_t cols = mr__gemm_form_cols(s->form);
    int64_t part = s->form == MR_GEMM_IN_PIECES ? rows / 2 : rows / 3;
    int64_t panels = panels_of(s->form, s->m), depth;
    int64_t most = piece_depth(s->form, s->b.dtype);
    mr_gemm_chunk g = {.m = mr__round_up(s->m, part),
                       .n = cols,
                       .form = s->form,
                       .pieces = mr__gemm_pieces(s->b.dtype),
                       .a = s->a,
                       .b = b,
                       .c = y,
                       .c_row = cols,
                       .dtype = MR_FLOAT32};

    for (int64_t at = 0; at < s->k; at += depth) {
        depth = s->k - at < most ? s->k - at : most;
        if (!piece_pack(s, strip, at, depth, b))
            return false;
        g.depth = mr__gemm_steps(s->form, s->b.dtype, depth);
        g.first = at == 0;
        g.last = at + depth == s->k;
        mr__gemm_block(&g, 0, panels, 0, 1);
        g.a += panels * rows * g.depth;
    }
    return true;
}

/* ---- a product ------------------------------------------------------------
 */

typedef struct strips {
    const mr_product *p;
    atomic_bool unfit; /* relaxed: read after the loop, else only a hint */
    bool a_shared;
    int64_t cols;                     /* of a strip */
    int64_t panels, floats, per_item; /* of a; strips of an item */
    float *a;
} strips;

static strips
strips_plan(const mr_product *p)
{
    strips s = {.p = p,
                .a_shared = true,
                .cols = mr__gemm_form_cols(p->form),
                .panels = panels_of(p->form, p->m),
                .floats = mr__strip_floats(p->form, p->dtype, p->m, p->k)};

    s.per_item = (p->n - 1) / s.cols + 1;

    for (int32_t k = 0; k < p->batch.ndim; k++)
        s.a_shared = s.a_shared && p->batch.stride[0][k] == 0;
    return s;
}

static bool
b_shared(const mr_product *p)
{
    for (int32_t k = 0; k < p->batch.ndim; k++)
        if (p->batch.stride[1][k] != 0)
            return false;
    return true;
}

/* Halves on the matrix unit: items that share nothing and are one chunk either
 * way go faster one by one, packed (README.md). */
bool
mr__product_strips_fit(const mr_product *p)
{
    int pieces = mr__gemm_pieces(p->dtype);
    bool apart = p->n_items > 1 && !b_shared(p) && p->pack_b == NULL;

    return p->m <= MR_STRIP_ROWS &&
           !(apart && (pieces == 1 || pieces == 2) && p->k <= STRIP_DEPTH);
}

size_t
mr__product_strips_bytes(const mr_product *p)
{
    strips s = strips_plan(p);

    return (size_t)(s.floats * (s.a_shared ? 1 : p->n_items)) * sizeof(float);
}

static bool
unfit(strips *s)
{
    return atomic_load_explicit(&s->unfit, memory_order_relaxed);
}

static void
pack_piece(void *ctx, int64_t begin, int64_t end)
{
    strips *s = ctx;

    for (int64_t u = begin; u < end; u++) {
        int64_t item = u / s->panels;
        mr_gemm_side a, b;
        void *c;

        mr__product_item(s->p, item, &a, &b, &c);
        if (!mr__strip_pack(
                &a, s->p->k, u % s->panels, s->p->form,
                s->p->seen ? mr__seen_a(s->p->seen, item, u % s->panels) : NULL,
                s->a + item * s->floats))
            atomic_store_explicit(&s->unfit, true, memory_order_relaxed);
    }
}

/* Columns [j, j + n) of c. */
static void
strip_write(const mr_product *p, void *c, int64_t j, int64_t n, const float *y)
{
    int64_t size = mr__dtype_size(p->dtype), cols = mr__gemm_form_cols(p->form);

    for (int64_t i = 0; i < p->m; i++, y += cols) {
        char *to = (char *)c + (i * p->c_row + j) * size;

        if (p->dtype == MR_FLOAT32)
            memcpy(to, y, (size_t)(n * size));
        else
            mr__tier()->casts->cast[MR_FLOAT32][p->dtype](to, y, n);
    }
}

static void
strip_piece(void *ctx, int64_t begin, int64_t end)
{
    strips *s = ctx;
    const mr_product *p = s->p;
    int64_t cols = s->cols;
    _Alignas(64) float y[MR_STRIP_ROWS * MR_GEMM_MAX_COLS];

    for (int64_t u = begin; u < end && !unfit(s); u++) {
        int64_t item = u / s->per_item, j = u % s->per_item * cols;
        mr_strip strip = {.m = p->m,
                          .k = p->k,
                          .form = p->form,
                          .ranges = p->seen ? mr__seen_b(p->seen, item) : NULL,
                          .a = s->a + (s->a_shared ? 0 : item) * s->floats,
                          .pack_b = p->pack_b,
                          .pack_ctx = p->pack_ctx};
        mr_gemm_side a;
        void *c;

        mr__product_item(p, item, &a, &strip.b, &c);
        strip.at = mr__product_offset(p, item);
        if (!mr__strip_run(&strip, u % s->per_item, y))
            atomic_store_explicit(&s->unfit, true, memory_order_relaxed);
        strip_write(p, c, j, p->n - j < cols ? p->n - j : cols, y);
    }
}

/* The columns of strips [begin, end), item after item. */
static void
strips_after(const strips *s, int64_t begin, int64_t end)
{
    const mr_product *p = s->p;
    int64_t cols = s->cols;

    for (int64_t u = begin, next; u < end; u = next) {
        int64_t item = u / s->per_item, j = u % s->per_item * cols, stop;

        next = (item + 1) * s->per_item < end ? (item + 1) * s->per_item : end;
        stop = j + (next - u) * cols;
        mr__product_after(p, item, 0, p->m, j, (stop < p->n ? stop : p->n) - j);
    }
}

static void
joined_piece(void *ctx, int64_t begin, int64_t end)
{
    strip_piece(ctx, begin, end);
    strips_after(ctx, begin, end);
}

/* Nanoseconds for a number of b: packed, and multiplied by all rows. */
static double
strip_ns(const mr_product *p)
{
    double pieces = mr__gemm_pieces(p->dtype), rows = (double)p->m;

    if (p->form == MR_GEMM_IN_PIECES)
        return pieces * (0.15 + 0.002 * rows);
    return 0.2 + 0.02 * rows;
}

bool
mr__product_strips(const mr_product *p, void *workspace)
{
    strips s = strips_plan(p);
    /* whether numbers may have another form is known in the end */
    bool joined = p->after != NULL && p->form == MR_GEMM_FLOATS;
    double depth = (double)p->k, rows = (double)mr__gemm_form_rows(p->form);
    double cols = (double)s.cols;

    s.a = workspace;
    mr__cpu_for((s.a_shared ? 1 : p->n_items) * s.panels,
                mr__cpu_grain(0.2 * depth * rows), pack_piece, &s);
    mr__cpu_for(p->n_items * s.per_item,
                mr__cpu_grain(depth * cols * strip_ns(p)),
                joined ? joined_piece : strip_piece, &s);
    if (unfit(&s))
        return false;
    if (p->after != NULL && !joined && p->seen == NULL)
        mr__product_after_all(p);
    return true;
}
