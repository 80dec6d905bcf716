/* SPDX-License-Identifier: Apache-2.0
 *
 * attend_back.c -- the gradients of attention, without the weights in memory.
 *
 * With P the weights, G what comes back to the output O and D the sum of G * O
 * over a row: what comes back to the scores is S' = P * (G v^T - D), and dq =
 * scale S' k, dk = scale S'^T q, dv = P^T G (T. Dao and others,
 * "FlashAttention", 2022).  A first round of tiles (attend.c) finds each row's
 * largest score and sum, so P is made again, exactly as it was, a tile at a
 * time: ROWS queries by KEYS keys, rows as they are.  So P and S' are the
 * packed sides of the products for dv and dk as they lie, and S' is turned
 * once, for dq.
 *
 * A block of keys is packed with its sums of dk and dv, and tiles of rows pass
 * by.  With enough items a unit is an item and does everything; otherwise units
 * are runs of rows, for dq, then blocks of keys, for dk and dv.  Each element
 * adds the same tiles in the same order both ways, so the bits are those of any
 * number of threads.
 *
 * Where there is a matrix unit, and all four operands may be split into pieces
 * (asked once, of all of them), all products are of pieces.
 * Called by: device.c.  Calls: attend.c, kernels/attend.h, kernels/gemm.h.
 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "cpu/attend.h"
#include "kernels/copy.h"
#include "kernels/tier/tier.h"
#include "ops/params.h"

enum {
    ROWS = 144,       /* a multiple of every tier's rows */
    PIECES_ROWS = 96, /* and of the matrix unit's */
    KEYS = 128,       /* and of every tier's columns */
    BLOCK_FLOATS = 250000,
    MAX_BLOCK = 1024,
    STEP = MR_GEMM_PIECES_STEP,
    RUN_TILES = 4,        /* of rows, where these are units */
    ITEM_FLOATS = 262144, /* of dq, where it is a half */
    WANT_Q = 1,
    WANT_KV = 2
};

typedef struct back {
    mr_attend_job j;
    mr_kernel_view g, o;
    const mr_attend_tier *tier;
    char *dq, *dk, *dv;
    float *dsinks;
    float *top, *scale, *dot;   /* of all rows: scale is 1 / sum */
    int64_t items, cols, high;  /* of the packed kernel's panels */
    int64_t tile;               /* rows */
    int64_t block, n_blocks;    /* keys packed together */
    int64_t run;                /* rows of a unit that wants dq alone */
    int64_t k_panels, v_panels; /* of cols, over depth and width */
    int64_t deep, wide;         /* depth and width, to whole panels of high */
    int64_t q_floats;           /* of dq held back */
    int want;
    bool pairs;  /* of bfloat16 are worth it (kernels/gemm.h) */
    bool pieces; /* all goes to the matrix unit */
    int weights; /* pieces of a weight then */
    atomic_bool *misfit;
} back;

/* A unit at work: rows [row0, row1) of an item by blocks [block0, block1). */
typedef struct unit {
    const back *b;
    int64_t item, row0, row1, block0, block1;
    int64_t key0, n_keys; /* the block */
    int64_t tile0, n;     /* the tile of rows */
    float *k, *v, *k_deep, *dk, *dv;
    float *q, *g, *q_deep, *g_deep;
    float *s, *ds, *turned, *mask, *stage, *half, *dq;
    float *p_right, *ds_right; /* in pieces, a panel's */
    bool k_pairs, v_pairs;    /* how the block lies, so q and g of a tile too */
    int64_t k_steps, v_steps; /* floats of a lane */
} unit;

static int64_t
lines(int64_t floats)
{
    return (floats + 15) / 16 * 16;
}

static int64_t
up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static const char *
place(const mr_kernel_view *x, int64_t at)
{
    return (const char *)x->data + at * mr__dtype_size(x->dtype);
}

/* ---- the plan --------------------------------------------------------------
 */

static void
back_plan(const mr_kernel_args *a, back *b)
{
    mr_attend_job *j = &b->j;
    int64_t per;

    memset(b, 0, sizeof *b);
    mr__attend_job(a, j);
    b->g = a->in[a->n_in - 2];
    b->o = a->in[a->n_in - 1];
    b->dq = a->out[0].data;
    b->dk = a->out[1].data;
    b->dv = a->out[2].data;
    b->dsinks = a->out[3].data;
    b->tier = mr__attend();
    b->items = j->batch * j->heads;
    b->cols = mr__gemm_cols();
    b->high = mr__gemm_rows();
    b->pieces = j->pieces > 0;
    b->weights = MR_ATTEND_PIECES(j->pieces);
    b->tile = b->pieces ? PIECES_ROWS : ROWS;
    b->k_panels = up(j->depth, b->cols) / b->cols;
    b->v_panels = up(j->width, b->cols) / b->cols;
    b->deep = up(j->depth, b->pieces ? STEP * 3 : b->high);
    b->wide = up(j->width, b->pieces ? STEP * 3 : b->high);
    per = 2 * j->depth + 2 * j->width + b->k_panels * b->cols + 1;
    b->block = BLOCK_FLOATS / per / KEYS * KEYS;
    b->block = b->block < KEYS ? KEYS : b->block;
    b->block = b->block < MAX_BLOCK ? b->block : MAX_BLOCK;
    if (b->block > up(j->lk, KEYS))
        b->block = up(j->lk, KEYS);
    b->run = RUN_TILES * b->tile;
    b->want = WANT_Q | WANT_KV;
    b->pairs = mr__gemm_pairs(j->dtype);
    if (b->items < 2 * j->n_slots ||
        (j->dtype != MR_FLOAT32 && j->rows * j->depth > ITEM_FLOATS)) {
        b->want = 0;
        while (b->block > KEYS &&
               b->items * (j->lk / b->block) < 3 * j->n_slots)
            b->block -= KEYS;
        while (b->run > b->tile &&
               b->items * (j->rows / b->run) < 3 * j->n_slots)
            b->run -= b->tile;
    }
    b->n_blocks = j->lk > 0 ? (j->lk - 1) / b->block + 1 : 0;
    b->q_floats =
        j->dtype == MR_FLOAT32 ? 0 : (b->want ? j->rows : b->run) * j->depth;
}

