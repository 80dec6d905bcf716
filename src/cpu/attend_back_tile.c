/* SPDX-License-Identifier: Apache-2.0
 *
 * attend_back_tile.c -- the way back of attention, rows of an item by blocks of
 * its keys.
 *
 * A block of keys is packed with its sums of dk and dv, and tiles of rows pass
 * by.  The weights P and what comes back to the scores, S', are made a panel of
 * keys at a time, rows as they are: so they are the packed sides of the
 * products for dv and dk as they lie, and S' is turned once, for dq.
 *
 * What an item is made of (numbers, or pieces for the matrix unit) is one form;
 * bfloat16 in pairs has two: keys, and the rows that meet them, go in pairs
 * where they may, and all else in floats.
 *
 * What comes back to the scores is 0 where masks drop a pair, and must stay 0
 * whatever keys and queries hold: as they meet it, what is infinite or none of
 * these is 0.  Pairs that are seen have scores of none then, and show it.
 * Called by: attend_back.c.  Calls: attend.c, attend_odd.c, kernels/attend.h,
 * kernels/gemm.h.
 */
#include <string.h>

#include "cpu/attend_back.h"
#include "kernels/copy.h"
#include "kernels/tier/tier.h"

enum {
    KEYS = MR_ATTEND_BACK_KEYS,
    LANES = MR_GEMM_PIECES_LANES,
    STEP = MR_GEMM_PIECES_STEP,
    MAX_ROWS = 144 /* of a tile */
};

/* Keys or values of a block, the rows of a tile that meet them, and what the
 * block adds up. */
typedef struct side {
    const mr_kernel_view *keys_of, *rows_of; /* k and q, v and g */
    int64_t n;          /* numbers of a row: the depth, or the width */
    bool scaled;        /* the rows, when they are packed */
    mr_gemm_form form;  /* of the block, and of the rows that meet it */
    int64_t n_steps;    /* floats of a lane of that */
    float *keys, *rows; /* in that form */
    float *deep;        /* the rows as they meet weights, in the unit's form */
    float *sums;        /* dk or dv, a column a key */
} side;

/* A unit at work. */
typedef struct unit {
    const mr_attend_back *b;
    const mr_attend_job *j; /* of items in its form */
    int64_t item, row0, row1;
    int64_t key0, n_keys; /* the block */
    int64_t tile0, n;     /* the tile of rows */
    mr_gemm_form form;    /* pieces, or floats */
    int64_t high;         /* lanes of a panel of that */
    side k, v;
    float *k_deep; /* the keys as they meet S' */
    float *s, *ds, *turned, *mask, *stage, *half, *dq;
    float *p_right, *ds_right; /* in pieces, a panel's */
} unit;

/* ---- memory ----------------------------------------------------------------
 */

/* Floats of a lane of a side, whichever form it has in the end. */
static int64_t
lane_floats(const mr_attend_back *b, int64_t depth)
{
    int64_t pieces = mr__gemm_steps(b->form, b->j.dtype, depth);

    return pieces > depth ? pieces : depth;
}

/* A slot's pieces one after the other; with at NULL only counted. */
static int64_t
slot_floats(const mr_attend_back *b, float *at, unit *u)
{
    const mr_attend_job *j = &b->j;
    bool pieces = b->form == MR_GEMM_IN_PIECES;
    int64_t most = j->depth > j->width ? j->depth : j->width;
    int64_t n_stage = mr__attend_up(b->tile, b->cols) * most, sum = 0;
    int64_t right = pieces ? b->tile / 2 * b->weights * b->cols : 0;
    int64_t turned = pieces ? KEYS / 2 * b->weights : KEYS;
    struct {
        float **to;
        int64_t floats;
    } piece[] = {
        {&u->k.keys, b->block * lane_floats(b, j->depth)},
        {&u->v.keys, b->block * lane_floats(b, j->width)},
        {&u->k_deep,
         b->block / KEYS * lane_floats(b, KEYS) * b->k_panels * b->cols},
        {&u->k.sums, b->block * j->depth},
        {&u->v.sums, b->block * j->width},
        {&u->k.rows, b->tile * lane_floats(b, j->depth)},
        {&u->v.rows, b->tile * lane_floats(b, j->width)},
        {&u->k.deep, lane_floats(b, b->tile) * b->deep},
        {&u->v.deep, lane_floats(b, b->tile) * b->wide},
        {&u->s, b->tile * KEYS},
        {&u->ds, b->tile * KEYS},
        {&u->turned, b->tile * (turned > KEYS ? turned : KEYS)},
        {&u->p_right, right},
        {&u->ds_right, right},
        {&u->mask, j->mask ? 2 * b->tile * b->cols : 0},
        {&u->stage, n_stage},
        {&u->half, b->form != MR_GEMM_FLOATS ? (b->tile * most + 1) / 2 : 0},
        {&u->dq, b->q_floats},
    };

    for (size_t i = 0; i < sizeof piece / sizeof *piece; i++) {
        if (at)
            *piece[i].to = at + sum;
        sum += mr__attend_lines(piece[i].floats);
    }
    return sum;
}

