/* SPDX-License-Identifier: Apache-2.0
 *
 * attend.c -- scaled dot-product attention that never holds the scores.
 *
 * A unit of work is a block of rows of one key head; a tile of KEYS keys and
 * their values is packed, and each panel of queries takes it: keys times
 * queries gives scores with a column for each query, kernels/attend.h turns
 * them to weights in place, and values times weights adds to the panel's sums.
 * Both products are the packed kernel's, and the weights need no packing.  A
 * thread holds one tile, its block of queries and their sums.
 *
 * Where there is a matrix unit, queries, keys and values are split into pieces
 * (kernels/gemm.h), and weights leave the step in pieces.  What does not fit
 * goes as floats: a panel of queries, a tile of keys or one of values, each by
 * itself, so results are those of any cut into blocks.
 *
 * A panel of which some rows do not fit goes both ways, and each row is taken
 * from its own: no row has other bits for what the others hold.
 *
 * A causal block ends with the last key that one of its rows sees.  A row that
 * its mask drops as a whole takes the mean of all values: then the keys that
 * were left out follow (rest_run).  Pairs that a mask drops add nothing: where
 * values are infinite or none, attend_odd.c sees to it.
 * Called by: device.c.  Calls: kernels/attend.h, kernels/gemm.h,
 * attend_few.c, attend_odd.c, the pool.
 */
#include "cpu/attend.h"

#include <math.h>
#include <string.h>

#include "base/integers.h"
#include "base/pool.h"
#include "cpu/product.h"
#include "kernels/copy.h"
#include "kernels/tier/tier.h"
#include "ops/params.h"

enum {
    KEYS = 144,        /* a multiple of every tier's rows */
    PIECES_KEYS = 256, /* of the steps of the matrix unit */
    PART = 96,         /* of both */
    MAX_ROWS = 512,
    PIECES_ROWS = 1024,
    MIN_ROWS = 32,
    BLOCK_FLOATS = 131072,        /* of queries and sums of a block */
    PIECES_FLOATS = 212992,       /* 832 KB: the second level has 2 MB then */
    MAX_PANELS = PIECES_ROWS / 4, /* of the narrowest */
    MAX_SLOTS = 256,
    RUN = 512
};

/* ---- reading the operands ---------------------------------------------------
 */

void
mr__attend_job(const mr_kernel_args *a, mr_attend_job *j)
{
    const mr_attention_params *p = a->params;
    int next = 3;

    *j = (mr_attend_job){.q = a->in[0],
                         .k = a->in[1],
                         .v = a->in[2],
                         .to = a->out[0].data,
                         .dtype = a->out[0].dtype,
                         .scale = (float)p->scale,
                         .causal = p->causal};
    j->batch = j->q.dim[0];
    j->heads = j->k.dim[1];
    j->group = j->q.dim[1] / j->heads;
    j->lq = j->q.dim[2];
    j->lk = j->k.dim[2];
    j->depth = j->q.dim[3];
    j->width = j->v.dim[3];
    j->rows = j->group * j->lq;
    mr__attend_by_vectors(j);
    /* what is split into pieces is as it came */
    j->pieces = mr__gemm_pieces(j->dtype);
    j->late = j->late || j->pieces > 0;
    if (p->has_mask) {
        j->mask = &a->in[next++];
        for (int i = 0; i < 4; i++)
            j->mask_stride[i] = j->mask->dim[i] == 1 ? 0 : j->mask->stride[i];
    }
    if (p->has_sinks) {
        j->sinks = &a->in[next];
        for (int i = 0; i < 2; i++)
            j->sink_stride[i] = j->sinks->dim[i] == 1 ? 0 : j->sinks->stride[i];
    }
    j->n_slots = mr__pool_threads();
    j->n_slots = j->n_slots < MAX_SLOTS ? j->n_slots : MAX_SLOTS;
}

void
mr__attend_by_vectors(mr_attend_job *j)
{
    int exponent;

    /* bfloat16 times a power of two still is bfloat16, which goes in pairs;
     * then the same in every tier */
    j->late = j->dtype == MR_BFLOAT16 && frexpf(j->scale, &exponent) != 0.5F;
    j->pieces = 0;
}

int64_t
mr__attend_offset(const mr_kernel_view *x, int64_t item, int64_t heads)
{
    return item / heads * x->stride[0] + item % heads * x->stride[1];
}

static const void *
element(const void *data, mr_dtype t, int64_t i)
{
    return (const char *)data + i * mr__dtype_size(t);
}

void
mr__attend_load(float *to, const void *data, mr_dtype t, int64_t at,
                int64_t stride, int64_t n)
{
    const mr_tier *tier = mr__tier();
    int64_t size = mr__dtype_size(t);
    const void *from = element(data, t, at);
    uint16_t dense[RUN];

    if (t == MR_FLOAT32) {
        if (stride == 1)
            memcpy(to, from, (size_t)n * sizeof *to);
        else
            tier->moves->gather[2](to, from, stride * size, n);
        return;
    }
    for (int64_t i = 0, m; i < n; i += m) {
        m = n - i < RUN ? n - i : RUN;
        from = element(data, t, at + i * stride);
        if (stride != 1) {
            tier->moves->gather[1](dense, from, stride * size, m);
            from = dense;
        }
        tier->casts->cast[t][MR_FLOAT32](to + i, from, m);
    }
}