/* Floats of a lane of a side, whichever form it has in the end. */
static int64_t
lane_floats(const back *b, int64_t depth)
{
    int64_t pieces = 0;

    if (b->pieces)
        pieces = mr__gemm_steps(MR_GEMM_IN_PIECES, b->j.dtype, depth);
    return pieces > depth ? pieces : depth;
}

/* A slot's pieces one after the other; with at NULL only counted. */
static int64_t
slot_floats(const back *b, float *at, unit *u)
{
    const mr_attend_job *j = &b->j;
    int64_t most = j->depth > j->width ? j->depth : j->width;
    int64_t n_stage = up(b->tile, b->cols) * most, sum = 0;
    int64_t right = b->pieces ? b->tile / 2 * b->weights * b->cols : 0;
    int64_t turned = b->pieces ? KEYS / 2 * b->weights : KEYS;
    struct {
        float **to;
        int64_t floats;
    } piece[] = {
        {&u->k, b->block * lane_floats(b, j->depth)},
        {&u->v, b->block * lane_floats(b, j->width)},
        {&u->k_deep,
         b->block / KEYS * lane_floats(b, KEYS) * b->k_panels * b->cols},
        {&u->dk, b->block * j->depth},
        {&u->dv, b->block * j->width},
        {&u->q, b->tile * lane_floats(b, j->depth)},
        {&u->g, b->tile * lane_floats(b, j->width)},
        {&u->q_deep, lane_floats(b, b->tile) * b->deep},
        {&u->g_deep, lane_floats(b, b->tile) * b->wide},
        {&u->s, b->tile * KEYS},
        {&u->ds, b->tile * KEYS},
        {&u->turned, b->tile * (turned > KEYS ? turned : KEYS)},
        {&u->p_right, right},
        {&u->ds_right, right},
        {&u->mask, j->mask ? 2 * b->tile * b->cols : 0},
        {&u->stage, n_stage},
        {&u->half, b->pairs || b->pieces ? (b->tile * most + 1) / 2 : 0},
        {&u->dq, b->q_floats},
    };

    for (size_t i = 0; i < sizeof piece / sizeof *piece; i++) {
        if (at)
            *piece[i].to = at + sum;
        sum += lines(piece[i].floats);
    }
    return sum;
}

static size_t
slot_bytes(const back *b)
{
    unit spare;

    return (size_t)slot_floats(b, NULL, &spare) * sizeof(float);
}

/* ---- rows: their largest scores, sums and D --------------------------------
 */

static int64_t
rows_floats(const back *b)
{
    return lines(b->items * b->j.rows);
}

static void
stats_job(const back *b, mr_attend_job *j)
{
    *j = b->j;
    j->width = 0;
    j->top = b->top;
    j->sum = b->scale;
}

static void
dots_unit(const void *ctx, int64_t unit_, char *slot)
{
    const back *b = ctx;
    const mr_attend_job *j = &b->j;
    float *g = (float *)(void *)slot, *o = g + lines(j->width);
    int64_t n_units = (j->rows - 1) / ROWS + 1, item = unit_ / n_units;
    int64_t r = unit_ % n_units * ROWS, end = r + ROWS;

    for (end = end < j->rows ? end : j->rows; r < end; r++) {
        int64_t at = item * j->rows + r;

        mr__attend_row(j, &b->g, item, r, j->width, g);
        mr__attend_row(j, &b->o, item, r, j->width, o);
        b->tier->dots[MR_GEMM_FLOAT32](b->dot + at, g, o, j->width, 1, j->width,
                                       0);
        b->scale[at] = 1.0F / b->scale[at];
    }
}

static size_t
dots_bytes(const back *b)
{
    return (size_t)(2 * lines(b->j.width)) * sizeof(float);
}

/* ---- may all of it be split into pieces?  ----------------------------------
 * All of it or none, so that it does not show how the work is cut.
 */

static bool
rows_fit(const mr_kernel_view *x, int64_t at, int64_t n, float *spare)
{
    int64_t each = mr__gemm_steps(MR_GEMM_IN_PIECES, x->dtype, x->dim[3]);
    bool fits = true;

    for (int64_t i = 0; fits && i < n; i += STEP) {
        mr_gemm_side side = {place(x, at + i * x->stride[2]), x->dtype,
                             n - i < STEP ? n - i : STEP, x->stride[2],
                             x->stride[3]};

        fits =
            each == 0 || mr__gemm_pack_panels(&side, false, 0, 1, 0, x->dim[3],
                                              MR_GEMM_IN_PIECES, spare, 0);
    }
    return fits;
}