size_t
mr__attend_back_slot(const mr_attend_back *b)
{
    unit spare;

    return (size_t)slot_floats(b, NULL, &spare) * sizeof(float);
}

/* ---- packing ---------------------------------------------------------------
 */

/* Floats of a lane of so much depth, in the unit's form. */
static int64_t
steps(const unit *u, int64_t depth)
{
    return mr__gemm_steps(u->form, u->j->dtype, depth);
}

/* The same of a side that is made of weights: pieces have a number of their
 * own. */
static int64_t
weight_steps(const unit *u, int64_t depth)
{
    if (u->form == MR_GEMM_FLOATS)
        return depth;
    return mr__attend_up(depth, STEP) / 2 * u->b->weights;
}

/* The block's keys or values, in pieces, or as `form` if they may be. */
static void
block_side(const unit *u, side *x, mr_gemm_form form)
{
    const mr_attend_job *j = u->j;
    const mr_kernel_view *of = x->keys_of;
    int64_t at =
        mr__attend_offset(of, u->item, j->heads) + u->key0 * of->stride[2];
    mr_gemm_side s = {mr__attend_place(of, at), j->dtype, u->n_keys,
                      of->stride[2], of->stride[3]};

    x->form = form;
    if (!mr__attend_pack(&s, true, x->n, form, x->keys) &&
        form == MR_GEMM_IN_PAIRS) {
        x->form = MR_GEMM_FLOATS;
        (void)mr__attend_pack(&s, true, x->n, x->form, x->keys);
    }
    x->n_steps = mr__gemm_steps(x->form, j->dtype, x->n);
}

/* Of keys or queries that S' meets. */
static void
odd_clear(const unit *u, float *deep, int64_t n)
{
    if (u->form == MR_GEMM_FLOATS && mr__attend_drops(u->j))
        (void)mr__attend_clear(deep, n);
}

/* Keys [key0, key0 + n_keys) and their values, for all three products; the
 * third by pieces of KEYS, since it adds up over keys. */
static void
block_pack(unit *u)
{
    const mr_attend_back *b = u->b;
    const mr_attend_job *j = u->j;
    mr_gemm_form form = b->form == MR_GEMM_IN_PAIRS ? b->form : u->form;
    int64_t k0 =
        mr__attend_offset(&j->k, u->item, j->heads) + u->key0 * j->k.stride[2];

    block_side(u, &u->k, form);
    block_side(u, &u->v, form);
    for (int64_t i = 0; b->want != MR_ATTEND_WANT_KV && i < u->n_keys;
         i += KEYS) {
        int64_t n = u->n_keys - i < KEYS ? u->n_keys - i : KEYS;
        mr_gemm_side deep = {mr__attend_place(&j->k, k0 + i * j->k.stride[2]),
                             j->dtype, j->depth, j->k.stride[3],
                             j->k.stride[2]};

        float *to =
            u->k_deep + i / KEYS * steps(u, KEYS) * b->k_panels * b->cols;

        (void)mr__attend_pack(&deep, true, n, u->form, to);
        odd_clear(u, to, b->k_panels * b->cols * n);
    }
    memset(u->k.sums, 0, (size_t)(b->block * j->depth) * sizeof(float));
    memset(u->v.sums, 0, (size_t)(b->block * j->width) * sizeof(float));
}