void
mr__attend_row(const mr_attend_job *j, const mr_kernel_view *x, int64_t item,
               int64_t r, int64_t n, float *to)
{
    int64_t head = item % j->heads * j->group + r / j->lq;
    int64_t at = item / j->heads * x->stride[0] + head * x->stride[1] +
                 r % j->lq * x->stride[2];

    mr__attend_load(to, x->data, j->dtype, at, x->stride[3], n);
}

void
mr__attend_query(const mr_attend_job *j, int64_t item, int64_t r, float *to)
{
    mr__attend_row(j, &j->q, item, r, j->depth, to);
    for (int64_t i = 0; i < j->depth; i++)
        to[i] *= j->scale;
}

bool
mr__attend_narrow(const float *from, int64_t n, uint16_t *to)
{
    uint32_t lost = 0;

    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        uint16_t half;

        memcpy(&bits, from + i, sizeof bits);
        lost |=
            (bits & 0xFFFF) | (uint32_t)((bits & 0x7FFFFFFF) - 1 < 0x7FFFFF);
        half = (uint16_t)(bits >> 16);
        memcpy(to + i, &half, sizeof half);
    }
    return lost == 0;
}

bool
mr__attend_pack(const mr_gemm_side *s, bool right, int64_t depth,
                mr_gemm_form form, float *to)
{
    int64_t width = right ? mr__gemm_form_cols(form) : mr__gemm_form_rows(form);
    int64_t each = width * mr__gemm_steps(form, s->dtype, depth);
    bool fits = true;

    for (int64_t p = 0, n; p * width < s->lanes; p += n) {
        n = (s->lanes - 1) / width + 1 - p;
        n = n < MR_GEMM_MAX_PANELS ? n : MR_GEMM_MAX_PANELS;
        fits &= mr__gemm_pack_panels(s, right, p, n, 0, depth, form,
                                     to + p * each, each);
        if (!fits && form == MR_GEMM_IN_PAIRS)
            break;
    }
    return fits;
}

uint32_t
mr__attend_unfit(const mr_gemm_side *s, mr_gemm_range r, int64_t depth)
{
    mr_gemm_range least = {r.least, r.least};
    uint32_t unfit = 0;

    /* its least number alone would do */
    if (mr__gemm_range_fits(s->dtype, r) &&
        mr__gemm_range_fits(s->dtype, least))
        return 0;
    for (int64_t i = 0; i < s->lanes; i++)
        if (!mr__gemm_range_fits(s->dtype, mr__row_range(s, i, depth)))
            unfit |= UINT32_C(1) << i;
    return unfit;
}

mr_gemm_kind
mr__attend_kind(mr_dtype t)
{
    return t == MR_FLOAT32   ? MR_GEMM_FLOAT32
           : t == MR_FLOAT16 ? MR_GEMM_FLOAT16
                             : MR_GEMM_BFLOAT16;
}

const void *
mr__attend_mask(const mr_attend_job *j, int64_t item, int64_t r)
{
    int64_t head = item % j->heads * j->group + r / j->lq;

    return element(j->mask->data, j->mask->dtype,
                   item / j->heads * j->mask_stride[0] +
                       head * j->mask_stride[1] +
                       r % j->lq * j->mask_stride[2]);
}

float
mr__attend_sink(const mr_attend_job *j, int64_t item, int64_t r)
{
    int64_t head = item % j->heads * j->group + r / j->lq;
    float x = -INFINITY;

    if (j->sinks)
        mr__attend_load(&x, j->sinks->data, j->sinks->dtype,
                        item / j->heads * j->sink_stride[0] +
                            head * j->sink_stride[1],
                        1, 1);
    return x;
}

void
mr__attend_store(const mr_attend_job *j, int64_t item, int64_t r, int64_t n,
                 float *from)
{
    char *to =
        j->to + (item * j->rows + r) * j->width * mr__dtype_size(j->dtype);

    if (j->dtype == MR_FLOAT32)
        memcpy(to, from, (size_t)(n * j->width) * sizeof *from);
    else
        mr__tier()->casts->cast[MR_FLOAT32][j->dtype](to, from, n * j->width);
}

/* ---- tiles
 * -------------------------------------------------------------------- */

typedef struct tiles {
    const mr_attend_job *j;
    const mr_attend_tier *tier;
    mr_attend_split_fn *split;  /* where the matrix unit is used */
    mr_gemm_form form;          /* of what may have it */
    int64_t cols;               /* of a panel of queries in any form */
    int64_t keys;               /* of a tile */
    int64_t block, n_blocks;    /* rows of a unit; units of an item */
    int64_t panels;             /* of a block */
    int64_t q_floats, o_floats; /* of a panel */
    int64_t k_floats, v_floats, s_floats, w_floats;
} tiles;