/* One head of one of the operands. */
static void
fits_unit(const void *ctx, int64_t number, char *slot)
{
    const back *b = ctx;
    const mr_kernel_view *x[] = {&b->j.k, &b->j.v, &b->j.q, &b->g};
    int64_t which = 0, heads;

    for (; number >= x[which]->dim[0] * x[which]->dim[1]; which++)
        number -= x[which]->dim[0] * x[which]->dim[1];
    heads = x[which]->dim[1];
    if (!rows_fit(x[which], mr__attend_offset(x[which], number, heads),
                  x[which]->dim[2], (float *)(void *)slot))
        /* relaxed: read when all units are done */
        atomic_store_explicit(b->misfit, true, memory_order_relaxed);
}

static size_t
fits_bytes(const back *b)
{
    int64_t most = b->j.depth > b->j.width ? b->j.depth : b->j.width;

    return (size_t)(STEP * lane_floats(b, most)) * sizeof(float);
}

static bool
back_fits(back *b, char *workspace)
{
    const mr_attend_job *j = &b->j;
    int64_t n = 2 * j->batch * j->heads * (1 + j->group);
    atomic_bool misfit;

    atomic_init(&misfit, false);
    b->misfit = &misfit;
    mr__cpu_units(j->n_slots, n, workspace, fits_bytes(b), fits_unit, b);
    return !atomic_load_explicit(&misfit, memory_order_relaxed);
}

/* -(weight of the sink) * D, over the rows of a query head. */
static void
sinks_piece(void *ctx, int64_t begin, int64_t end)
{
    const back *b = ctx;
    const mr_attend_job *j = &b->j;

    for (int64_t h = begin; h < end; h++) {
        int64_t item = h / j->group, r0 = h % j->group * j->lq;
        float sink = mr__attend_sink(j, item, r0);
        double sum = 0.0;

        for (int64_t i = 0; j->sinks && i < j->lq; i++) {
            int64_t at = item * j->rows + r0 + i;

            sum -= exp((double)sink - (double)b->top[at]) *
                   (double)b->scale[at] * (double)b->dot[at];
        }
        b->dsinks[h] = (float)sum;
    }
}

/* ---- packing ---------------------------------------------------------------
 */

/* All lanes of a side, panel after panel. */
static void
side_pack(const mr_gemm_side *s, int64_t width, int64_t depth, float *to)
{
    for (int64_t p = 0; p * width < s->lanes; p++)
        mr__gemm_pack(s, (int)width, p, 0, depth, to + p * width * depth);
}

/* The same in pairs; false when it must not be. */
static bool
side_pairs(const mr_gemm_side *s, int64_t width, int64_t depth, float *to)
{
    int64_t each = width * ((depth + 1) / 2);

    for (int64_t p = 0; p * width < s->lanes; p++)
        if (!mr__gemm_pack_pairs(s, (int)width, p, 0, depth, to + p * each))
            return false;
    return true;
}

/* The same in pieces. */
static void
side_pieces(const mr_gemm_side *s, bool right, int64_t depth, float *to)
{
    int64_t each = mr__gemm_steps(MR_GEMM_IN_PIECES, s->dtype, depth) *
                   MR_GEMM_PIECES_LANES;

    for (int64_t p = 0, n; p * MR_GEMM_PIECES_LANES < s->lanes; p += n) {
        n = (s->lanes - 1) / MR_GEMM_PIECES_LANES + 1 - p;
        n = n < MR_GEMM_MAX_PANELS ? n : MR_GEMM_MAX_PANELS;
        (void)mr__gemm_pack_panels(s, right, p, n, 0, depth, MR_GEMM_IN_PIECES,
                                   to + p * each, each);
    }
}

static int64_t
steps(const back *b, int64_t depth)
{
    return mr__gemm_steps(MR_GEMM_IN_PIECES, b->j.dtype, depth);
}

/* Of a side that is made of weights, pieces of its own. */
static int64_t
weight_steps(const back *b, int64_t depth)
{
    return up(depth, STEP) / 2 * b->weights;
}

/* A block's keys or values, in pairs if `pairs` and that may be; whether it
 * was, and how many floats of a lane. */
static bool
keys_pack(const back *b, const mr_gemm_side *s, int64_t depth, bool pairs,
          float *to, int64_t *n_steps)
{
    if (b->pieces) {
        side_pieces(s, true, depth, to);
        *n_steps = steps(b, depth);
        return false;
    }
    pairs = pairs && side_pairs(s, b->cols, depth, to);
    *n_steps = pairs ? (depth + 1) / 2 : depth;
    if (!pairs)
        side_pack(s, b->cols, depth, to);
    return pairs;
}

static void
block_k(unit *u, bool pairs)
{
    const mr_attend_job *j = &u->b->j;
    int64_t at =
        mr__attend_offset(&j->k, u->item, j->heads) + u->key0 * j->k.stride[2];
    mr_gemm_side k = {place(&j->k, at), j->dtype, u->n_keys, j->k.stride[2],
                      j->k.stride[3]};

    u->k_pairs = keys_pack(u->b, &k, j->depth, pairs, u->k, &u->k_steps);
}

