/* SPDX-License-Identifier: Apache-2.0
 *
 * matmul.c -- which route a matrix product takes, and the simple routes.
 *
 *   rows    up to 4 rows or columns: limited by memory, so b is read once
 *   strips  up to 96 rows: b is packed piece by piece in cache (strips.c)
 *   packed  float32, float64 and halves: Marram's own kernel (packed.c)
 *   BLAS    complex, small float32, float64 with few rows: one-threaded
 * OpenBLAS calls on tiles; where a tier has no fast kernel all of these tiny
 * batches of 8 x 8 and smaller (tiny.c) plain   the rest: integers, and
 * everything when there is no OpenBLAS
 *
 * The packed kernel measured 108 GFLOP/s on one core for 1024^3 float32 where
 * OpenBLAS gave 101 in one call; up to 100^3 OpenBLAS, which then does not
 * pack, is faster. Called by: device.c, conv.c.  Calls: packed.c, rows.c,
 * blas.c, kernels/gemm.h.
 */
#include <assert.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "array/layout.h"
#include "base/integers.h"
#include "cpu/blas.h"
#include "cpu/epilogue.h"
#include "cpu/product.h"

enum {
    SMALL = 160 * 160 * 160,
    SMALL_TILE = 1000000,
    PIECES_LEAST = 210 * 210 * 210,
    NARROW = 64,
    BLAS_TILE = 256
};

typedef enum route {
    ROUTE_NOTHING, /* an empty result */
    ROUTE_ZERO,    /* k == 0 */
    ROUTE_ROWS,
    ROUTE_COLUMNS, /* rows of the transposed problem */
    ROUTE_STRIPS,
    ROUTE_PACKED,
    ROUTE_TINY,
    ROUTE_BLAS,
    ROUTE_PLAIN
} route;

/* ---- reading the operands ---------------------------------------------------
 */

/* Stride of batch axis k of `out` in an operand: 0 where it has none. */
static int64_t
batch_stride(const mr_kernel_view *x, const mr_kernel_view *out, int32_t k)
{
    int32_t own = k - (out->ndim - x->ndim);

    return own < 0 || x->dim[own] == 1 ? 0 : x->stride[own];
}

/* All items as rows of one product: they share b, and a's rows go on.  Rows
 * that are one row many times do not: no library takes a stride of 0. */
static void
items_join(mr_product *p)
{
    const mr_walk *w = &p->batch;
    bool rows_go_on;

    if (w->ndim != 1 || w->stride[1][0] != 0)
        return;
    rows_go_on = w->stride[0][0] != 0 &&
                 (p->m == 1 || w->stride[0][0] == p->m * p->a.lane_stride);
    if (!rows_go_on)
        return;
    if (p->m == 1)
        p->a.lane_stride = w->stride[0][0];
    p->m *= p->n_items;
    p->a.lanes = p->m;
    p->n_items = 1;
    p->batch.ndim = 0;
}

static void
product_read(const mr_kernel_view *a, const mr_kernel_view *b,
             const mr_kernel_view *out, bool join, mr_product *p)
{
    int64_t stride[2][MR_MAX_NDIM];
    int32_t na = a->ndim, nb = b->ndim, batch = out->ndim - 2;

    *p = (mr_product){.dtype = out->dtype,
                      .m = a->dim[na - 2],
                      .k = a->dim[na - 1],
                      .n = b->dim[nb - 1],
                      .c = out->data};
    p->a = (mr_gemm_side){a->data, a->dtype, p->m, a->stride[na - 2],
                          a->stride[na - 1]};
    p->b = (mr_gemm_side){b->data, b->dtype, p->n, b->stride[nb - 1],
                          b->stride[nb - 2]};
    p->c_row = p->n;
    p->c_col = 1;
    p->c_item = p->m * p->n;
    for (int32_t k = 0; k < batch; k++) {
        stride[0][k] = batch_stride(a, out, k);
        stride[1][k] = batch_stride(b, out, k);
    }
    mr__walk_init(&p->batch, batch, out->dim, 0);
    mr__walk_add(&p->batch, batch, stride[0], 0);
    mr__walk_add(&p->batch, batch, stride[1], 0);
    mr__walk_merge(&p->batch);
    p->n_items = mr__walk_size(&p->batch);
    if (join)
        items_join(p);
    /* An axis of size 1 has any stride: say the one that helps. */
    if (p->m == 1)
        p->a.lane_stride = p->k;
    if (p->n == 1)
        p->b.lane_stride = p->k;
    if (p->k == 1) {
        p->a.depth_stride = p->a.lane_stride == 1 ? p->m : 1;
        p->b.depth_stride = p->b.lane_stride == 1 ? p->n : 1;
    }
}