/* The tile's rows of x, where they lie; false when they are of several heads,
 * or must be scaled. */
static bool
rows_lie(const unit *u, const side *x, mr_gemm_side *flat, mr_gemm_side *deep)
{
    const mr_attend_job *j = u->j;
    const mr_kernel_view *of = x->rows_of;
    int64_t head = u->tile0 / j->lq;
    const void *at;

    if (x->scaled || (u->tile0 + u->n - 1) / j->lq != head)
        return false;
    head += u->item % j->heads * j->group;
    at = mr__attend_place(of, u->item / j->heads * of->stride[0] +
                                  head * of->stride[1] +
                                  u->tile0 % j->lq * of->stride[2]);
    *flat = (mr_gemm_side){at, j->dtype, u->n, of->stride[2], of->stride[3]};
    *deep = (mr_gemm_side){at, j->dtype, x->n, of->stride[3], of->stride[2]};
    return true;
}

/* The tile's rows brought together.  In pairs and pieces they are halves again;
 * false when they are not what pairs take. */
static bool
rows_stage(const unit *u, const side *x, mr_gemm_side *flat, mr_gemm_side *deep)
{
    const mr_attend_job *j = u->j;
    int64_t n = x->n, all = u->n * n;
    const void *halves = u->half;
    bool exact = true;

    for (int64_t i = 0; i < u->n; i++)
        if (x->scaled)
            mr__attend_query(j, u->item, u->tile0 + i, u->stage + i * n);
        else
            mr__attend_row(j, x->rows_of, u->item, u->tile0 + i, n,
                           u->stage + i * n);
    *flat = (mr_gemm_side){u->stage, MR_FLOAT32, u->n, n, 1};
    *deep = (mr_gemm_side){u->stage, MR_FLOAT32, n, 1, n};
    if (j->dtype == MR_FLOAT32 || x->form == MR_GEMM_FLOATS)
        return true;
    if (j->dtype == MR_FLOAT16)
        mr__tier()->casts->cast[MR_FLOAT32][MR_FLOAT16](u->half, u->stage, all);
    else
        exact = mr__attend_narrow(u->stage, all, (uint16_t *)(void *)u->half);
    if (exact)
        *flat = (mr_gemm_side){halves, j->dtype, u->n, n, 1};
    if (u->form == MR_GEMM_IN_PIECES)
        *deep = (mr_gemm_side){halves, j->dtype, n, 1, n};
    return exact;
}

/* A tile's rows for both of their products.  Where they must not be in pairs,
 * the block gives way. */
static void
tile_side(unit *u, side *x)
{
    mr_gemm_side flat, deep;
    bool fits = rows_lie(u, x, &flat, &deep) || rows_stage(u, x, &flat, &deep);

    fits = fits && mr__attend_pack(&flat, false, x->n, x->form, x->rows);
    if (!fits && x->form == MR_GEMM_IN_PAIRS) {
        block_side(u, x, MR_GEMM_FLOATS);
        (void)mr__attend_pack(&flat, false, x->n, x->form, x->rows);
    }
    if (u->b->want == MR_ATTEND_WANT_Q)
        return;
    (void)mr__attend_pack(&deep, false, u->n, u->form, x->deep);
    if (x == &u->k)
        odd_clear(u, x->deep, mr__attend_up(x->n, u->high) * u->n);
}

/* ---- a tile of rows by KEYS keys -------------------------------------------
 */

/* The mask of the tile's rows for n keys from `key` on, as its scores lie. */
static void
tile_mask(unit *u, int64_t key, int64_t n, mr_attend_masks *masks)
{
    const mr_attend_back *b = u->b;
    const mr_attend_job *j = u->j;
    mr_dtype m = j->mask->dtype;
    int64_t size = mr__dtype_size(m);
    bool half = mr__dtype_is_half(m);
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
    const mr_attend_job *j = u->j;
    bool any = false;

    if (!j->causal)
        return NULL;
    for (int64_t i = 0; i < u->n; i++) {
        int64_t l = mr__attend_limit(j, u->tile0 + i) - key;

        any = any || l < n - 1;
        limit[i] = (float)(l < -1 ? -1 : l < n ? l : n);
    }
    return any ? limit : NULL;
}