static void
block_v(unit *u, bool pairs)
{
    const mr_attend_job *j = &u->b->j;
    int64_t at =
        mr__attend_offset(&j->v, u->item, j->heads) + u->key0 * j->v.stride[2];
    mr_gemm_side v = {place(&j->v, at), j->dtype, u->n_keys, j->v.stride[2],
                      j->v.stride[3]};

    u->v_pairs = keys_pack(u->b, &v, j->width, pairs, u->v, &u->v_steps);
}

/* Keys [key0, key0 + n_keys) and their values, for all three products; the
 * third by pieces of KEYS, since it adds up over keys. */
static void
block_pack(unit *u)
{
    const back *b = u->b;
    const mr_attend_job *j = &b->j;
    int64_t k0 =
        mr__attend_offset(&j->k, u->item, j->heads) + u->key0 * j->k.stride[2];

    block_k(u, b->pairs);
    block_v(u, b->pairs);
    for (int64_t i = 0; i < u->n_keys; i += KEYS) {
        int64_t n = u->n_keys - i < KEYS ? u->n_keys - i : KEYS;
        mr_gemm_side deep = {place(&j->k, k0 + i * j->k.stride[2]), j->dtype,
                             j->depth, j->k.stride[3], j->k.stride[2]};

        if (b->want != WANT_KV && b->pieces)
            side_pieces(&deep, true, n,
                        u->k_deep +
                            i / KEYS * steps(b, KEYS) * b->k_panels * b->cols);
        else if (b->want != WANT_KV)
            side_pack(&deep, b->cols, n, u->k_deep + i * b->k_panels * b->cols);
    }
    memset(u->dk, 0, (size_t)(b->block * j->depth) * sizeof(float));
    memset(u->dv, 0, (size_t)(b->block * j->width) * sizeof(float));
}

/* The stage's rows in pairs; false when some number is below 2^-126. */
static bool
stage_pairs(const unit *u, int64_t depth, float *to)
{
    uint16_t *half = (uint16_t *)(void *)u->half;
    mr_gemm_side side = {half, MR_BFLOAT16, u->n, depth, 1};

    for (int64_t i = 0; i < u->n; i++)
        if (!mr__attend_narrow(u->stage + i * depth, depth, half + i * depth))
            return false;
    return side_pairs(&side, u->b->high, depth, to);
}

/* The tile's rows of n elements of x, where they lie; false when they are of
 * several heads. */
static bool
tile_side(const unit *u, const mr_kernel_view *x, int64_t n, mr_gemm_side *flat,
          mr_gemm_side *deep)
{
    const mr_attend_job *j = &u->b->j;
    int64_t head = u->tile0 / j->lq;
    const char *at;

    if ((u->tile0 + u->n - 1) / j->lq != head)
        return false;
    head += u->item % j->heads * j->group;
    at = place(x, u->item / j->heads * x->stride[0] + head * x->stride[1] +
                      u->tile0 % j->lq * x->stride[2]);
    *flat = (mr_gemm_side){at, j->dtype, u->n, x->stride[2], x->stride[3]};
    *deep = (mr_gemm_side){at, j->dtype, n, x->stride[3], x->stride[2]};
    return true;
}

/* A tile's rows for the first of their products, in pairs if `pairs`; false
 * when they must not be. */
static bool
rows_pack(const unit *u, const mr_gemm_side *flat, bool staged, int64_t depth,
          bool pairs, float *to)
{
    if (pairs)
        return staged ? stage_pairs(u, depth, to)
                      : side_pairs(flat, u->b->high, depth, to);
    side_pack(flat, u->b->high, depth, to);
    return true;
}

/* Queries that are scaled late are packed from where they lie; the second side
 * has them scaled in any case. */
static void
tile_queries(unit *u)
{
    const back *b = u->b;
    const mr_attend_job *j = &b->j;
    mr_gemm_side flat, deep;
    bool staged = !j->late || !tile_side(u, &j->q, j->depth, &flat, &deep);

    deep = (mr_gemm_side){u->stage, MR_FLOAT32, j->depth, 1, j->depth};
    if (staged)
        flat = (mr_gemm_side){u->stage, MR_FLOAT32, u->n, j->depth, 1};
    for (int64_t i = 0; i < u->n; i++)
        if (staged && j->late)
            mr__attend_row(j, &j->q, u->item, u->tile0 + i, j->depth,
                           u->stage + i * j->depth);
        else if (staged || b->want != WANT_Q)
            mr__attend_query(j, u->item, u->tile0 + i, u->stage + i * j->depth);
    if (!rows_pack(u, &flat, staged, j->depth, u->k_pairs, u->q)) {
        block_k(u, false);
        (void)rows_pack(u, &flat, staged, j->depth, false, u->q);
    }
    if (b->want == WANT_Q)
        return;
    for (int64_t i = 0; staged && j->late && i < u->n * j->depth; i++)
        u->stage[i] *= j->scale;
    side_pack(&deep, b->high, u->n, u->q_deep);
}

static void
tile_gradients(unit *u)
{
    const back *b = u->b;
    const mr_attend_job *j = &b->j;
    mr_gemm_side flat, deep;
    bool staged = !tile_side(u, &b->g, j->width, &flat, &deep);

    if (staged) {
        flat = (mr_gemm_side){u->stage, MR_FLOAT32, u->n, j->width, 1};
        deep = (mr_gemm_side){u->stage, MR_FLOAT32, j->width, 1, j->width};
    }
    for (int64_t i = 0; staged && i < u->n; i++)
        mr__attend_row(j, &b->g, u->item, u->tile0 + i, j->width,
                       u->stage + i * j->width);
    if (!rows_pack(u, &flat, staged, j->width, u->v_pairs, u->g)) {
        block_v(u, false);
        (void)rows_pack(u, &flat, staged, j->width, false, u->g);
    }
    if (b->want != WANT_Q)
        side_pack(&deep, b->high, u->n, u->g_deep);
}