/* A unit at work. */
typedef struct block {
    const tiles *t;
    int64_t item, row0, n_rows, n_panels;
    int64_t key0, n_keys; /* the tile */
    int64_t first, n;     /* what a panel takes of it */
    bool k_fits, v_fits;  /* the form of the plan; else they are floats */
    bool k_packed;        /* in k_form */
    bool v_odd; /* some values, of keys that are `odd`, are left out */
    bool odd[PIECES_KEYS];
    mr_gemm_form k_form;
    mr_gemm_form q_form[MAX_PANELS]; /* of a panel of queries, as it lies */
    bool q_fits[MAX_PANELS];
    uint32_t unfit[MAX_PANELS]; /* rows that are no pieces, bit i the ith */
    bool again;                 /* these alone, in panels that had others */
    bool begun[MAX_PANELS];     /* there are sums */
    bool odd_sums[MAX_PANELS];  /* with values of `odd` keys */
    int64_t end[MAX_PANELS];    /* of the last keys taken */
    float *q, *o, *k, *v, *s, *w, *mask;
    float *top, *sum; /* of all rows of the block */
} block;

/* Floats of so many lanes of a side, whichever form they have in the end. */
static int64_t
side_floats(const tiles *t, int64_t lanes, int64_t depth)
{
    int64_t floats = mr__attend_up(lanes, mr__gemm_rows()) * depth, other = 0;

    if (t->form == MR_GEMM_IN_PIECES)
        other = mr__attend_up(lanes, MR_GEMM_PIECES_LANES) *
                mr__gemm_steps(t->form, t->j->dtype, depth);
    return mr__attend_lines(mr__max(floats, other));
}

/* As many rows as fit the cache, in blocks alike; shorter ones where threads
 * would have few.  The size of a block shows in no result. */
static void
block_plan(tiles *t)
{
    const mr_attend_job *j = t->j;
    bool pieces = t->form == MR_GEMM_IN_PIECES;
    int64_t items = j->batch * j->heads, per = j->width + 1, n;
    int64_t most = pieces ? PIECES_ROWS : MAX_ROWS;

    per +=
        mr__gemm_steps(pieces ? t->form : MR_GEMM_FLOATS, j->dtype, j->depth);
    n = (pieces ? PIECES_FLOATS : BLOCK_FLOATS) / per / MIN_ROWS * MIN_ROWS;
    n = n < MIN_ROWS ? MIN_ROWS : n > most ? most : n;
    n = (j->rows - 1) / n + 1;
    t->block = mr__attend_up((j->rows - 1) / n + 1, MIN_ROWS);
    while (t->block > MIN_ROWS && items * (j->rows / t->block) < 3 * j->n_slots)
        t->block -= MIN_ROWS;
    t->n_blocks = (j->rows - 1) / t->block + 1;
}

static void
tiles_plan(const mr_attend_job *j, tiles *t)
{
    *t = (tiles){
        .j = j, .tier = mr__attend(), .cols = mr__gemm_cols(), .keys = KEYS};
    if (j->pieces > 0) {
        t->form = MR_GEMM_IN_PIECES;
        t->keys = PIECES_KEYS;
        t->split = t->tier->split[mr__attend_kind(j->dtype)];
        t->w_floats = t->keys * t->cols / 2 * MR_ATTEND_PIECES(j->pieces);
    } else if (mr__gemm_pairs(j->dtype)) {
        t->form = MR_GEMM_IN_PAIRS;
    }
    block_plan(t);
    t->panels = (t->block - 1) / t->cols + 1;
    t->q_floats = side_floats(t, t->cols, j->depth);
    t->o_floats = mr__attend_lines(t->cols * j->width);
    t->s_floats = t->keys * t->cols;
    t->v_floats = side_floats(t, j->width, t->keys);
    /* dense queries before they are turned; the output's rows */
    t->k_floats =
        mr__max(side_floats(t, t->keys, j->depth),
                mr__attend_lines(t->cols * mr__max(j->depth, j->width)));
}

static int64_t
tiles_slot_floats(const tiles *t)
{
    return t->panels * (t->q_floats + t->o_floats) + t->k_floats + t->v_floats +
           t->s_floats + t->w_floats + (t->j->mask ? 2 * t->s_floats : 0) +
           2 * mr__attend_lines(t->panels * t->cols);
}

static void
block_open(const tiles *t, int64_t unit, char *slot, block *b)
{
    const mr_attend_job *j = t->j;

    /* the last rows of an item first: in causal attention they take longest */
    *b = (block){.t = t, .item = unit % (j->batch * j->heads)};
    b->row0 = (t->n_blocks - 1 - unit / (j->batch * j->heads)) * t->block;
    b->n_rows = j->rows - b->row0 < t->block ? j->rows - b->row0 : t->block;
    b->n_panels = (b->n_rows - 1) / t->cols + 1;
    b->k = (float *)(void *)slot;
    b->v = b->k + t->k_floats;
    b->s = b->v + t->v_floats;
    b->w = b->s + t->s_floats;
    b->top = b->w + t->w_floats;
    b->sum = b->top + mr__attend_lines(t->panels * t->cols);
    b->q = b->sum + mr__attend_lines(t->panels * t->cols);
    b->o = b->q + t->panels * t->q_floats;
    b->mask = b->o + t->panels * t->o_floats;
}

