/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_pieces.c -- packing, blocks and edges of products in pieces, over the
 * spans of tiles that the matrix unit's kernels take.
 *
 * A tile of c is 32 x 32.  Where panels are deep, up to eight tiles of a row of
 * them go through the depth together, a slice at a time: a slice of a stays in
 * the first-level cache until all eight have met it, and b passes by.
 *
 * Called by: gemm.c, cpu/packed.c, cpu/strips.c.  Calls: tier/gemm_matrix.c,
 * the tier's casts and moves.
 */
#include <string.h>

#include "kernels/gemm.h"
#include "kernels/tier/tier.h"

enum {
    LANES = MR_GEMM_PIECES_LANES,
    STEP = MR_GEMM_PIECES_STEP,
    TILE = LANES * LANES,
    LINE = 16, /* floats */
    SIDE = 8,  /* tiles side by side */
    MAX_PASSES = 2
};

static const mr_gemm_matrix *
gemm_matrix(void)
{
#if defined(__x86_64__)
    return mr__gemm_matrix() ? &mr__gemm_matrix_avx512 : NULL;
#else
    return NULL;
#endif
}

static mr_gemm_kind
kind_of(mr_dtype t)
{
    return t == MR_FLOAT32   ? MR_GEMM_FLOAT32
           : t == MR_FLOAT16 ? MR_GEMM_FLOAT16
                             : MR_GEMM_BFLOAT16;
}

int
mr__gemm_pieces(mr_dtype t)
{
    if (!mr__gemm_matrix())
        return 0;
    return t == MR_FLOAT32 ? 3 : t == MR_FLOAT16 ? 2 : t == MR_BFLOAT16 ? 1 : 0;
}

/* ---- packing ---------------------------------------------------------------
 */

/* Neither lanes nor depths are adjacent: a step of each panel at a time is
 * brought together first. */
static mr_gemm_range
gathered(const mr_gemm_side *s, bool right, int64_t panel, int64_t n_panels,
         int64_t depth0, int64_t depth, float *to, int64_t apart)
{
    int64_t each = mr__gemm_steps(MR_GEMM_IN_PIECES, s->dtype, STEP) * LANES;
    int64_t size = s->dtype == MR_FLOAT32 ? 4 : 2;
    float dense[LANES * STEP];
    mr_gemm_range all = MR_GEMM_RANGE_NONE;

    for (int64_t k = 0; k < n_panels; k++)
        for (int64_t d = 0; d < depth; d += STEP) {
            int64_t lane0 = (panel + k) * LANES, n = depth - d;
            int64_t lanes = s->lanes - lane0;
            mr_gemm_side x = {dense, s->dtype, lanes, STEP, 1};

            n = n < STEP ? n : STEP;
            for (int64_t l = 0; l < lanes && l < LANES; l++)
                mr__tier()->moves->gather[size / 2](
                    (char *)dense + l * STEP * size,
                    (const char *)s->data + ((lane0 + l) * s->lane_stride +
                                             (depth0 + d) * s->depth_stride) *
                                                size,
                    s->depth_stride * size, n);
            all = mr__gemm_range_join(all,
                                      gemm_matrix()->pack[kind_of(s->dtype)](
                                          &x, right, 0, 1, 0, n,
                                          to + k * apart + d / STEP * each, 0));
        }
    return all;
}

mr_gemm_range
mr__gemm_pack_pieces(const mr_gemm_side *s, bool right, int64_t panel,
                     int64_t n, int64_t depth0, int64_t depth, float *to,
                     int64_t apart)
{
    if (s->lane_stride != 1 && s->depth_stride != 1)
        return gathered(s, right, panel, n, depth0, depth, to, apart);
    return gemm_matrix()->pack[kind_of(s->dtype)](s, right, panel * LANES, n,
                                                  depth0, depth, to, apart);
}

mr_gemm_range
mr__gemm_range_join(mr_gemm_range x, mr_gemm_range y)
{
    return (mr_gemm_range){.least = x.least < y.least ? x.least : y.least,
                           .most = x.most > y.most ? x.most : y.most};
}