static int64_t
item_picked(const mr_product *p, int64_t item)
{
    return p->picked != NULL ? p->picked[item] : item;
}

void
mr__product_item(const mr_product *p, int64_t item, mr_gemm_side *a,
                 mr_gemm_side *b, void **c)
{
    int64_t size = mr__dtype_size(p->dtype);
    mr_walk w;

    *a = p->a;
    *b = p->b;
    item = item_picked(p, item);
    *c = (char *)p->c + item * p->c_item * size;
    if (p->batch.ndim == 0)
        return;
    w = p->batch;
    mr__walk_seek(&w, item);
    a->data = (const char *)a->data + w.offset[0] * size;
    b->data = (const char *)b->data + w.offset[1] * size;
}

int64_t
mr__product_offset(const mr_product *p, int64_t item)
{
    mr_walk w = p->batch;

    if (w.ndim == 0)
        return 0;
    mr__walk_seek(&w, item_picked(p, item));
    return w.offset[1];
}

bool
mr__product_side_shared(const mr_walk *batch, int side)
{
    for (int32_t k = 0; k < batch->ndim; k++)
        if (batch->stride[side][k] != 0)
            return false;
    return true;
}

/* c^T = b^T a^T. */
static mr_product
product_turn(const mr_product *p)
{
    mr_product t = *p;

    t.m = p->n;
    t.n = p->m;
    t.a = p->b;
    t.b = p->a;
    t.c_row = p->c_col;
    t.c_col = p->c_row;
    for (int32_t k = 0; k < t.batch.ndim; k++) {
        t.batch.stride[0][k] = p->batch.stride[1][k];
        t.batch.stride[1][k] = p->batch.stride[0][k];
    }
    return t;
}

/* Is OpenBLAS faster than the packed kernel?  It does not pack what has up to a
 * million multiplications; it gets tiles, so theirs count.  Where one has all
 * rows or columns that holds for any size.  README.md has the numbers. */
static bool
blas_pays(const mr_product *p)
{
    int64_t m = p->m < BLAS_TILE ? p->m : BLAS_TILE;
    int64_t n = p->n < BLAS_TILE ? p->n : BLAS_TILE;
    bool narrow = m <= NARROW || n <= NARROW;

    if (!mr__gemm_fast() || (p->dtype == MR_FLOAT64 && p->m <= MR_STRIP_ROWS))
        return true;
    return (double)(m * n) * (double)p->k <= SMALL_TILE &&
           (narrow || (double)p->m * (double)p->n * (double)p->k <= SMALL);
}

static route
route_choose(const mr_product *p)
{
    bool inexact32 = p->dtype == MR_FLOAT32 || p->dtype == MR_FLOAT16 ||
                     p->dtype == MR_BFLOAT16;
    bool blas = mr__dtype_is_inexact(p->dtype) && p->dtype != MR_FLOAT16 &&
                p->dtype != MR_BFLOAT16 && mr__blas_ready() &&
                p->m <= INT_MAX && p->n <= INT_MAX && p->k <= INT_MAX;
    mr_product turned;

    if (p->n_items == 0 || p->m == 0 || p->n == 0)
        return ROUTE_NOTHING;
    if (p->k == 0)
        return ROUTE_ZERO;
    if (mr__product_tiny_fits(p))
        return ROUTE_TINY;
    turned = product_turn(p);
    if (mr__product_rows_wide_fit(p))
        return ROUTE_ROWS;
    if (mr__product_rows_wide_fit(&turned))
        return ROUTE_COLUMNS;
    if (p->dtype == MR_FLOAT64 && mr__gemm_fast() && (!blas || !blas_pays(p)))
        return ROUTE_PACKED;
    if (!inexact32)
        return blas ? ROUTE_BLAS : ROUTE_PLAIN;
    if (blas && mr__product_blas_side(&p->a, p->k) &&
        mr__product_blas_side(&p->b, p->k) && blas_pays(p))
        return ROUTE_BLAS;
    if (mr__product_rows_fit(p))
        return ROUTE_ROWS;
    if (mr__product_rows_fit(&turned))
        return ROUTE_COLUMNS;
    return mr__product_strips_fit(p) ? ROUTE_STRIPS : ROUTE_PACKED;
}