/* What the masks drop of a panel, from row `first` of the tile on. */
static mr_attend_masks
panel_masks(unit *u, int64_t at, int64_t n, int64_t first, float *limit)
{
    const mr_attend_back *b = u->b;
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

/* A row that sees no key at all weighs all alike. */
static bool
row_sees(const unit *u, int64_t i, int64_t key)
{
    const mr_attend_job *j = u->j;

    return !j->causal || mr__attend_limit(j, u->tile0 + i) >= key ||
           u->b->top[u->item * j->rows + u->tile0 + i] <= MR_ATTEND_MASKED;
}

/* Does a row of the tile see a key from `key` on? */
static bool
tile_sees(const unit *u, int64_t key)
{
    for (int64_t i = 0; i < u->n; i++)
        if (row_sees(u, i, key))
            return true;
    return false;
}

/* Rows of the tile, whole panels of them, that see no key from `key` on. */
static int64_t
rows_blind(const unit *u, int64_t key)
{
    int64_t n = 0;

    while (n < u->n && !row_sees(u, n, key))
        n++;
    return n / u->high * u->high;
}

/* A product of packed sides: which, and where it goes. */
typedef struct product {
    mr_gemm_form form;
    int pieces;
    const float *a, *b;
    int64_t m, n, depth; /* floats of a lane */
    float *c;
    int64_t c_row;
    bool add;
} product;

static void
multiply(const product *p)
{
    mr_gemm_chunk g = {.m = p->m,
                       .n = p->n,
                       .depth = p->depth,
                       .form = p->form,
                       .pieces = p->pieces,
                       .a = p->a,
                       .b = p->b,
                       .c = p->c,
                       .c_row = p->c_row,
                       .dtype = MR_FLOAT32,
                       .first = !p->add,
                       .last = true};

    mr__gemm_block(&g, 0, (p->m - 1) / mr__gemm_form_rows(p->form) + 1, 0,
                   (p->n - 1) / mr__gemm_form_cols(p->form) + 1);
}

/* c, a row a row of the tile from `first` on, = these times the block's panel
 * at `at`.  Scores are those of keys times queries, which attend.c has. */
static void
rows_multiply(const unit *u, const side *x, int64_t first, int64_t at, float *c)
{
    int64_t cols = u->b->cols;
    static const int turned[] = {0, 1, MR_GEMM_2_TURNED, MR_GEMM_3_TURNED};
    product p = {.form = x->form,
                 .pieces = turned[u->j->pieces],
                 .a = x->rows + first * x->n_steps,
                 .b = x->keys + at * x->n_steps,
                 .m = u->n - first,
                 .n = cols,
                 .depth = x->n_steps,
                 .c = c,
                 .c_row = cols};

    multiply(&p);
}

/* The sums of the block's panel at `at` += rows of the tile from `first` on
 * times what they give these keys, a right side of those rows. */
static void
keys_add(const unit *u, const side *x, const float *right, int64_t first,
         int64_t at)
{
    int64_t high = u->high, cols = u->b->cols, each = steps(u, u->n) * high;
    int pieces = u->j->pieces == 1 ? MR_GEMM_1_BY_2 : u->j->pieces;
    product p = {.form = u->form,
                 .pieces = pieces,
                 .a = x->deep + steps(u, first) * high,
                 .b = right,
                 .n = cols,
                 .depth = steps(u, u->n - first),
                 .c = x->sums + at * x->n,
                 .c_row = cols,
                 .add = true};

    for (int64_t i = 0; i < x->n; i += high) {
        p.m = x->n - i < high ? x->n - i : high;
        multiply(&p);
        p.a += each;
        p.c += high * cols;
    }
}

/* A panel of keys at work: number `at` of the block is its first. */
typedef struct panel {
    int64_t at, n;
    int64_t first; /* row of the tile that sees one */
    float *s, *ds; /* of all rows */
    float *turned; /* pieces: S' as a left side, from its step on, */
    int64_t apart; /* whose panels are so far from each other */
    const float *p_right, *ds_right; /* weights and S' as right sides */
} panel;

/* No row before x->first gets anything from the panel. */
static void
panel_clear(const unit *u, const panel *x)
{
    if (u->form == MR_GEMM_FLOATS) {
        memset(x->ds, 0, (size_t)(x->first * u->b->cols) * sizeof *x->ds);
        return;
    }
    for (int64_t r = 0; r < x->first; r += LANES)
        memset(x->turned + r / LANES * x->apart, 0,
               (size_t)(weight_steps(u, STEP) * LANES) * sizeof *x->turned);
}

/* Scores and what comes back to the weights become weights and S'. */
static void
panel_weights(unit *u, panel *x)
{
    const mr_attend_back *b = u->b;
    const mr_attend_job *j = u->j;
    int64_t cols = b->cols, first = x->first, left = u->n - first;
    int64_t row = u->item * j->rows + u->tile0 + first;
    int64_t right = weight_steps(u, first) * cols;
    float limit[MAX_ROWS], late = j->late ? j->scale : 1.0F;
    float *s = x->s + first * cols, *ds = x->ds + first * cols;
    mr_attend_pieces to = {u->p_right + right, u->ds_right + right,
                           x->turned + first / LANES * x->apart, x->apart};
    mr_attend_masks masks = panel_masks(u, x->at, x->n, first, limit);

    if (u->form == MR_GEMM_FLOATS) {
        b->tier->back(s, ds, cols, left, cols, &masks, late, b->top + row,
                      b->scale + row, b->dot + row);
        x->p_right = s;
        x->ds_right = ds;
        return;
    }
    b->tier->back_split[mr__attend_kind(j->dtype)](
        s, ds, left, x->n, &masks, late, b->top + row, b->scale + row,
        b->dot + row, &to);
    x->p_right = to.weights;
    x->ds_right = to.slopes;
}

/* Weights and S' of a panel, and what these add to dk and dv. */
static void
panel_run(unit *u, panel *x)
{
    int64_t cols = u->b->cols;

    x->first = rows_blind(u, u->key0 + x->at);
    panel_clear(u, x);
    if (x->first == u->n)
        return;
    rows_multiply(u, &u->k, x->first, x->at, x->s + x->first * cols);
    rows_multiply(u, &u->v, x->first, x->at, x->ds + x->first * cols);
    panel_weights(u, x);
    if (u->b->want == MR_ATTEND_WANT_Q)
        return;
    keys_add(u, &u->v, x->p_right, x->first, x->at);
    keys_add(u, &u->k, x->ds_right, x->first, x->at);
}

/* S' of n keys, in floats, as a left side. */
static void
slopes_turn(const unit *u, int64_t n)
{
    const mr_attend_back *b = u->b;

    for (int64_t k = 0; k < n; k += b->cols) {
        int64_t m = n - k < b->cols ? n - k : b->cols;
        mr_gemm_side s = {u->ds + k * b->tile, MR_FLOAT32, u->n, b->cols, 1};

        for (int64_t p = 0; p * u->high < u->n; p++)
            mr__gemm_pack(&s, (int)u->high, p, 0, m,
                          u->turned + p * u->high * n + k * u->high);
    }
}

/* dq += S' of n keys from `at` on times these: all columns at once, or a panel
 * of them, since the two sides have other numbers of pieces. */
static void
queries_add(const unit *u, int64_t at, int64_t n, float *dq)
{
    const mr_attend_back *b = u->b;
    int64_t depth = b->j.depth;
    int64_t wide = u->form == MR_GEMM_FLOATS ? depth : LANES;
    product p = {.form = u->form,
                 .pieces = b->j.pieces == 1 ? MR_GEMM_2_BY_1 : b->j.pieces,
                 .a = u->turned,
                 .b = u->k_deep +
                      at / KEYS * steps(u, KEYS) * b->k_panels * b->cols,
                 .m = u->n,
                 .depth = weight_steps(u, n),
                 .c_row = depth,
                 .add = true};

    for (int64_t i = 0; i < depth; i += wide, p.b += steps(u, n) * wide) {
        p.n = depth - i < wide ? depth - i : wide;
        p.c = dq + i;
        multiply(&p);
    }
}

/* KEYS of the block from `at` on, of which n are there. */
static void
keys_run(unit *u, int64_t at, int64_t n, float *dq)
{
    const mr_attend_back *b = u->b;
    bool pieces = u->form == MR_GEMM_IN_PIECES;
    panel x = {.s = u->s,
               .ds = u->ds,
               .turned = u->turned,
               .apart = weight_steps(u, n) * LANES};

    for (int64_t k = 0; k < n; k += b->cols) {
        x.at = at + k;
        x.n = n - k < b->cols ? n - k : b->cols;
        panel_run(u, &x);
        if (pieces) {
            x.turned += weight_steps(u, STEP) * LANES;
        } else {
            x.s += b->tile * b->cols;
            x.ds += b->tile * b->cols;
        }
    }
    if (b->want == MR_ATTEND_WANT_KV)
        return;
    if (!pieces)
        slopes_turn(u, n);
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
        if (!packed) {
            tile_side(u, &u->k);
            tile_side(u, &u->v);
        }
        packed = true;
        keys_run(u, at, n, dq);
    }
}