/* A tile's rows for both of their products, in pieces as they came. */
static void
tile_pieces(unit *u, const mr_kernel_view *x, int64_t n, float *rows,
            float *deeper)
{
    const back *b = u->b;
    mr_dtype t = b->j.dtype;
    mr_gemm_side flat, deep;

    if (!tile_side(u, x, n, &flat, &deep)) {
        const void *dense = t == MR_FLOAT32 ? u->stage : u->half;

        for (int64_t i = 0; i < u->n; i++)
            mr__attend_row(&b->j, x, u->item, u->tile0 + i, n,
                           u->stage + i * n);
        if (t != MR_FLOAT32)
            mr__tier()->casts->cast[MR_FLOAT32][t](u->half, u->stage, u->n * n);
        flat = (mr_gemm_side){dense, t, u->n, n, 1};
        deep = (mr_gemm_side){dense, t, n, 1, n};
    }
    side_pieces(&flat, false, n, rows);
    if (b->want != WANT_Q)
        side_pieces(&deep, false, u->n, deeper);
}

static void
tile_pack(unit *u)
{
    const mr_attend_job *j = &u->b->j;

    if (u->b->pieces) {
        tile_pieces(u, &j->q, j->depth, u->q, u->q_deep);
        tile_pieces(u, &u->b->g, j->width, u->g, u->g_deep);
        return;
    }
    tile_queries(u);
    tile_gradients(u);
}

/* ---- a tile of rows by KEYS keys -------------------------------------------
 */

/* The mask of the tile's rows for n keys from `key` on, as its scores lie. */
static void
tile_mask(unit *u, int64_t key, int64_t n, mr_attend_masks *masks)
{
    const back *b = u->b;
    const mr_attend_job *j = &b->j;
    mr_dtype m = j->mask->dtype;
    int64_t size = mr__dtype_size(m);
    bool half = m == MR_FLOAT16 || m == MR_BFLOAT16;
    char *tile = (char *)(half ? u->mask + b->tile * b->cols : u->mask);

    for (int64_t i = 0, run; i < u->n; i += run) {
        int64_t left = j->lq - (u->tile0 + i) % j->lq;
        const char *from = mr__attend_mask(j, u->item, u->tile0 + i);

        run = left < u->n - i ? left : u->n - i;
        mr__copy_strided(
            (size_t)size, 2, (int64_t[]){run, n}, tile + i * b->cols * size,
            (int64_t[]){b->cols * size, size},
            from + key * j->mask_stride[3] * size,
            (int64_t[]){j->mask_stride[2] * size, j->mask_stride[3] * size});
    }
    if (half)
        mr__tier()->casts->cast[m][MR_FLOAT32](u->mask, tile, u->n * b->cols);
    masks->keep = m == MR_BOOL ? (const uint8_t *)tile : NULL;
    masks->add = m == MR_BOOL ? NULL : u->mask;
}

/* Limits of the rows among the keys from `key` on; NULL when all see all n. */
static const float *
tile_limits(const unit *u, int64_t key, int64_t n, float *limit)
{
    const mr_attend_job *j = &u->b->j;
    bool any = false;

    if (!j->causal)
        return NULL;
    for (int64_t i = 0; i < u->n; i++) {
        int64_t l = mr__attend_limit(j, u->tile0 + i) - key;

        any = any || l < n - 1;
        limit[i] = (float)(l < -1 ? -1 : l < KEYS ? l : KEYS);
    }
    return any ? limit : NULL;
}

/* Does a row of the tile see a key from `key` on?  One that sees none at all
 * weighs all alike. */
static bool
tile_sees(const unit *u, int64_t key)
{
    const back *b = u->b;
    const float *top = b->top + u->item * b->j.rows + u->tile0;

    if (!b->j.causal)
        return true;
    for (int64_t i = 0; i < u->n; i++)
        if (mr__attend_limit(&b->j, u->tile0 + i) >= key ||
            top[i] <= MR_ATTEND_MASKED)
            return true;
    return false;
}

static void
product_of(const float *a, int64_t m, const float *b, int64_t n, int64_t depth,
           float *c, int64_t c_row, bool add, bool pairs)
{
    mr_gemm_chunk g = {.m = m,
                       .n = n,
                       .depth = depth,
                       .a = a,
                       .b = b,
                       .c = c,
                       .c_row = c_row,
                       .form = pairs ? MR_GEMM_IN_PAIRS : MR_GEMM_FLOATS,
                       .dtype = MR_FLOAT32,
                       .first = !add,
                       .last = true};

    if (m > 0 && n > 0)
        mr__gemm_block(&g, 0, (m - 1) / mr__gemm_rows() + 1, 0,
                       (n - 1) / mr__gemm_cols() + 1);
}

static void
product(const float *a, int64_t m, const float *b, int64_t n, int64_t depth,
        float *c, int64_t c_row, bool add)
{
    product_of(a, m, b, n, depth, c, c_row, add, false);
}