/* ---- BLAS
 * -------------------------------------------------------------------- */

/* Row after row, or column after column, without overlap. */
bool
mr__product_blas_side(const mr_gemm_side *s, int64_t depth)
{
    int64_t lanes = s->lanes > 1 ? s->lanes : 1;

    if (s->depth_stride == 1)
        return s->lane_stride >= depth && s->lane_stride <= INT_MAX;
    return s->lane_stride == 1 && s->depth_stride >= lanes &&
           s->depth_stride <= INT_MAX;
}

/* Does what follows run on each tile?  Below 16 KB or so a tile of an item is
 * done sooner than a program is made ready. */
bool
mr__product_blas_follows(const mr_product *p)
{
    return p->n_items == 1 || p->m * p->n >= 4096;
}

typedef struct tiles {
    const mr_product *p;
    int64_t rows, cols, n_rows, n_cols; /* of a tile; tiles of an item */
} tiles;

static const void *
lane_at(const mr_gemm_side *s, int64_t lane, int64_t size)
{
    return (const char *)s->data + lane * s->lane_stride * size;
}

static void
blas_tile(const tiles *t, int64_t unit)
{
    const mr_product *p = t->p;
    int64_t size = mr__dtype_size(p->dtype);
    int64_t per_item = t->n_rows * t->n_cols, item = unit / per_item;
    int64_t i = unit % per_item / t->n_cols * t->rows;
    int64_t j = unit % t->n_cols * t->cols;
    mr_gemm_side a, b;
    mr_blas_gemm g = {0};
    void *c;

    mr__product_item(p, item, &a, &b, &c);
    g.m = p->m - i < t->rows ? p->m - i : t->rows;
    g.n = p->n - j < t->cols ? p->n - j : t->cols;
    g.k = p->k;
    g.trans_a = a.depth_stride != 1;
    g.lda = g.trans_a ? a.depth_stride : a.lane_stride;
    g.trans_b = b.lane_stride != 1 || b.depth_stride == 1;
    if (b.lane_stride == 1 && b.depth_stride >= p->n)
        g.trans_b = false;
    g.ldb = g.trans_b ? b.lane_stride : b.depth_stride;
    g.a = lane_at(&a, i, size);
    g.b = lane_at(&b, j, size);
    g.c = (char *)c + (i * p->c_row + j) * size;
    g.ldc = p->c_row;
    mr__blas_run(p->dtype, &g);
    if (p->after != NULL && mr__product_blas_follows(p))
        mr__product_after(p, item, i, g.m, j, g.n);
}

static void
blas_piece(void *ctx, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        blas_tile(ctx, i);
}

/* Tiles of 256 x 256, of 512 x 512 where there are many: half the repacking
 * inside the library. */
void
mr__product_blas(const mr_product *p)
{
    bool large = (double)p->m * (double)p->n >= 4096.0 * 4096.0;
    double ns = mr__dtype_is_complex(p->dtype) ? 4.0 : 1.0;
    tiles t = {.p = p};

    t.rows = t.cols = large ? 2 * BLAS_TILE : BLAS_TILE;
    t.rows = t.rows < p->m ? t.rows : p->m;
    t.cols = t.cols < p->n ? t.cols : p->n;
    t.n_rows = (p->m - 1) / t.rows + 1;
    t.n_cols = (p->n - 1) / t.cols + 1;
    ns *= 0.04 * (double)t.rows * (double)t.cols * (double)p->k + 100.0;
    mr__cpu_for(p->n_items * t.n_rows * t.n_cols, mr__cpu_grain(ns), blas_piece,
                &t);
}