bool
mr__gemm_ranges_fit(mr_dtype t, mr_gemm_range a, mr_gemm_range b)
{
    /* Sums of bfloat16 products from WHOLE on are multiples of 2^-126: none of
     * them is taken for 0 where numbers cancel. */
    enum { NORMAL = -126, WHOLE = NORMAL + 14, LEAST = -100, MOST = 60 };
    int least = a.least < b.least ? a.least : b.least;
    int most = a.most > b.most ? a.most : b.most;

    if (t == MR_FLOAT16)
        return most < 128;
    if (t == MR_BFLOAT16)
        return least >= NORMAL && a.least + b.least >= WHOLE;
    return most < MOST && least >= LEAST && a.least + b.least >= LEAST;
}

/* Beside any numbers of 2^-50 and more that are no larger than 2^60 (bfloat16:
 * 2^-56, finite, since the other side may have two pieces). */
bool
mr__gemm_pieces_panels(const mr_gemm_side *s, bool right, int64_t panel,
                       int64_t n, int64_t depth0, int64_t depth, float *to,
                       int64_t apart)
{
    enum { LARGE = -50, LEAST = -56 };
    mr_gemm_range r =
        mr__gemm_pack_pieces(s, right, panel, n, depth0, depth, to, apart);

    if (r.least == MR_GEMM_RANGE_NONE.least)
        return true;
    if (s->dtype == MR_BFLOAT16)
        return r.least >= LEAST && r.most < 128;
    return mr__gemm_ranges_fit(s->dtype, r, MR_GEMM_RANGE_NONE) &&
           (s->dtype == MR_FLOAT16 || r.most >= LARGE);
}

/* ---- tiles -----------------------------------------------------------------
 */

/* Products that are added up through the depth before the next ones are.  Of
 * `near` elements of a lane, a slice, a panel of a stays in the first-level
 * cache (48 KB): where a step has 4 products of tiles for its 4 loads, both
 * cannot come from the second level.  With 16 products they can. */
typedef struct pass {
    mr_gemm_spans spans;
    int64_t near;
    int64_t distant; /* lines that a step asks for */
} pass;

/* How many products there are for pieces as in mr_gemm_chunk; a pass that is
 * none has near 0. */
typedef struct how {
    pass pass[MAX_PASSES];
    int64_t a_step, b_step; /* floats of a panel */
    int side;               /* tiles that go side by side */
    bool many; /* a chunk adds up from 0 before it is added to c, as in floats:
                  a chain through all of them would be rounded more often */
} how;

#define DEEP INT64_MAX
static const how hows[] = {
    [1] = {{{MR_GEMM_SPAN_1, 16 * STEP / 2, 0}}, 512, 512, 4, false},
    [2] = {{{MR_GEMM_SPAN_2, DEEP, 8}}, 1024, 1024, SIDE, true},
    [3] = {{{MR_GEMM_SPAN_LESSER, DEEP, 20},
            {MR_GEMM_SPAN_LARGEST, 16 * STEP * 3 / 2, 0}},
           1536,
           1536,
           SIDE,
           true},
    [MR_GEMM_1_BY_2] =
        {{{MR_GEMM_SPAN_1_BY_2, DEEP, 0}}, 512, 1024, SIDE, false},
    [MR_GEMM_2_BY_1] =
        {{{MR_GEMM_SPAN_2_BY_1, DEEP, 0}}, 1024, 512, SIDE, false},
    [MR_GEMM_2_TURNED] =
        {{{MR_GEMM_SPAN_2_TURNED, DEEP, 8}}, 1024, 1024, SIDE, true},
    [MR_GEMM_3_TURNED] = {{{MR_GEMM_SPAN_LESSER_TURNED, DEEP, 20},
                           {MR_GEMM_SPAN_LARGEST, 16 * STEP * 3 / 2, 0}},
                          1536,
                          1536,
                          SIDE,
                          true},
};
static const how how_far = {
    {{MR_GEMM_SPAN_FAR, 8 * STEP / 2, 4}}, 512, 512, SIDE, false};

static const how *
how_of(const mr_gemm_chunk *g)
{
    return g->pieces == 1 && g->far ? &how_far : &hows[g->pieces];
}

/* Lines that are needed later. */
typedef struct road {
    const float *at, *end;
} road;

/* A tile of c. */
typedef struct square {
    int64_t i, j; /* of its panels */
    int64_t rows, cols;
    int r, v;          /* of the smallest tile of the unit that covers it */
    const float *from; /* where its sums begin; NULL: at 0 */
    float *to;         /* where they end: in c, in g->sums or in the buffer */
    int64_t row;       /* of `from` and `to` */
    float *buffer;
} square;