static float *
panel_queries(const block *b, int64_t panel)
{
    return b->q + panel * b->t->q_floats;
}

static float *
panel_sums(const block *b, int64_t panel)
{
    return b->o + panel * b->t->o_floats;
}

/* Rows of a panel that there are. */
static int64_t
panel_rows(const block *b, int64_t panel)
{
    int64_t left = b->n_rows - panel * b->t->cols;

    return left < b->t->cols ? left : b->t->cols;
}

static uint32_t
all_rows(const block *b, int64_t panel)
{
    return UINT32_MAX >> (32 - panel_rows(b, panel));
}

/* Columns that are computed, half a tile or all of it. */
static int64_t
panel_width(const block *b, int64_t panel)
{
    int64_t cols = b->t->cols;

    return panel_rows(b, panel) <= cols / 2 ? cols / 2 : cols;
}

/* A panel's queries where they lie; false when they are of several heads, or
 * must be scaled. */
static bool
queries_side(const block *b, int64_t panel, mr_gemm_side *side)
{
    const mr_attend_job *j = b->t->j;
    int64_t row = b->row0 + panel * b->t->cols, n = panel_rows(b, panel);
    int64_t head = b->item % j->heads * j->group + row / j->lq;

    *side = (mr_gemm_side){NULL, j->dtype, n, j->q.stride[2], j->q.stride[3]};
    side->data =
        element(j->q.data, j->dtype,
                b->item / j->heads * j->q.stride[0] + head * j->q.stride[1] +
                    row % j->lq * j->q.stride[2]);
    return j->late && row / j->lq == (row + n - 1) / j->lq;
}

/* A panel's queries at b->k, row after row; false when they are not what the
 * form takes. */
static bool
queries_stage(const block *b, int64_t panel, mr_gemm_form form,
              mr_gemm_side *side)
{
    const mr_attend_job *j = b->t->j;
    uint16_t *half = (uint16_t *)(void *)b->k;
    int64_t row = b->row0 + panel * b->t->cols;

    *side = (mr_gemm_side){b->k, MR_FLOAT32, panel_rows(b, panel), j->depth, 1};
    for (int64_t i = 0; i < side->lanes; i++)
        if (j->late)
            mr__attend_row(j, &j->q, b->item, row + i, j->depth,
                           b->k + i * j->depth);
        else
            mr__attend_query(j, b->item, row + i, b->k + i * j->depth);
    if (form == MR_GEMM_FLOATS || j->dtype == MR_FLOAT32)
        return true;
    side->dtype = j->dtype;
    if (j->dtype == MR_FLOAT16) {
        mr__tier()->casts->cast[MR_FLOAT32][MR_FLOAT16](half, b->k,
                                                        side->lanes * j->depth);
        return true;
    }
    for (int64_t i = 0; i < side->lanes; i++)
        if (!mr__attend_narrow(b->k + i * j->depth, j->depth,
                               half + i * j->depth))
            return false;
    return true;
}

/* A panel's queries packed; false when they must not have that form.  The keys
 * give way. */
static bool
queries_pack(block *b, int64_t panel, mr_gemm_form form)
{
    int64_t depth = b->t->j->depth;
    float *to = panel_queries(b, panel);
    mr_gemm_range r;
    mr_gemm_side side;

    b->k_packed = false;
    b->q_form[panel] = form;
    if (!queries_side(b, panel, &side) && !queries_stage(b, panel, form, &side))
        return false;
    if (form != MR_GEMM_IN_PIECES)
        return mr__gemm_pack_panels(&side, true, 0, 1, 0, depth, form, to, 0);
    r = mr__gemm_pack_pieces(&side, true, 0, 1, 0, depth, to, 0);
    /* items in pieces have been asked as a whole */
    b->unfit[panel] =
        b->t->j->in_pieces ? 0 : mr__attend_unfit(&side, r, depth);
    return b->unfit[panel] != all_rows(b, panel);
}

/* Has a panel rows of both kinds? */
static bool
panel_mixed(const block *b, int64_t panel)
{
    return b->unfit[panel] != 0 && b->unfit[panel] != all_rows(b, panel);
}

/* Is a panel at work?  The second time those that are mixed. */
static bool
panel_active(const block *b, int64_t panel)
{
    return !b->again || panel_mixed(b, panel);
}

/* Queries packed, no sums yet. */
static void
block_begin(block *b)
{
    const tiles *t = b->t;
    const mr_attend_job *j = t->j;

    for (int64_t i = 0; i < b->n_panels * t->cols; i++) {
        int64_t r = b->row0 + (i < b->n_rows ? i : 0);

        b->top[i] = mr__attend_sink(j, b->item, r);
        b->sum[i] = j->sinks ? 1.0F : 0.0F;
    }
    for (int64_t p = 0; p < b->n_panels; p++) {
        b->begun[p] = b->odd_sums[p] = false;
        b->end[p] = 0;
        if (!b->again)
            b->q_fits[p] = queries_pack(b, p, t->form);
        else if (panel_mixed(b, p))
            b->q_fits[p] = false;
    }
}