/* ---- plain loops
 * -------------------------------------------------------------- */

static void
plain_piece(void *ctx, int64_t begin, int64_t end)
{
    const mr_product *p = ctx;

    for (int64_t row = begin; row < end;) {
        int64_t item = row / p->m, i = row % p->m;
        int64_t stop = i + (end - row) < p->m ? i + (end - row) : p->m;
        mr_gemm_side a, b;
        void *c;

        mr__product_item(p, item, &a, &b, &c);
        mr__gemm_plain(&a, &b, c, p->c_row, p->k, i, stop);
        row += stop - i;
    }
}

void
mr__product_plain(const mr_product *p)
{
    mr_product copy = *p;
    double ns = 0.3 * (double)p->n * (double)p->k;

    mr__cpu_for(p->n_items * p->m, mr__cpu_grain(ns), plain_piece, &copy);
}

/* ---- the row of the table
 * ------------------------------------------------------ */

static size_t
view_bytes(const mr_kernel_view *x)
{
    return mr__whole_lines((size_t)x->size * (size_t)mr__dtype_size(x->dtype));
}

/* Is a product faster on the matrix unit?  Packing in pieces costs two to four
 * times as much as in floats, so few rows of float32 or little work do not pay;
 * a depth of 1 is exact in floats.  README.md has the numbers. */
static bool
pieces_pay(const mr_product *p)
{
    switch (mr__gemm_pieces(p->dtype)) {
    case 0:
        return false;
    case 1:
        return true;
    case 2:
        return p->m >= 8 && p->n >= 32;
    default:
        return p->m >= 64 && p->n >= 128 && p->k > 1 &&
               (double)p->m * (double)p->n * (double)p->k >= PIECES_LEAST;
    }
}

/* In pieces or pairs where the processor likes them; what has numbers that it
 * does not, as floats. */
static mr_product
formed(const mr_product *p)
{
    mr_product t = *p;

    if (p->pack_b != NULL)
        return t;
    if (pieces_pay(p))
        t.form = MR_GEMM_IN_PIECES;
    else if (mr__gemm_pairs(p->dtype))
        t.form = MR_GEMM_IN_PAIRS;
    return t;
}

static size_t
rows_bytes(const mr_product *p)
{
    return mr__product_rows_wide_fit(p) ? mr__product_rows_wide_bytes(p)
                                        : mr__product_rows_bytes(p);
}

static void
rows_run(const mr_product *p, void *workspace)
{
    if (mr__product_rows_wide_fit(p))
        mr__product_rows_wide(p, workspace);
    else
        mr__product_rows(p, workspace);
}

static size_t
route_bytes(const mr_product *p, route r)
{
    mr_product turned, other = formed(p);

    switch (r) {
    case ROUTE_ROWS:
        return rows_bytes(p);
    case ROUTE_COLUMNS:
        turned = product_turn(p);
        return rows_bytes(&turned);
    case ROUTE_STRIPS:
        if (other.form == MR_GEMM_IN_PIECES)
            return mr__product_pieces_bytes(&other, true);
        return mr__max_bytes(mr__product_strips_bytes(p),
                             mr__product_strips_bytes(&other));
    case ROUTE_PACKED:
        if (other.form == MR_GEMM_IN_PIECES)
            return mr__product_pieces_bytes(&other, false);
        return mr__max_bytes(mr__product_packed_bytes(p),
                             mr__product_packed_bytes(&other));
    case ROUTE_TINY:
    case ROUTE_BLAS:
    case ROUTE_NOTHING:
    case ROUTE_ZERO:
    case ROUTE_PLAIN:
        break;
    }
    return 0;
}

size_t
mr__product_bytes(const mr_product *p)
{
    return route_bytes(p, route_choose(p));
}