/* ---- a unit ----------------------------------------------------------------
 */

/* Sums that lie turned, a column a key, times `by`, to rows of the output. */
static void
keys_store(const unit *u, side *x, float by, char *to)
{
    const mr_attend_back *b = u->b;
    mr_dtype t = b->j.dtype;
    int64_t size = mr__dtype_size(t), n_cols = x->n;

    to += (u->item * b->j.lk + u->key0) * n_cols * size;
    for (int64_t k = 0; k < u->n_keys; k += b->cols) {
        int64_t n = u->n_keys - k < b->cols ? u->n_keys - k : b->cols;
        void *rows = t == MR_FLOAT32 ? (void *)to : u->stage;
        float *sums = x->sums + k * n_cols;

        for (int64_t i = 0; by != 1.0F && i < b->cols * n_cols; i++)
            sums[i] *= by;
        mr__tier()->moves->transpose[2](rows, n_cols * 4, sums, b->cols * 4, n,
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
    const mr_attend_job *j = u->j;
    int64_t n = (u->row1 - u->row0) * j->depth;

    for (int64_t i = 0; i < n; i++)
        dq[i] *= j->scale;
    if (j->dtype != MR_FLOAT32)
        mr__tier()->casts->cast[MR_FLOAT32][j->dtype](to, dq, n);
}

static void
block_run(unit *u, float *dq)
{
    const mr_attend_back *b = u->b;
    const mr_attend_job *j = u->j;

    block_pack(u);
    for (u->tile0 = u->row0; u->tile0 < u->row1; u->tile0 += b->tile) {
        u->n = u->row1 - u->tile0 < b->tile ? u->row1 - u->tile0 : b->tile;
        tile_run(u, dq + (u->tile0 - u->row0) * j->depth);
    }
    if (b->want == MR_ATTEND_WANT_Q)
        return;
    keys_store(u, &u->k, j->late ? j->scale : 1.0F, b->dk);
    keys_store(u, &u->v, 1.0F, b->dv);
}

void
mr__attend_back_unit(const mr_attend_back *b, int64_t item, int64_t row0,
                     int64_t row1, int64_t block0, int64_t block1, char *slot)
{
    bool pieces = b->pieces[item];
    const mr_attend_job *j = pieces ? &b->j : &b->by_vectors;
    unit u = {.b = b,
              .j = j,
              .item = item,
              .row0 = row0,
              .row1 = row1,
              .form = pieces ? MR_GEMM_IN_PIECES : MR_GEMM_FLOATS,
              .k = {&j->k, &j->q, j->depth, !j->late},
              .v = {&j->v, &b->g, j->width, false}};
    char *to =
        b->dq + (item * j->rows + row0) * j->depth * mr__dtype_size(j->dtype);
    float *dq = (float *)(void *)to;

    slot_floats(b, (float *)(void *)slot, &u);
    u.high = mr__gemm_form_rows(u.form);
    if (j->dtype != MR_FLOAT32)
        dq = u.dq;
    if (b->want != MR_ATTEND_WANT_KV)
        memset(dq, 0, (size_t)((row1 - row0) * j->depth) * sizeof *dq);
    for (int64_t i = block0; i < block1; i++) {
        u.key0 = i * b->block;
        u.n_keys = j->lk - u.key0 < b->block ? j->lk - u.key0 : b->block;
        block_run(&u, dq);
    }
    if (b->want != MR_ATTEND_WANT_KV)
        queries_store(&u, dq, to);
}