static square
square_at(const mr_gemm_chunk *g, int64_t i, int64_t j, float *buffer)
{
    enum { HALF = LANES / 2 };
    bool many = how_of(g)->many, whole;
    square c = {.i = i,
                .j = j,
                .rows = g->m - i * LANES,
                .cols = g->n - j * LANES,
                .row = LANES,
                .buffer = buffer};

    c.rows = c.rows < LANES ? c.rows : LANES;
    c.cols = c.cols < LANES ? c.cols : LANES;
    c.r = c.rows > HALF;
    c.v = c.cols > HALF;
    c.to = buffer;
    whole = c.rows == (c.r + 1) * HALF && c.cols == (c.v + 1) * HALF;
    if (g->dtype == MR_FLOAT32 && whole && (g->first || !many)) {
        c.to = (float *)g->c + (i * g->c_row + j) * LANES;
        c.row = g->c_row;
        c.from = g->first ? NULL : c.to;
    } else if (g->dtype != MR_FLOAT32 && g->sums && g->first) {
        c.to = g->sums + (i * ((g->n + LANES - 1) / LANES) + j) * TILE;
    }
    return c;
}

/* c takes what the buffer has. */
static void
floats_take(const mr_gemm_chunk *g, const square *c)
{
    float *to = (float *)g->c + (c->i * g->c_row + c->j) * LANES;
    const float *from = c->buffer;

    for (int64_t k = 0; k < c->rows; k++, to += g->c_row, from += LANES)
        for (int64_t l = 0; l < c->cols; l++)
            to[l] = g->first ? from[l] : to[l] + from[l];
}

static void
halves_round(const mr_gemm_chunk *g, const square *c, const float *sums)
{
    uint16_t rounded[TILE];
    uint16_t *to = (uint16_t *)g->c + (c->i * g->c_row + c->j) * LANES;

    if (c->rows == LANES && c->cols == LANES) {
        gemm_matrix()->round[kind_of(g->dtype)](sums, to, g->c_row);
        return;
    }
    gemm_matrix()->round[kind_of(g->dtype)](sums, rounded, LANES);
    for (int64_t k = 0; k < c->rows; k++, to += g->c_row)
        memcpy(to, rounded + k * LANES, (size_t)c->cols * sizeof *to);
}

/* The chunk's sums are complete.  Halves add up in g->sums, or wait nowhere
 * when there is one chunk, and are rounded after the last one. */
static void
square_finish(const mr_gemm_chunk *g, const square *c)
{
    float *sums = c->to;

    if (g->dtype == MR_FLOAT32) {
        if (c->to == c->buffer)
            floats_take(g, c);
        return;
    }
    if (g->sums && !g->first) {
        sums = g->sums + (c->i * ((g->n + LANES - 1) / LANES) + c->j) * TILE;
        for (int k = 0; k < TILE; k++)
            sums[k] += c->buffer[k];
    }
    if (g->last)
        halves_round(g, c, sums);
}

/* Depth [at, at + depth) of a tile in one pass. */
typedef struct slice {
    const pass *pass;
    int64_t at, depth;
    bool first, last; /* of all passes */
} slice;

/* n slices of n tiles: what follows slice k of a tile is of the next tile, or
 * of the first one's next slice. */
static void
slice_run(const mr_gemm_chunk *g, const slice *x, const square *c,
          const square *next, const slice *after, road *far)
{
    const how *h = how_of(g);
    int64_t b_depth = g->depth * h->b_step / h->a_step;
    int64_t b_at = x->at * h->b_step / h->a_step;
    const float *b = g->b + (c->j - g->b_first) * b_depth * LANES;
    const float *b_next = g->b + (next->j - g->b_first) * b_depth * LANES;
    mr_gemm_span s = {.depth = x->depth,
                      .a = g->a +
                           ((c->i - g->a_first) * g->depth + x->at) * LANES,
                      .b = b + b_at * LANES,
                      .from = x->first ? c->from : c->buffer,
                      .from_row = x->first ? c->row : LANES,
                      .to = x->last ? c->to : c->buffer,
                      .to_row = x->last ? c->row : LANES,
                      .far = far->at};

    if (c->j == next->j && x == after) { /* one panel of b: a passes by */
        s.soon = s.a + h->a_step;
        s.next = s.a + x->depth * LANES;
    } else {
        s.soon = s.b + h->b_step;
        s.next = b_next + after->at * LANES;
    }
    if (far->at < far->end)
        s.far_step = LINE;
    else
        s.far = s.a;
    far->at += x->depth * LANES / h->a_step * x->pass->distant * LINE;
    gemm_matrix()->span[x->pass->spans][c->r][c->v](&s);
}