static void
product_clear(const mr_product *p)
{
    size_t size = (size_t)mr__dtype_size(p->dtype);

    for (int64_t i = 0; i < p->n_items; i++)
        for (int64_t row = 0; row < p->m; row++)
            memset((char *)p->c +
                       (size_t)(i * p->c_item + row * p->c_row) * size,
                   0, (size_t)p->n * size);
}

static void
route_run(const mr_product *p, route r, void *workspace)
{
    mr_product turned, other = formed(p);

    switch (r) {
    case ROUTE_NOTHING:
        break;
    case ROUTE_ZERO:
        product_clear(p);
        break;
    case ROUTE_ROWS:
        rows_run(p, workspace);
        break;
    case ROUTE_COLUMNS:
        turned = product_turn(p);
        rows_run(&turned, workspace);
        break;
    case ROUTE_STRIPS:
        if (other.form == MR_GEMM_IN_PIECES)
            mr__product_pieces(&other, true, workspace);
        else if (other.form == MR_GEMM_FLOATS ||
                 !mr__product_strips(&other, workspace))
            mr__product_strips(p, workspace);
        break;
    case ROUTE_PACKED:
        if (other.form == MR_GEMM_IN_PIECES)
            mr__product_pieces(&other, false, workspace);
        else if (other.form == MR_GEMM_FLOATS ||
                 !mr__product_packed(&other, workspace))
            mr__product_packed(p, workspace);
        break;
    case ROUTE_TINY:
        mr__product_tiny(p);
        break;
    case ROUTE_BLAS:
        mr__product_blas(p);
        break;
    case ROUTE_PLAIN:
        mr__product_plain(p);
        break;
    }
}

void
mr__product_after(const mr_product *p, int64_t item, int64_t i, int64_t m,
                  int64_t j, int64_t n)
{
    mr__after_piece(p->after, p->after_row + item_picked(p, item) * p->m + i, m,
                    p->after_col + j, n);
}

static void
after_all(const mr_product *p, const mr_epilogue *e)
{
    mr__after_region(e, p->after_row, p->m * p->n_items, p->after_col, p->n);
}

void
mr__product_after_all(const mr_product *p)
{
    after_all(p, p->after->e);
}

/* Does the route run what follows on its tiles as they become ready?  Of the
 * others the results are small, or not the time. */
static bool
follows_tiles(const mr_product *p, route r)
{
    return mr__after_pays(p->epilogue, p->n_items * p->m * p->n *
                                           mr__dtype_size(p->dtype)) &&
           (r == ROUTE_STRIPS || r == ROUTE_PACKED ||
            (r == ROUTE_BLAS && mr__product_blas_follows(p)));
}

/* Apart, so that other products need no room for a program. */
static __attribute__((noinline)) void
run_joined(const mr_product *p, route r, void *workspace)
{
    mr_product q = *p;
    mr_after after;

    if (!follows_tiles(p, r)) {
        route_run(p, r, workspace);
        after_all(p, p->epilogue);
        return;
    }
    mr__after_make(&after, p->epilogue);
    q.after = &after;
    route_run(&q, r, workspace);
}

static void
run_all(const mr_product *p, route r, void *workspace)
{
    if (p->epilogue != NULL && r != ROUTE_NOTHING)
        run_joined(p, r, workspace);
    else
        route_run(p, r, workspace);
}

void
mr__product_run(const mr_product *p, void *workspace)
{
    run_all(p, route_choose(p), workspace);
}

/* The order of additions of some routes depends on how an operand lies.  So
 * that gaps and turned rows do not change it, an operand that lies neither row
 * after row nor column after column is taken for one that does, the way it
 * comes closest to: the route is chosen for that, and the operand copied to it
 * unless the route reads it as it is. */
typedef struct lain {
    mr_kernel_view in[2];
    int64_t stride[2][MR_MAX_NDIM];
    bool moved[2];
    mr_product p; /* of these */
    route route;
} lain;

static bool
by_columns(const mr_kernel_view *x)
{
    int64_t row = llabs(x->stride[x->ndim - 2]);
    int64_t col = llabs(x->stride[x->ndim - 1]);

    return row != 0 && row < col;
}