static bool
keys_pack(block *b, mr_gemm_form form)
{
    const mr_attend_job *j = b->t->j;
    mr_gemm_side k = {NULL, j->dtype, b->n_keys, j->k.stride[2],
                      j->k.stride[3]};

    k.data = element(j->k.data, j->dtype,
                     mr__attend_offset(&j->k, b->item, j->heads) +
                         b->key0 * j->k.stride[2]);
    b->k_packed = true;
    b->k_form = form;
    return mr__attend_pack(&k, false, j->depth, form, b->k);
}

static bool
values_pack(block *b, mr_gemm_form form)
{
    const mr_attend_job *j = b->t->j;
    mr_gemm_side v = {NULL, j->dtype, j->width, j->v.stride[3], j->v.stride[2]};

    v.data = element(j->v.data, j->dtype,
                     mr__attend_offset(&j->v, b->item, j->heads) +
                         b->key0 * j->v.stride[2]);
    return mr__attend_pack(&v, false, b->n_keys, form, b->v);
}

static void
tile_pack(block *b, int64_t key0)
{
    const tiles *t = b->t;
    int64_t left = t->j->lk - key0;

    b->key0 = key0;
    b->n_keys = left < t->keys ? left : t->keys;
    b->k_fits = keys_pack(b, t->form);
    b->k_packed = b->k_fits;
    b->v_fits = t->split && values_pack(b, MR_GEMM_IN_PIECES);
    if (!b->v_fits)
        (void)values_pack(b, MR_GEMM_FLOATS);
    b->v_odd =
        !b->v_fits && mr__attend_drops(t->j) &&
        mr__attend_odd_clear(b->v, (t->j->width - 1) / mr__gemm_rows() + 1,
                             mr__gemm_rows(), b->n_keys, b->odd);
}

/* n rows of x from `row` on come near; others, a row apart, need no help. */
static void
rows_fetch(const mr_kernel_view *x, int64_t at, int64_t row, int64_t n)
{
    int64_t size = mr__dtype_size(x->dtype), bytes = x->dim[3] * size;

    for (int64_t i = row; x->stride[3] == 1 && i < row + n; i++) {
        const char *from =
            (const char *)x->data + (at + i * x->stride[2]) * size;

        for (int64_t byte = 0; byte < bytes; byte += 64)
            __builtin_prefetch(from + byte, 0, 2);
    }
}

/* A panel's share of the next tile comes near while this one is at work: pieces
 * are packed by squares, which no prefetcher follows. */
static void
tile_fetch(const block *b, int64_t panel)
{
    const mr_attend_job *j = b->t->j;
    int64_t next = b->key0 + b->t->keys, n = j->lk - next;
    int64_t from, end;

    n = n < b->t->keys ? n : b->t->keys;
    if (n <= 0 || !b->t->split)
        return;
    from = next + n * panel / b->n_panels;
    end = next + n * (panel + 1) / b->n_panels;
    rows_fetch(&j->k, mr__attend_offset(&j->k, b->item, j->heads), from,
               end - from);
    rows_fetch(&j->v, mr__attend_offset(&j->v, b->item, j->heads), from,
               end - from);
}

/* The form in which a panel's queries meet the keys of the tile.  Both are
 * brought to it, which is rarely more than a question, so neither changes what
 * others meet: results are those of any cut into blocks. */
static mr_gemm_form
panel_form(block *b, int64_t panel)
{
    mr_gemm_form form =
        b->q_fits[panel] && b->k_fits ? b->t->form : MR_GEMM_FLOATS;

    if (b->q_form[panel] != form)
        (void)queries_pack(b, panel, form);
    if (!b->k_packed || b->k_form != form)
        (void)keys_pack(b, form);
    return form;
}

static int64_t
panel_limit(const block *b, int64_t panel)
{
    const mr_attend_job *j = b->t->j;
    int64_t most = INT64_MIN;

    if (!j->causal)
        return j->lk - 1;
    for (int64_t i = 0; i < panel_rows(b, panel); i++) {
        int64_t l = mr__attend_limit(j, b->row0 + panel * b->t->cols + i);

        most = l > most ? l : most;
    }
    return most;
}

/* The mask of the tile as the scores lie, a run of rows of one head at a
 * time. */