/* A tile in one go. */
static void
square_run(const mr_gemm_chunk *g, int64_t i, int64_t j, int64_t next)
{
    static const pass both = {MR_GEMM_SPAN_3, DEEP, 0};
    static const pass both_turned = {MR_GEMM_SPAN_3_TURNED, DEEP, 0};
    const pass *p = g->pieces == 3                  ? &both
                    : g->pieces == MR_GEMM_3_TURNED ? &both_turned
                                                    : how_of(g)->pass;
    _Alignas(64) float buffer[TILE];
    square c = square_at(g, i, j, buffer), d = {.j = next};
    slice x = {p, 0, g->depth, true, true};
    road far = {NULL, NULL};

    slice_run(g, &x, &c, &d, &x, &far);
    square_finish(g, &c);
}

/* The next slice in the order of passes; false at the end of all. */
static bool
slice_next(const mr_gemm_chunk *g, slice *x)
{
    const pass *p = how_of(g)->pass, *end = p + MAX_PASSES;

    x->first = false;
    x->at += x->depth;
    if (x->at >= g->depth) {
        x->at = 0;
        x->pass++;
        if (x->pass == end || x->pass->near == 0)
            return false;
    }
    x->depth = x->pass->near;
    if (x->depth > g->depth - x->at)
        x->depth = g->depth - x->at;
    x->last = x->at + x->depth == g->depth &&
              (x->pass + 1 == end || x->pass[1].near == 0);
    return true;
}

/* What of a is met for the first time after a slice: the next slice while the
 * first tiles of a row have this one, the next panel's first one at the end
 * (while the first tiles have the whole panel, if that is one slice). */
static road
road_at(const mr_gemm_chunk *g, int64_t i, const slice *x, bool first,
        bool last)
{
    const float *a = g->a + ((i - g->a_first) * g->depth + x->at) * LANES;
    int64_t depth = x->depth * LANES;
    bool end = x->at + x->depth == g->depth;

    if (!g->far || !(end && x->at > 0 ? last : first))
        return (road){NULL, NULL};
    return (road){a + depth, a + 2 * depth};
}

/* Tiles [j0, j1) of row i side by side; `first`, `last`: of the row. */
static void
squares_run(const mr_gemm_chunk *g, int64_t i, int64_t j0, int64_t j1,
            bool first, bool last)
{
    _Alignas(64) float buffer[SIDE * TILE];
    const pass *p = how_of(g)->pass;
    slice x = {p, 0, p->near < g->depth ? p->near : g->depth, true, false};
    slice after = x;
    int64_t n = j1 - j0;
    square c[SIDE];

    for (int64_t k = 0; k < n; k++)
        c[k] = square_at(g, i, j0 + k, buffer + k * TILE);
    for (bool more = true; more; x = after) {
        road far = road_at(g, i, &x, first, last);

        more = slice_next(g, &after);
        for (int64_t k = 0; k < n; k++) {
            slice_run(g, &x, &c[k], &c[k + 1 < n ? k + 1 : 0],
                      k + 1 < n || !more ? &x : &after, &far);
            if (x.last)
                square_finish(g, &c[k]);
        }
    }
}

void
mr__gemm_pieces_block(const mr_gemm_chunk *g, int64_t i0, int64_t i1,
                      int64_t j0, int64_t j1)
{
    const mr_gemm_matrix *m = gemm_matrix();
    const pass *p = how_of(g)->pass;
    int64_t near = p[1].near ? p[1].near : p[0].near;
    bool deep = g->depth > near && j1 - j0 > 1;
    int64_t side = deep ? how_of(g)->side : 1;

    m->enter();
    for (int64_t i = i0; i < i1; i++)
        for (int64_t j = j0; j < j1; j += side)
            if (deep)
                squares_run(g, i, j, j1 - j < side ? j1 : j + side, j == j0,
                            j1 - j <= side);
            else
                square_run(g, i, j, j + 1 < j1 ? j + 1 : j0);
    m->leave();
}