/* Rows of the tile, whole panels of them, that see no key from `key` on.  A row
 * that sees none at all weighs all alike. */
static int64_t
rows_blind(const unit *u, int64_t key)
{
    const back *b = u->b;
    const float *top = b->top + u->item * b->j.rows + u->tile0;
    int64_t n = 0;

    while (b->j.causal && n < u->n &&
           mr__attend_limit(&b->j, u->tile0 + n) < key &&
           top[n] > MR_ATTEND_MASKED)
        n++;
    return b->pieces ? n / STEP * STEP : n / b->high * b->high;
}

/* c, a column a key, += a b: a's lanes packed over all rows of the tile, b the
 * rows from `first` on. */
static void
keys_add(const unit *u, const float *a, int64_t lanes, const float *b,
         int64_t first, float *c)
{
    int64_t high = u->b->high, cols = u->b->cols;

    for (int64_t i = 0; i < lanes; i += high)
        product(a + i * u->n + first * high,
                lanes - i < high ? lanes - i : high, b + first * cols, cols,
                u->n - first, c + i * cols, cols, true);
}

/* What the masks drop of a panel, from row `first` of the tile on. */
static mr_attend_masks
panel_masks(unit *u, int64_t at, int64_t n, int64_t first, float *limit)
{
    const back *b = u->b;
    mr_attend_masks masks = {0};

    if (b->j.mask)
        tile_mask(u, u->key0 + at, n, &masks);
    masks.limit = tile_limits(u, u->key0 + at, n, limit);
    if (masks.limit)
        masks.limit += first;
    if (masks.keep)
        masks.keep += first * b->cols;
    if (masks.add)
        masks.add += first * b->cols;
    return masks;
}

/* c = a b, or c += a b, of one panel of b in pieces. */
static void
pieces_product(const float *a, int64_t m, const float *b, int64_t n,
               int64_t depth, int pieces, float *c, int64_t c_row, bool add)
{
    mr_gemm_chunk g = {.m = m,
                       .n = n,
                       .depth = depth,
                       .pieces = pieces,
                       .a = a,
                       .b = b,
                       .c = c,
                       .c_row = c_row,
                       .form = MR_GEMM_IN_PIECES,
                       .dtype = MR_FLOAT32,
                       .first = !add,
                       .last = true};

    mr__gemm_block(&g, 0, (m - 1) / MR_GEMM_PIECES_LANES + 1, 0, 1);
}

/* keys_add in pieces. */
static void
keys_add_pieces(const unit *u, const float *a, int64_t lanes, const float *b,
                int64_t first, float *c)
{
    enum { LANES = MR_GEMM_PIECES_LANES };
    int64_t all = steps(u->b, u->n) * LANES, from = steps(u->b, first) * LANES;
    int pieces = u->b->j.pieces;

    pieces = pieces == 1 ? MR_GEMM_1_BY_2 : pieces;
    for (int64_t i = 0; i < lanes; i += LANES, a += all)
        pieces_product(a + from, lanes - i < LANES ? lanes - i : LANES, b,
                       LANES, steps(u->b, u->n - first), pieces, c + i * LANES,
                       LANES, true);
}

/* panel_run in pieces: keys at ... at + n are step number `step` of all_keys
 * for the gradient by queries. */
static void
panel_pieces(unit *u, int64_t at, int64_t n, int64_t step, int64_t all_keys)
{
    enum { LANES = MR_GEMM_PIECES_LANES };
    const back *b = u->b;
    const mr_attend_job *j = &b->j;
    int64_t row = u->item * j->rows + u->tile0;
    int64_t first = rows_blind(u, u->key0 + at), left = u->n - first;
    int64_t each = weight_steps(b, STEP) * LANES;
    int64_t panel = weight_steps(b, all_keys) * LANES;
    float limit[ROWS], *turned = u->turned + step * each;
    mr_attend_pieces to = {u->p_right, u->ds_right,
                           turned + first / LANES * panel, panel};
    mr_attend_masks masks;

    for (int64_t r = 0; r < first; r += LANES)
        memset(turned + r / LANES * panel, 0, (size_t)each * sizeof *turned);
    if (left == 0)
        return;
    pieces_product(u->q + first * u->k_steps, left, u->k + at * u->k_steps,
                   LANES, u->k_steps,
                   j->pieces == 3 ? MR_GEMM_3_TURNED : j->pieces, u->s, LANES,
                   false);
    pieces_product(u->g + first * u->v_steps, left, u->v + at * u->v_steps,
                   LANES, u->v_steps, j->pieces, u->ds, LANES, false);
    masks = panel_masks(u, at, n, first, limit);
    b->tier->back_split[mr__attend_kind(j->dtype)](
        u->s, u->ds, left, n, &masks, j->scale, b->top + row + first,
        b->scale + row + first, b->dot + row + first, &to);
    if (b->want == WANT_Q)
        return;
    keys_add_pieces(u, u->g_deep, j->width, u->p_right, first,
                    u->dv + at * j->width);
    keys_add_pieces(u, u->q_deep, j->depth, u->ds_right, first,
                    u->dk + at * j->depth);
}

/* Keys of the block from `at` on, one panel: weights and slopes of its scores,
 * and what these add to dk and dv. */