static void
panel_mask(block *b, int64_t panel, mr_attend_masks *masks)
{
    const tiles *t = b->t;
    const mr_attend_job *j = t->j;
    mr_dtype m = j->mask->dtype;
    int64_t size = mr__dtype_size(m), n = panel_rows(b, panel);
    int64_t row0 = b->row0 + panel * t->cols, all = b->n * t->cols;
    bool half = mr__dtype_is_half(m);
    char *tile = (char *)(half ? b->mask + t->s_floats : b->mask);

    for (int64_t i = 0, run; i < n; i += run) {
        int64_t left = j->lq - (row0 + i) % j->lq;
        const char *from = mr__attend_mask(j, b->item, row0 + i);

        run = left < n - i ? left : n - i;
        from += (b->key0 + b->first) * j->mask_stride[3] * size;
        if (j->mask_stride[3] == 1)
            t->tier->turn[size / 2](tile + i * size, t->cols, from,
                                    j->mask_stride[2], run, b->n);
        else
            mr__copy_strided((size_t)size, 2, (int64_t[]){b->n, run},
                             tile + i * size, (int64_t[]){t->cols * size, size},
                             from,
                             (int64_t[]){j->mask_stride[3] * size,
                                         j->mask_stride[2] * size});
    }
    if (half)
        mr__tier()->casts->cast[m][MR_FLOAT32](b->mask, tile, all);
    masks->keep = m == MR_BOOL ? (const uint8_t *)tile : NULL;
    masks->add = m == MR_BOOL ? NULL : b->mask;
}

/* Limits of the panel's rows within its keys; NULL when all see all of it. */
static const float *
panel_limits(const block *b, int64_t panel, float *limit)
{
    const mr_attend_job *j = b->t->j;
    int64_t n = panel_rows(b, panel), row0 = b->row0 + panel * b->t->cols;
    int64_t key0 = b->key0 + b->first;
    bool any = false;

    if (!j->causal)
        return NULL;
    for (int64_t i = 0; i < b->t->cols; i++) {
        int64_t l = mr__attend_limit(j, row0 + (i < n ? i : n - 1)) - key0;

        any = any || l < b->n - 1;
        limit[i] = (float)(l < -1 ? -1 : l < b->n ? l : b->n);
    }
    return any ? limit : NULL;
}

/* Is one of the block's old sums other than as it was? */
static bool
any_fades(const float *fade, int64_t n)
{
    bool any = false;

    for (int64_t i = 0; i < n; i++)
        any = any || fade[i] != 1.0F;
    return any;
}

/* A panel of a's lanes with one panel of b: c = a b, or c += a b. */
static void
panel_product(mr_gemm_chunk *g, int64_t m, const float *a, const float *b,
              float *c)
{
    g->m = m;
    g->a = a;
    g->b = b;
    g->c = c;
    mr__gemm_block(g, 0, (m - 1) / mr__gemm_form_rows(g->form) + 1, 0, 1);
}

/* The sums of the panel's rows += values times weights.  A panel of values has
 * all keys of the tile. */
static void
panel_values(const block *b, mr_gemm_chunk *g, float *o)
{
    const mr_attend_job *j = b->t->j;
    const float *v = b->v, *w = b->v_fits ? b->w : b->s;
    int64_t lanes = j->width, all;

    g->form = b->v_fits ? MR_GEMM_IN_PIECES : MR_GEMM_FLOATS;
    g->depth = mr__gemm_steps(g->form, j->dtype, b->n);
    g->pieces = j->pieces == 1 ? MR_GEMM_1_BY_2 : j->pieces;
    if (b->n < b->n_keys)
        lanes = mr__gemm_form_rows(g->form);
    all = mr__gemm_steps(g->form, j->dtype, b->n_keys) * lanes;
    v += mr__gemm_steps(g->form, j->dtype, b->first) * lanes;
    for (int64_t i = 0; i < j->width; i += lanes, v += all)
        panel_product(g, j->width - i < lanes ? j->width - i : lanes, v, w,
                      o + i * b->t->cols);
}

/* What the tile's odd values give to the panel's sums. */
static void
panel_odd(block *b, int64_t panel)
{
    const tiles *t = b->t;
    mr_attend_odd x = {.j = t->j,
                       .item = b->item,
                       .row0 = b->row0 + panel * t->cols,
                       .rows = panel_rows(b, panel),
                       .key0 = b->key0 + b->first,
                       .n_keys = b->n,
                       .odd = b->odd + b->first,
                       .weights = b->s,
                       .weight_key = t->cols,
                       .weight_row = 1,
                       .sums = panel_sums(b, panel),
                       .sum_col = t->cols,
                       .sum_row = 1};

    mr__attend_odd_add(&x);
    b->odd_sums[panel] = true;
}

/* Rows whose keys had all been dropped before: 0 times such sums may be no
 * number. */
static void
odd_sums_end(const block *b, int64_t panel, const float *old)
{
    const tiles *t = b->t;
    const float *top = b->top + panel * t->cols;
    float *o = panel_sums(b, panel);

    for (int64_t c = 0; c < t->cols; c++)
        for (int64_t i = 0; old[c] == MR_ATTEND_MASKED &&
                            top[c] != MR_ATTEND_MASKED && i < t->j->width;
             i++)
            o[i * t->cols + c] = 0.0F;
}