/* Row-major, or the same with the last two axes exchanged. */
static void
lay_out(const mr_kernel_view *x, int64_t *stride)
{
    int32_t n = x->ndim;

    mr__strides_fresh(n, x->dim, stride);
    if (by_columns(x)) {
        stride[n - 2] = 1;
        stride[n - 1] = x->dim[n - 2];
    }
}

static void
lie_down(const mr_kernel_args *a, mr_product *p, lain *l)
{
    product_read(&a->in[0], &a->in[1], &a->out[0], true, p);
    for (int i = 0; i < 2; i++) {
        l->in[i] = a->in[i];
        l->moved[i] = !mr__product_blas_side(i == 0 ? &p->a : &p->b, p->k);
        if (!l->moved[i])
            continue;
        lay_out(&a->in[i], l->stride[i]);
        l->in[i].stride = l->stride[i];
    }
    product_read(&l->in[0], &l->in[1], &a->out[0], true, &l->p);
    l->route = route_choose(&l->p);
    if (l->route == ROUTE_BLAS || l->route == ROUTE_ROWS ||
        l->route == ROUTE_COLUMNS)
        return;
    l->moved[0] = l->moved[1] = false; /* any layout, the same order */
    /* The route bounds the rows of an item. */
    if (p->m > l->p.m)
        product_read(&a->in[0], &a->in[1], &a->out[0], false, p);
}

/* The operand's elements as l->in[i] has them, at `to`. */
static void
move(const mr_kernel_view *x, void *to)
{
    int64_t dim[MR_MAX_NDIM], stride[MR_MAX_NDIM];
    mr_kernel_view turned = *x;
    int32_t n = x->ndim;

    if (by_columns(x)) {
        memcpy(dim, x->dim, (size_t)n * sizeof *dim);
        memcpy(stride, x->stride, (size_t)n * sizeof *stride);
        dim[n - 2] = x->dim[n - 1];
        dim[n - 1] = x->dim[n - 2];
        stride[n - 2] = x->stride[n - 1];
        stride[n - 1] = x->stride[n - 2];
        turned.dim = dim;
        turned.stride = stride;
    }
    mr__cpu_copy_view(to, &turned);
}

size_t
mr__cpu_matmul_workspace(const mr_kernel_args *a)
{
    mr_product p;
    size_t bytes;
    lain l;

    lie_down(a, &p, &l);
    if (!l.moved[0] && !l.moved[1])
        return route_bytes(&p, l.route);
    bytes = mr__whole_lines(route_bytes(&l.p, l.route));
    for (int i = 0; i < 2; i++)
        if (l.moved[i])
            bytes += view_bytes(&a->in[i]);
    return bytes;
}

mr_code
mr__cpu_matmul(const mr_kernel_args *a)
{
    char *free;
    mr_product p;
    lain l;

    lie_down(a, &p, &l);
    if (!l.moved[0] && !l.moved[1]) {
        p.epilogue = a->epilogue;
        run_all(&p, l.route, a->workspace);
        return MR_OK;
    }
    free = (char *)a->workspace + mr__whole_lines(route_bytes(&l.p, l.route));
    for (int i = 0; i < 2; i++) {
        if (!l.moved[i]) {
            l.in[i] = a->in[i];
            continue;
        }
        move(&a->in[i], free);
        l.in[i].data = free;
        free += view_bytes(&a->in[i]);
    }
    product_read(&l.in[0], &l.in[1], &a->out[0], true, &l.p);
    l.p.epilogue = a->epilogue;
    run_all(&l.p, l.route, a->workspace);
    return MR_OK;
}

/* 100 GFLOP/s, or 10 GB/s where that is slower. */
double
mr__cpu_matmul_cost(const mr_kernel_args *a)
{
    const mr_kernel_view *x = &a->in[0];
    double k = (double)x->dim[x->ndim - 1];
    double bytes = (double)(x->size + a->in[1].size + a->out[0].size) *
                   (double)mr__dtype_size(x->dtype);

    return 0.02 * k * (double)a->out[0].size + 0.1 * bytes + 200.0;
}