static void
panel_run(unit *u, int64_t at, float *s, float *ds, int64_t n)
{
    const back *b = u->b;
    const mr_attend_job *j = &b->j;
    int64_t row = u->item * j->rows + u->tile0;
    int64_t first = rows_blind(u, u->key0 + at), left = u->n - first;
    mr_attend_masks masks;
    float limit[ROWS];

    memset(ds, 0, (size_t)(first * b->cols) * sizeof *ds);
    if (left == 0)
        return;
    product_of(u->q + first * u->k_steps, left, u->k + at * u->k_steps, b->cols,
               u->k_steps, s + first * b->cols, b->cols, false, u->k_pairs);
    product_of(u->g + first * u->v_steps, left, u->v + at * u->v_steps, b->cols,
               u->v_steps, ds + first * b->cols, b->cols, false, u->v_pairs);
    masks = panel_masks(u, at, n, first, limit);
    b->tier->back(s + first * b->cols, ds + first * b->cols, b->cols, left,
                  b->cols, &masks, j->late ? j->scale : 1.0F,
                  b->top + row + first, b->scale + row + first,
                  b->dot + row + first);
    if (b->want == WANT_Q)
        return;
    keys_add(u, u->g_deep, j->width, s, first, u->dv + at * j->width);
    keys_add(u, u->q_deep, j->depth, ds, first, u->dk + at * j->depth);
}

/* dq += slopes of n keys from `at` on times these. */
static void
queries_add(unit *u, int64_t at, int64_t n, float *dq)
{
    const back *b = u->b;
    int64_t depth = b->j.depth;

    for (int64_t k = 0; k < n; k += b->cols) {
        int64_t m = n - k < b->cols ? n - k : b->cols;
        mr_gemm_side side = {u->ds + k * b->tile, MR_FLOAT32, u->n, b->cols, 1};

        for (int64_t p = 0; p * b->high < u->n; p++)
            mr__gemm_pack(&side, (int)b->high, p, 0, m,
                          u->turned + p * b->high * n + k * b->high);
    }
    product(u->turned, u->n, u->k_deep + at * b->k_panels * b->cols, depth, n,
            dq, depth, true);
}

/* The same in pieces. */
static void
queries_add_pieces(const unit *u, int64_t at, int64_t n, float *dq)
{
    enum { LANES = MR_GEMM_PIECES_LANES };
    const back *b = u->b;
    int64_t depth = b->j.depth;
    const float *k =
        u->k_deep + at / KEYS * steps(b, KEYS) * b->k_panels * b->cols;
    int pieces = b->j.pieces == 1 ? MR_GEMM_2_BY_1 : b->j.pieces;

    for (int64_t i = 0; i < depth; i += LANES, k += steps(b, n) * LANES)
        pieces_product(u->turned, u->n, k,
                       depth - i < LANES ? depth - i : LANES,
                       weight_steps(b, n), pieces, dq + i, depth, true);
}

/* KEYS of the block from `at` on, of which n are there. */
static void
keys_run(unit *u, int64_t at, int64_t n, float *dq)
{
    const back *b = u->b;

    for (int64_t k = 0; k < n; k += b->cols) {
        int64_t m = n - k < b->cols ? n - k : b->cols;

        if (b->pieces)
            panel_pieces(u, at + k, m, k / STEP, n);
        else
            panel_run(u, at + k, u->s + k * b->tile, u->ds + k * b->tile, m);
    }
    if (b->want == WANT_KV)
        return;
    if (b->pieces)
        queries_add_pieces(u, at, n, dq);
    else
        queries_add(u, at, n, dq);
}

static void
tile_run(unit *u, float *dq)
{
    bool packed = false;

    for (int64_t at = 0; at < u->n_keys; at += KEYS) {
        int64_t n = u->n_keys - at < KEYS ? u->n_keys - at : KEYS;

        if (!tile_sees(u, u->key0 + at))
            continue;
        if (!packed)
            tile_pack(u);
        packed = true;
        keys_run(u, at, n, dq);
    }
}

/* ---- a unit ----------------------------------------------------------------
 */

/* Sums that lie turned, a column a key, times `by`, to rows of the output. */
static void
keys_store(unit *u, float *sums, int64_t n_cols, float by, char *to)
{
    const back *b = u->b;
    mr_dtype t = b->j.dtype;
    int64_t size = mr__dtype_size(t);

    to += (u->item * b->j.lk + u->key0) * n_cols * size;
    for (int64_t k = 0; k < u->n_keys; k += b->cols) {
        int64_t n = u->n_keys - k < b->cols ? u->n_keys - k : b->cols;
        void *rows = t == MR_FLOAT32 ? (void *)to : u->stage;
        float *x = sums + k * n_cols;

        for (int64_t i = 0; by != 1.0F && i < b->cols * n_cols; i++)
            x[i] *= by;

        mr__tier()->moves->transpose[2](rows, n_cols * 4, x, b->cols * 4, n,
                                        n_cols);
        if (t != MR_FLOAT32)
            mr__tier()->casts->cast[MR_FLOAT32][t](to, rows, n * n_cols);
        to += n * n_cols * size;
    }
}

/* The scale of the scores, and the rounding of halves. */
static void
queries_store(const unit *u, float *dq, char *to)
{
    const mr_attend_job *j = &u->b->j;
    int64_t n = (u->row1 - u->row0) * j->depth;

    for (int64_t i = 0; i < n; i++)
        dq[i] *= j->scale;
    if (j->dtype != MR_FLOAT32)
        mr__tier()->casts->cast[MR_FLOAT32][j->dtype](to, dq, n);
}