/* Keys b->first ... of the tile, b->n of them: in pieces whole steps. */
static void
panel_keys(block *b, int64_t panel, mr_gemm_form form)
{
    const tiles *t = b->t;
    const mr_attend_job *j = t->j;
    float limit[MR_GEMM_MAX_COLS], fade[MR_GEMM_MAX_COLS];
    float old[MR_GEMM_MAX_COLS];
    float *o = panel_sums(b, panel), *top = b->top + panel * t->cols;
    float *sum = b->sum + panel * t->cols, scale = j->late ? j->scale : 1.0F;
    mr_attend_masks masks = {0};
    int64_t width = panel_width(b, panel);
    mr_gemm_chunk g = {.n = width,
                       .depth = mr__gemm_steps(form, j->dtype, j->depth),
                       .form = form,
                       .pieces = j->pieces,
                       .c_row = t->cols,
                       .dtype = MR_FLOAT32,
                       .first = true,
                       .last = true};

    panel_product(&g, b->n, b->k + b->first * g.depth, panel_queries(b, panel),
                  b->s);
    if (j->mask)
        panel_mask(b, panel, &masks);
    masks.limit = panel_limits(b, panel, limit);
    memcpy(old, top, (size_t)t->cols * sizeof *old);
    if (b->v_fits)
        t->split(b->s, t->cols, b->n, width, &masks, scale, top, sum, fade,
                 j->width > 0 ? b->w : NULL);
    else
        t->tier->step(b->s, t->cols, b->n, width, &masks, scale, top, sum,
                      fade);
    if (j->width == 0)
        return;
    if (b->odd_sums[panel])
        odd_sums_end(b, panel, old);
    if (b->begun[panel] && any_fades(fade, width))
        t->tier->multiply(o, t->cols, j->width, width, fade);
    g.first = !b->begun[panel];
    panel_values(b, &g, o);
    b->begun[panel] = true;
    if (b->v_odd)
        panel_odd(b, panel);
}

/* What a panel has not taken of the tile's keys.  In pieces up to its limit; in
 * floats all, where tiles are long a part at a time, since errors of chains
 * grow with their lengths. */
static void
panel_run(block *b, int64_t panel, int64_t limit)
{
    mr_gemm_form form = panel_form(b, panel);
    int64_t end = mr__attend_up(limit + 1 - b->key0, MR_GEMM_PIECES_STEP);
    int64_t part = b->v_fits || !b->t->split ? b->n_keys : PART;

    if (form != MR_GEMM_IN_PIECES || !b->v_fits || end > b->n_keys)
        end = b->n_keys;
    b->first = b->end[panel] > b->key0 ? b->end[panel] - b->key0 : 0;
    b->end[panel] = b->key0 + end;
    for (; b->first < end; b->first += b->n) {
        b->n = end - b->first < part ? end - b->first : part;
        panel_keys(b, panel, form);
    }
}

/* The keys beyond a causal limit, for panels with a row that has seen none
 * but masked ones: there these weigh as much. */
static void
rest_run(block *b)
{
    bool wanted[MAX_PANELS] = {false}, any = false;
    const tiles *t = b->t;

    for (int64_t p = 0; p < b->n_panels; p++) {
        for (int64_t i = 0; panel_active(b, p) && i < panel_rows(b, p); i++)
            wanted[p] =
                wanted[p] || b->top[p * t->cols + i] <= MR_ATTEND_MASKED;
        any = any || wanted[p];
    }
    for (int64_t key = 0; any && key < t->j->lk; key += t->keys) {
        bool packed = false;

        for (int64_t p = 0; p < b->n_panels; p++) {
            int64_t end = key + t->keys < t->j->lk ? key + t->keys : t->j->lk;

            if (!wanted[p] || b->end[p] >= end)
                continue;
            if (!packed)
                tile_pack(b, key);
            packed = true;
            panel_run(b, p, t->j->lk - 1);
        }
    }
}

/* A panel's sums of values over those of weights.  A division takes 16 cycles
 * a vector, so what has other last bits anyway is multiplied. */
static void
panel_divide(block *b, int64_t panel)
{
    const tiles *t = b->t;
    int64_t width = panel_width(b, panel);
    float *sum = b->sum + panel * t->cols;

    for (int64_t i = 0; t->split && i < width; i++)
        sum[i] = 1.0F / sum[i];
    (t->split ? t->tier->multiply : t->tier->divide)(
        panel_sums(b, panel), t->cols, t->j->width, width, sum);
}

/* A panel's rows of the output, dense, at b->k. */
static void
panel_end(block *b, int64_t panel)
{
    const tiles *t = b->t;
    float *o = panel_sums(b, panel);

    if (!b->begun[panel]) /* no key was seen beside a sink */
        memset(o, 0, (size_t)t->o_floats * sizeof *o);
    panel_divide(b, panel);
    mr__tier()->moves->transpose[2](b->k, t->j->width * 4, o, t->cols * 4,
                                    panel_rows(b, panel), t->j->width);
}

/* What the job wants of these rows beside their tops and sums. */
static void
panel_dots(block *b, int64_t panel)
{
    const mr_attend_job *j = b->t->j;
    int64_t row = b->row0 + panel * b->t->cols;

    for (int64_t i = 0; i < panel_rows(b, panel); i++) {
        mr__attend_row(j, j->g, b->item, row + i, j->width, b->v);
        b->t->tier->dots[MR_GEMM_FLOAT32](j->dot + b->item * j->rows + row + i,
                                          b->v, b->k + i * j->width, j->width,
                                          1, j->width, 0);
    }
}

/* The panel's rows, or those that are made again. */
static void
panel_store(const block *b, int64_t panel)
{
    const mr_attend_job *j = b->t->j;
    int64_t row = b->row0 + panel * b->t->cols;
    uint32_t rows = b->unfit[panel];

    if (!b->again) {
        mr__attend_store(j, b->item, row, panel_rows(b, panel), b->k);
        return;
    }
    for (int i; rows != 0; rows &= rows - 1) {
        i = __builtin_ctz(rows);
        mr__attend_store(j, b->item, row + i, 1, b->k + i * j->width);
    }
}

static void
block_end(block *b)
{
    const tiles *t = b->t;
    const mr_attend_job *j = t->j;

    if (j->top) {
        size_t bytes = (size_t)b->n_rows * sizeof *b->top;
        int64_t at = b->item * j->rows + b->row0;

        memcpy(j->top + at, b->top, bytes);
        memcpy(j->sum + at, b->sum, bytes);
        if (!j->dot)
            return;
    }
    for (int64_t p = 0; p < b->n_panels; p++) {
        if (!panel_active(b, p))
            continue;
        panel_end(b, p);
        if (j->dot)
            panel_dots(b, p);
        else
            panel_store(b, p);
    }
}

static void
block_run(block *b)
{
    int64_t end = 0, limits[MAX_PANELS];

    block_begin(b);
    for (int64_t p = 0; p < b->n_panels; p++) {
        limits[p] = panel_active(b, p) ? panel_limit(b, p) : -1;
        end = limits[p] + 1 > end ? limits[p] + 1 : end;
    }
    for (int64_t key = 0; key < end; key += b->t->keys) {
        tile_pack(b, key);
        for (int64_t p = 0; p < b->n_panels; p++)
            if (limits[p] >= key) {
                tile_fetch(b, p);
                panel_run(b, p, limits[p]);
            }
    }
    if (b->t->j->causal)
        rest_run(b);
    block_end(b);
}

static void
tiles_unit(const void *ctx, int64_t unit, char *slot)
{
    const tiles *t = ctx;
    block b;

    block_open(t, unit, slot, &b);
    if (t->j->in_pieces && t->j->in_pieces[b.item] != (t->split != NULL))
        return;
    block_run(&b);
    for (int64_t p = 0; p < b.n_panels && !b.again; p++)
        b.again = panel_mixed(&b, p);
    if (b.again)
        block_run(&b);
}

size_t
mr__attend_tiles_bytes(const mr_attend_job *j)
{
    tiles t;

    tiles_plan(j, &t);
    return (size_t)(j->n_slots * tiles_slot_floats(&t)) * sizeof(float);
}

void
mr__attend_tiles(const mr_attend_job *j, char *workspace)
{
    tiles t;

    tiles_plan(j, &t);
    mr__cpu_units(j->n_slots, j->batch * j->heads * t.n_blocks, workspace,
                  (size_t)tiles_slot_floats(&t) * sizeof(float), tiles_unit,
                  &t);
}

/* ---- the row of the table
 * ------------------------------------------------------ */

static bool
job_empty(const mr_attend_job *j)
{
    return j->batch * j->heads * j->rows * j->width * j->lk == 0;
}

size_t
mr__cpu_attention_workspace(const mr_kernel_args *a)
{
    mr_attend_job j;

    mr__attend_job(a, &j);
    if (job_empty(&j))
        return 0;
    if (mr__attend_few_fits(&j))
        return mr__attend_few_bytes(&j);
    return mr__attend_tiles_bytes(&j);
}

mr_code
mr__cpu_attention(const mr_kernel_args *a)
{
    mr_attend_job j;

    mr__attend_job(a, &j);
    if (job_empty(&j)) { /* no keys: sums of nothing */
        memset(j.to, 0,
               (size_t)a->out[0].size * (size_t)mr__dtype_size(j.dtype));
        return MR_OK;
    }
    if (mr__attend_few_fits(&j)) {
        mr__attend_few(&j, a->workspace);
        return MR_OK;
    }
    mr__attend_tiles(&j, a->workspace);
    return MR_OK;
}

/* 100 GFLOP/s, or 10 GB/s where that is slower. */
double
mr__cpu_attention_cost(const mr_kernel_args *a)
{
    const mr_kernel_view *q = &a->in[0], *k = &a->in[1], *v = &a->in[2];
    double pairs = (double)q->dim[0] * (double)q->dim[1] * (double)q->dim[2] *
                   (double)k->dim[2];
    double bytes =
        (double)(k->size + v->size) * (double)mr__dtype_size(k->dtype);

    return 0.02 * pairs * (double)(q->dim[3] + v->dim[3]) + 0.1 * bytes + 500.0;
}