static void
unit_run(unit *u)
{
    const back *b = u->b;
    const mr_attend_job *j = &b->j;
    char *to = b->dq + (u->item * j->rows + u->row0) * j->depth *
                           mr__dtype_size(j->dtype);
    float *dq = j->dtype == MR_FLOAT32 ? (float *)(void *)to : u->dq;

    if (b->want != WANT_KV)
        memset(dq, 0, (size_t)((u->row1 - u->row0) * j->depth) * sizeof *dq);
    for (int64_t i = u->block0; i < u->block1; i++) {
        u->key0 = i * b->block;
        u->n_keys = j->lk - u->key0 < b->block ? j->lk - u->key0 : b->block;
        block_pack(u);
        for (u->tile0 = u->row0; u->tile0 < u->row1; u->tile0 += b->tile) {
            u->n = u->row1 - u->tile0 < b->tile ? u->row1 - u->tile0 : b->tile;
            tile_run(u, dq + (u->tile0 - u->row0) * j->depth);
        }
        if (b->want != WANT_Q) {
            keys_store(u, u->dk, j->depth, b->pieces ? j->scale : 1.0F, b->dk);
            keys_store(u, u->dv, j->width, 1.0F, b->dv);
        }
    }
    if (b->want != WANT_KV)
        queries_store(u, dq, to);
}

static int64_t
n_runs(const back *b)
{
    return b->want == WANT_Q ? (b->j.rows - 1) / b->run + 1 : 1;
}

static int64_t
n_spans(const back *b)
{
    return b->want == WANT_KV ? b->n_blocks : 1;
}

static void
back_unit(const void *ctx, int64_t number, char *slot)
{
    const back *b = ctx;
    unit u = {.b = b, .item = number % b->items, .block1 = b->n_blocks};
    int64_t part = number / b->items;

    u.row1 = b->j.rows;
    if (b->want == WANT_Q) { /* the last rows first: causal ones are longer */
        u.row0 = (n_runs(b) - 1 - part) * b->run;
        u.row1 = u.row0 + b->run < u.row1 ? u.row0 + b->run : u.row1;
    } else if (b->want == WANT_KV) {
        u.block0 = part;
        u.block1 = part + 1;
    }
    slot_floats(b, (float *)(void *)slot, &u);
    unit_run(&u);
}

static void
back_pass(back *b, int want, char *workspace)
{
    b->want = want;
    mr__cpu_units(b->j.n_slots, b->items * n_runs(b) * n_spans(b), workspace,
                  slot_bytes(b), back_unit, b);
}

/* ---- the row of the table --------------------------------------------------
 */

static bool
back_empty(const back *b)
{
    return b->items * b->j.rows * b->j.lk * b->j.width == 0;
}

size_t
mr__cpu_attention_back_workspace(const mr_kernel_args *a)
{
    size_t most, stats;
    mr_attend_job j;
    back b;

    back_plan(a, &b);
    if (back_empty(&b))
        return 0;
    stats_job(&b, &j);
    most = (size_t)b.j.n_slots * slot_bytes(&b);
    stats = mr__attend_tiles_bytes(&j);
    most = most > stats ? most : stats;
    stats = (size_t)b.j.n_slots * dots_bytes(&b);
    most = most > stats ? most : stats;
    stats = (size_t)b.j.n_slots * fits_bytes(&b);
    most = most > stats ? most : stats;
    return (size_t)(3 * rows_floats(&b)) * sizeof(float) + most;
}

static void
outputs_clear(const mr_kernel_args *a)
{
    for (int i = 0; i < 4; i++)
        if (a->out[i].size > 0)
            memset(a->out[i].data, 0,
                   (size_t)a->out[i].size *
                       (size_t)mr__dtype_size(a->out[i].dtype));
}

mr_code
mr__cpu_attention_back(const mr_kernel_args *a)
{
    char *workspace = a->workspace;
    mr_attend_job stats;
    int64_t n;
    back b;

    back_plan(a, &b);
    if (back_empty(&b)) {
        outputs_clear(a);
        return MR_OK;
    }
    n = rows_floats(&b);
    b.top = (float *)(void *)workspace;
    b.scale = b.top + n;
    b.dot = b.scale + n;
    workspace += (size_t)(3 * n) * sizeof(float);
    b.pieces = b.pieces && back_fits(&b, workspace);
    stats_job(&b, &stats);
    mr__attend_tiles(&stats, workspace);
    mr__cpu_units(b.j.n_slots, b.items * ((b.j.rows - 1) / ROWS + 1), workspace,
                  dots_bytes(&b), dots_unit, &b);
    mr__cpu_for(b.items * b.j.group,
                mr__cpu_grain(10.0 * (double)(b.j.sinks ? b.j.lq : 1)),
                sinks_piece, &b);
    if (b.want) {
        back_pass(&b, WANT_Q | WANT_KV, workspace);
        return MR_OK;
    }
    back_pass(&b, WANT_Q, workspace);
    back_pass(&b, WANT_KV, workspace);
    return MR_OK;
}

/* Six products where attention has two. */
double
mr__cpu_attention_back_cost(const mr_kernel_args *a)
{
    return 3.0 * mr__cpu_attention_cost(a);
}
