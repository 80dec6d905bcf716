/* SPDX-License-Identifier: Apache-2.0
 *
 * packed.c -- the packed matrix product over the pool.
 *
 * For each span of depth two parallel loops: panels are packed into the
 * workspace, then all blocks of c are computed from there.  A span is some
 * chunks, which a block takes one after the other, as many as SPAN_BYTES hold:
 * what is packed stays in the third-level cache.  Chunks alone decide in which
 * order a sum is made.  Small items of a batch go through the loops together,
 * as many as fit GROUP_BYTES.
 *
 * A block is a panel of a, or up to 48 rows where that is little work, by up to
 * 1,024 columns: rows of c go on for long, so that they come from memory well,
 * and the panel stays near the processor while b passes by.  Where a block has
 * all columns it packs its panels of a itself, one at a time, on its stack.
 * What follows a product runs on blocks of 48 rows.  The last blocks that
 * threads take go in parts.
 *
 * A small b whose columns are adjacent is not packed at all, other small ones
 * by each thread for itself; then there is one loop.
 *
 * Called by: matmul.c, conv.c.  Calls: kernels/gemm.h, the pool.
 */
#include <stdatomic.h>
#include <stddef.h>

#include "base/pool.h"
#include "cpu/product.h"

enum {
    BLOCK_ROWS = 48,
    BLOCK_COLS = 1024,
    FEW_BLOCKS = 64,
    PIECES_FEW = 4,
    LIES_BYTES = 640 << 10,
    LIES_ALONE_BYTES = 2200 << 10,
    LIES_LEVEL = 1 << 20, /* the second level that these were measured with */
    SPAN_BYTES = 2 << 20,
    PIECES_SPAN_BYTES = 32 << 20,
    ALONE_FLOATS = 12 << 10, /* of a panel on the stack */
    PIECES_ROWS = 512,       /* of a block */
    GROUP_BYTES = 32 << 20,
    AHEAD_COLS = 512, /* rows of a large a pass by fast: fetched ahead */
    AHEAD_BYTES = 2 << 20,
    AHEAD_PANELS = 4,
    PACK_PANELS = MR_GEMM_MAX_PANELS, /* of b at a time: 1 KB of each row */
    PACK_STEPS = 64,                  /* and of so many depths (or pairs) */
    GRAIN_SHARES = 4,
    BLOCK_NS = 10000,
    PIECES_DEPTH = 1024,      /* of a chunk */
    PIECES_SMALL = 400 * 400, /* numbers of b */
    EACH_EVEN_BYTES = 640 << 10,
    EACH_ITEMS = 4,
    EACH_BYTES = 256 << 10, /* of an item's packed b */
    CUT_BLOCKS = 2, /* the last ones that threads take, in so many parts */
    CUT_PARTS = 4,
    OWN_ROWS = 250, /* of c, for each thread */
    OWN_GRAINS = 2,
    LINE = 64
};

#define LEFT_BACK (INT64_C(1) << 32)

/* Of one thread: a multiply-add of a product, and of one piece by another; a
 * number that is packed, and each piece of one. */
#define NS_A_NUMBER      0.02
#define NS_A_PIECE       0.001
#define PACK_NS_A_NUMBER 0.25
#define PACK_NS_A_PIECE  0.1

typedef struct packed {
    const mr_product *p;
    int rows, cols; /* of a panel */
    int words;      /* floats that an element takes */
    mr_gemm_form form;
    int64_t a_panels, b_panels;             /* of an item */
    int64_t chunk, span;                    /* the deepest ones */
    int64_t a_floats, b_floats, sum_floats; /* of an item */
    int64_t group;                          /* items at a time */
    int64_t pack_panels, pack_depth;        /* of b that are packed together */
    bool a_shared, b_shared;                /* all items have the same */
    bool lies;                              /* b is read where it lies */
    bool alone;                             /* a block packs its own a */
    bool own;                               /* each thread packs its own b */
    bool each;    /* a unit is an item, and packs its own b */
    int n_slots;  /* so many threads */
    bool follows; /* blocks run what follows */
    float *a, *b, *sums;
    atomic_bool unfit; /* relaxed: read after the loop, else only a hint */
    /* where the loops are */
    int64_t item0, n_items, depth0, depth, n_chunks; /* depth of the span */
    int64_t block_rows, block_cols;                  /* blocks of an item */
    int64_t cut_at, n_cut;                           /* those in parts */
} packed;

/* Do lines so many bytes apart, of a whole chunk, leave each other their places
 * in a second level below 1 MB, of eight ways?  512 x 512 float32, one thread
 * of a Zen 3, GFLOP/s: 66 where it lies, 90 packed. */
static bool
lines_stay(const packed *s, int64_t stride)
{
    int64_t level = mr__gemm_level2_bytes(), way = level / 8;
    int64_t apart = stride & -stride;

    if (level >= LIES_LEVEL)
        return true;
    apart = apart < LINE ? LINE : apart < way ? apart : way;
    return 2 * s->chunk <= level / apart;
}

/* Is b read where it lies?  As long as it stays in the second-level cache its
 * columns, adjacent, need no copy; each item's own b is cold when it is met.
 * Kernels take a row step of 0 for a packed panel: one row seen again and again
 * is packed. */
static bool
b_lies(const packed *s)
{
    const mr_product *p = s->p;
    int64_t size = mr__dtype_size(p->dtype), bytes = p->n * p->k * size;

    if (mr__gemm_level2_bytes() < LIES_LEVEL)
        bytes = bytes * LIES_LEVEL / mr__gemm_level2_bytes();
    return (p->dtype == MR_FLOAT32 || p->dtype == MR_FLOAT64) && !p->pack_b &&
           p->b.lane_stride == 1 && p->b.depth_stride != 0 &&
           p->n % s->cols == 0 && lines_stay(s, p->b.depth_stride * size) &&
           bytes <= (s->b_shared ? LIES_ALONE_BYTES : LIES_BYTES);
}

/* Elements of a panel's lane for so much depth. */
static int64_t
steps_of(const packed *s, int64_t depth)
{
    return mr__gemm_steps(s->form, s->p->dtype, depth);
}

/* Room for n items' worth of packed panels, in floats: whole cache lines. */
static void
packed_rooms(packed *s, int64_t n_chunks)
{
    const mr_product *p = s->p;
    int64_t a = s->alone ? 0 : s->a_panels * s->rows;
    int64_t b = s->lies ? 0 : s->b_panels * s->cols;
    int64_t most =
        s->form == MR_GEMM_IN_PIECES ? PIECES_SPAN_BYTES : SPAN_BYTES;
    int64_t bytes = (a + b) * steps_of(s, s->chunk) * 4 * s->words, steps;

    s->span = bytes > 0 ? most / bytes : n_chunks;
    s->span = s->span < 1 ? 1 : s->span > n_chunks ? n_chunks : s->span;
    s->span *= s->chunk;
    steps = steps_of(s, s->span) * s->words;
    s->a_floats = (a * steps + 15) / 16 * 16;
    s->b_floats = (b * steps + 15) / 16 * 16;
    if (mr__dtype_size(p->dtype) == 2 && n_chunks > 1)
        s->sum_floats = s->form == MR_GEMM_IN_PIECES
                            ? s->a_panels * s->rows * s->b_panels * s->cols
                            : p->m * p->n;
    bytes = (s->a_floats + s->b_floats + s->sum_floats) * 4;
    s->group = bytes > 0 ? GROUP_BYTES / bytes : p->n_items;
    s->group = s->group < 1 ? 1 : s->group > p->n_items ? p->n_items : s->group;
}

/* Rows of b come from memory in long pieces, some of them a unit, so that
 * threads share them evenly; columns, turned, and what is unpacked come panel
 * by panel. */
static void
packing_plan(packed *s)
{
    const mr_gemm_side *b = &s->p->b;
    bool rows = !s->p->pack_b && b->lane_stride == 1 && b->depth_stride != 1;
    bool pairs = s->form == MR_GEMM_IN_PAIRS;

    s->pack_panels = rows ? PACK_PANELS : 1;
    s->pack_depth = !rows ? s->chunk : pairs ? 2 * PACK_STEPS : PACK_STEPS;
}

double
mr__product_ns(const mr_product *p)
{
    if (p->form != MR_GEMM_IN_PIECES)
        return NS_A_NUMBER;
    switch (mr__gemm_pieces(p->dtype)) {
    case 1:
        return NS_A_PIECE;
    case 2:
        return 4 * NS_A_PIECE;
    default:
        return 6 * NS_A_PIECE;
    }
}

double
mr__product_pack_ns(const mr_product *p)
{
    return p->form == MR_GEMM_IN_PIECES
               ? PACK_NS_A_PIECE * mr__gemm_pieces(p->dtype)
               : PACK_NS_A_NUMBER;
}

/* Does each thread pack a small b for itself?  What is packed for all has to
 * leave the caches of all that read it last time before it is written again,
 * which can take longer than packing; and there is no loop to wait for.  What
 * is one grain would not be shared anyway; more must meet many rows. */
static bool
b_own(const packed *s)
{
    const mr_product *p = s->p;
    int64_t grains = p->m >= OWN_ROWS * (int64_t)s->n_slots ? OWN_GRAINS : 1;

    return s->alone && !s->lies && !p->pack_b && p->n_items == 1 &&
           s->n_slots * s->b_floats * 4 <= GROUP_BYTES &&
           p->n * p->k <= grains * mr__cpu_grain(mr__product_pack_ns(s->p));
}

/* Columns of a block at most. */
static int64_t
cols_most(const packed *s)
{
    int64_t bytes = steps_of(s, s->chunk) * s->words * 4;
    int64_t cols = BLOCK_COLS, near = mr__gemm_near_bytes() / bytes;

    cols = near < cols ? near : cols;
    cols = cols / s->cols * s->cols;
    return cols > s->cols ? cols : s->cols;
}

/* The depth of a chunk at most. */
static int64_t
chunk_most(const mr_product *p)
{
    switch (p->form) {
    case MR_GEMM_IN_PAIRS:
        return MR_GEMM_PAIRS_DEPTH;
    case MR_GEMM_IN_PIECES:
        if (p->n * p->k <= PIECES_SMALL && p->dtype != MR_BFLOAT16)
            return ALONE_FLOATS / MR_GEMM_PIECES_LANES * 2 /
                   mr__gemm_pieces(p->dtype);
        return p->dtype == MR_BFLOAT16 ? 2 * PIECES_DEPTH : PIECES_DEPTH;
    case MR_GEMM_FLOATS:
        break;
    }
    return p->dtype == MR_FLOAT64 ? MR_GEMM_DEPTH / 2 : MR_GEMM_DEPTH;
}

int64_t
mr__product_chunk(const mr_product *p)
{
    int64_t n_chunks = (p->k - 1) / chunk_most(p) + 1;
    int64_t chunk = (p->k - 1) / n_chunks + 1;

    if (p->pack_b || p->form != MR_GEMM_FLOATS)
        chunk = (chunk + 31) / 32 * 32;
    return chunk;
}

/* Items of a batch that do not share b go whole, each packed by the thread that
 * multiplies it, while it is near; larger ones where threads end together. */
static void
each_plan(packed *s)
{
    const mr_product *p = s->p;
    int threads = mr__pool_threads();
    bool even = p->n_items % threads == 0 || p->n_items >= EACH_ITEMS * threads;
    int64_t near = mr__gemm_near_bytes(), most;

    most = s->form == MR_GEMM_IN_PIECES && !even ? EACH_BYTES : EACH_EVEN_BYTES;
    if (s->form == MR_GEMM_FLOATS)
        most = even && near != INT64_MAX ? near : 0;
    s->each = s->form != MR_GEMM_IN_PAIRS && s->alone && !s->lies &&
              p->n_items > 1 && !s->b_shared && !p->pack_b && s->span >= p->k &&
              s->sum_floats == 0 && s->b_floats * 4 <= most;
    if (!s->each)
        return;
    s->group = p->n_items;
    s->n_slots = threads;
}

static void
packed_plan(const mr_product *p, packed *s)
{
    int words = p->dtype == MR_FLOAT64 ? 2 : 1;

    *s = (packed){.p = p,
                  .rows = mr__gemm_form_rows(p->form),
                  .cols = mr__gemm_form_cols(p->form) / words,
                  .words = words,
                  .form = p->form};
    s->chunk = mr__product_chunk(p);
    s->a_panels = (p->m - 1) / s->rows + 1;
    s->b_panels = (p->n - 1) / s->cols + 1;
    s->a_shared = mr__product_side_shared(&p->batch, 0);
    s->b_shared = mr__product_side_shared(&p->batch, 1);
    s->lies = p->form == MR_GEMM_FLOATS && b_lies(s);
    s->alone = s->b_panels <= BLOCK_COLS / s->cols &&
               s->rows * steps_of(s, s->chunk) * words <= ALONE_FLOATS &&
               (p->n_items == 1 || !s->a_shared);
    packing_plan(s);
    packed_rooms(s, (p->k - 1) / s->chunk + 1);
    s->n_slots = mr__pool_threads();
    if (s->n_slots > s->a_panels)
        s->n_slots = (int)s->a_panels;
    s->own = b_own(s);
    each_plan(s);
}

/* Packed ones that there is room for. */
static int64_t
n_b(const packed *s)
{
    return s->own || s->each ? s->n_slots : s->b_shared ? 1 : s->group;
}

size_t
mr__product_packed_bytes(const mr_product *p)
{
    size_t bytes;
    packed s;

    if (mr__product_near_fits(p))
        return mr__product_near_bytes(p);
    bytes = mr__product_grid_bytes(p);
    if (bytes > 0)
        return bytes;
    packed_plan(p, &s);
    return (size_t)((s.a_shared ? 1 : s.group) * s.a_floats +
                    n_b(&s) * s.b_floats + s.group * s.sum_floats) *
           sizeof(float);
}

static bool
unfit(packed *s)
{
    return atomic_load_explicit(&s->unfit, memory_order_relaxed);
}

/* The depth of a chunk of the span. */
static int64_t
chunk_depth(const packed *s, int64_t chunk)
{
    int64_t left = s->depth - chunk * s->chunk;

    return left < s->chunk ? left : s->chunk;
}

/* Panels of a that are packed before the blocks, of all items. */
static int64_t
a_units(const packed *s)
{
    return s->alone ? 0 : (s->a_shared ? 1 : s->n_items) * s->a_panels;
}

/* What of b is packed together. */
static int64_t
b_groups(const packed *s)
{
    return (s->b_panels - 1) / s->pack_panels + 1;
}

static int64_t
b_pieces(const packed *s)
{
    return (chunk_depth(s, 0) - 1) / s->pack_depth + 1;
}

static int64_t
b_units(const packed *s)
{
    return s->lies ? 0
                   : (s->b_shared ? 1 : s->n_items) * b_groups(s) * b_pieces(s);
}

/* Panels of an item's a or b, `apart` floats from one to the next. */
static void
panels_pack(packed *s, const mr_gemm_side *side, bool right, int64_t item,
            int64_t panel, int64_t n, int64_t depth0, int64_t depth, float *to,
            int64_t apart)
{
    const mr_seen *seen = s->p->seen;

    item += s->item0;
    if (s->form == MR_GEMM_IN_PIECES)
        mr__ranges_take(right ? mr__seen_b(seen, item)
                              : mr__seen_a(seen, item, panel),
                        mr__gemm_pack_pieces(side, right, panel, n, depth0,
                                             depth, to, apart));
    else if (!mr__gemm_pack_panels(side, right, panel, n, depth0, depth,
                                   s->form, to, apart))
        atomic_store_explicit(&s->unfit, true, memory_order_relaxed);
}

/* A panel of a, of one chunk. */
static void
a_pack(packed *s, int64_t chunk, int64_t item, int64_t panel)
{
    int64_t depth = chunk_depth(s, chunk), first = chunk * s->chunk;
    mr_gemm_side a, b;
    void *c;

    mr__product_item(s->p, s->item0 + item, &a, &b, &c);
    panels_pack(
        s, &a, false, item, panel, 1, s->depth0 + first, depth,
        s->a + item * s->a_floats +
            (s->a_panels * steps_of(s, first) + panel * steps_of(s, depth)) *
                s->rows * s->words,
        0);
}

/* Panels of b, of one piece of a chunk; `all` is room for the item's. */
static void
b_pack(packed *s, int64_t chunk, int64_t item, int64_t piece, int64_t group,
       float *all)
{
    int64_t depth = chunk_depth(s, chunk), first = chunk * s->chunk;
    int64_t at = piece * s->pack_depth, panel = group * s->pack_panels;
    int64_t n = s->b_panels - panel, lane = s->cols * s->words;
    int64_t apart = steps_of(s, depth) * lane;
    float *to = all + s->b_panels * steps_of(s, first) * lane + panel * apart +
                steps_of(s, at) * lane;
    mr_gemm_side a, b;
    void *c;

    if (at >= depth)
        return;
    depth = depth - at < s->pack_depth ? depth - at : s->pack_depth;
    if (s->p->pack_b) {
        s->p->pack_b(s->p->pack_ctx, mr__product_offset(s->p, s->item0 + item),
                     s->cols, panel, s->depth0 + first, depth, to);
        return;
    }
    mr__product_item(s->p, s->item0 + item, &a, &b, &c);
    panels_pack(s, &b, true, item, panel,
                n < s->pack_panels ? n : s->pack_panels, s->depth0 + first + at,
                depth, to, apart);
}

static void
b_unit(packed *s, int64_t chunk, int64_t u)
{
    int64_t groups = b_groups(s), pieces = b_pieces(s);
    int64_t item = u / groups / pieces;

    b_pack(s, chunk, item, u / groups % pieces, u % groups,
           s->b + item * s->b_floats);
}

/* Units: the panels of a of all items, then what of b is packed together, whole
 * rows first; of each chunk. */
static void
pack_piece(void *ctx, int64_t begin, int64_t end)
{
    packed *s = ctx;
    int64_t n_a = a_units(s), each = n_a + b_units(s);

    for (int64_t k = begin; each > 0 && k < end && !unfit(s); k++) {
        int64_t u = k % each, chunk = k / each;

        if (u < n_a)
            a_pack(s, chunk, u / s->a_panels, u % s->a_panels);
        else
            b_unit(s, chunk, u - n_a);
    }
}

/* All of an item's b, by the thread that will read it. */
static void
own_pack(packed *s, int64_t item, float *to)
{
    int64_t groups = b_groups(s), pieces = b_pieces(s);

    for (int64_t chunk = 0; chunk < s->n_chunks; chunk++)
        for (int64_t u = 0; u < groups * pieces; u++)
            b_pack(s, chunk, item, u / groups, u % groups, to);
}

/* A block: which item's, which panels of a and b. */
typedef struct block {
    int64_t item, i0, i1, j0, j1;
    const float *b; /* its thread's own, or NULL */
} block;

/* Those of a column of blocks come one after the other: they have b's panels in
 * common. */
static block
block_at(const packed *s, int64_t n)
{
    int64_t per_item = s->block_rows * s->block_cols, at = n % per_item;
    int64_t row = at % s->block_rows, col = at / s->block_rows;

    return (block){.item = n / per_item,
                   .i0 = row * s->a_panels / s->block_rows,
                   .i1 = (row + 1) * s->a_panels / s->block_rows,
                   .j0 = col * s->b_panels / s->block_cols,
                   .j1 = (col + 1) * s->b_panels / s->block_cols};
}

static int64_t
n_blocks(const packed *s)
{
    return s->n_items * s->block_rows * s->block_cols;
}

/* Units: blocks, but some of them in parts. */
static int64_t
n_units(const packed *s)
{
    return n_blocks(s) + s->n_cut * (CUT_PARTS - 1);
}

static block
unit_at(const packed *s, int64_t unit)
{
    int64_t past = unit - s->cut_at, part = past % CUT_PARTS, j0, n;
    block k;

    if (past < 0 || s->n_cut == 0)
        return block_at(s, unit);
    if (past >= s->n_cut * CUT_PARTS)
        return block_at(s, unit - s->n_cut * (CUT_PARTS - 1));
    k = block_at(s, s->cut_at + past / CUT_PARTS);
    j0 = k.j0;
    n = k.j1 - j0;
    k.j0 = j0 + n * part / CUT_PARTS;
    k.j1 = j0 + n * (part + 1) / CUT_PARTS;
    return k;
}

/* Lines of rows of a, depths adjacent, that are asked for ahead of their
 * packing: `part` of `parts` of those of a panel. */
static void
rows_fetch(const packed *s, const mr_gemm_side *a, int64_t panel, int64_t at,
           int64_t depth, int64_t part, int64_t parts)
{
    int64_t size = mr__dtype_size(a->dtype), row = panel * s->rows;
    int64_t rows = a->lanes - row < s->rows ? a->lanes - row : s->rows;
    int64_t lines = (depth * size + LINE - 1) / LINE;
    const char *from =
        (const char *)a->data + (row * a->lane_stride + at) * size;

    for (int64_t l = lines * part / parts; l < lines * (part + 1) / parts; l++)
        for (int64_t k = 0; k < rows; k++)
            __builtin_prefetch(from + k * a->lane_stride * size + l * LINE, 0,
                               2);
}

/* Panel i of a meets b; with the last panels of b the next one of a is asked
 * for: sooner it would be gone again. */
static void
panel_meet(const packed *s, const mr_gemm_side *a, const mr_gemm_chunk *g,
           const block *k, int64_t i, int64_t at, int64_t depth)
{
    int64_t late = k->j1 - k->j0 < AHEAD_PANELS ? k->j1 - k->j0 : AHEAD_PANELS;

    mr__gemm_block(g, i, i + 1, k->j0, k->j1 - late);
    for (int64_t j = 0; j < late; j++) {
        rows_fetch(s, a, i + 1, at, depth, j, late);
        mr__gemm_block(g, i, i + 1, k->j1 - late + j, k->j1 - late + j + 1);
    }
}

/* Can none of its rows go in pieces?  Then they are made later. */
static bool
panel_hopeless(const packed *s, int64_t item, int64_t panel)
{
    return s->form == MR_GEMM_IN_PIECES &&
           mr__seen_hopeless(s->p->seen, s->item0 + item, panel);
}

/* All panels of a block meet its b, but hopeless ones. */
static void
chunk_met(const packed *s, const mr_gemm_chunk *g, const block *k)
{
    int64_t i = k->i0, end;

    for (; i < k->i1; i = end) {
        for (; i < k->i1 && panel_hopeless(s, k->item, i); i++)
            ;
        for (end = i; end < k->i1 && !panel_hopeless(s, k->item, end); end++)
            ;
        mr__gemm_block(g, i, end, k->j0, k->j1);
    }
}

/* One chunk of depth, from `at` on, of a block that packs its own a: a panel
 * stays in the first-level cache until all of b has met it. */
static void
chunk_alone(packed *s, const mr_gemm_side *a, const mr_gemm_chunk *chunk,
            const block *k, int64_t at, int64_t depth)
{
    _Alignas(64) float panel[ALONE_FLOATS];
    bool ahead = s->form != MR_GEMM_IN_PIECES && a->depth_stride == 1 &&
                 s->p->n <= AHEAD_COLS &&
                 s->p->m * s->p->k * mr__dtype_size(a->dtype) >= AHEAD_BYTES;
    mr_gemm_chunk g = *chunk;

    g.a = panel;
    for (int64_t i = k->i0; i < k->i1 && !unfit(s); i++) {
        panels_pack(s, a, false, k->item, i, 1, at, depth, panel, 0);
        if (panel_hopeless(s, k->item, i))
            continue;
        g.a_first = i;
        if (ahead && i + 1 < s->a_panels)
            panel_meet(s, a, &g, k, i, at, depth);
        else
            mr__gemm_block(&g, i, i + 1, k->j0, k->j1);
    }
}

static void
block_run(packed *s, const block *k)
{
    const mr_product *p = s->p;
    int64_t size = mr__dtype_size(p->dtype);
    mr_gemm_chunk g = {
        .m = p->m,
        .n = p->n,
        .form = s->form,
        .pieces = mr__gemm_pieces(p->dtype),
        .c_row = p->c_row,
        .dtype = p->dtype,
        .far = !s->alone,
    };
    const float *packed_a = s->a + (s->a_shared ? 0 : k->item) * s->a_floats;
    const float *packed_b =
        k->b ? k->b : s->b + (s->b_shared ? 0 : k->item) * s->b_floats;
    mr_gemm_side a, b;

    mr__product_item(p, s->item0 + k->item, &a, &b, &g.c);
    g.b_row = s->lies ? b.depth_stride : 0;
    g.sums = s->sum_floats ? s->sums + k->item * s->sum_floats : NULL;
    for (int64_t chunk = 0; chunk < s->n_chunks; chunk++) {
        int64_t at = s->depth0 + chunk * s->chunk;
        int64_t depth = chunk_depth(s, chunk);

        g.depth = steps_of(s, depth);
        g.first = at == 0;
        g.last = at + depth == p->k;
        g.a = packed_a;
        g.b = packed_b;
        if (s->lies)
            g.b = (const float *)(const void *)((const char *)b.data +
                                                at * b.depth_stride * size);
        if (s->alone)
            chunk_alone(s, &a, &g, k, at, depth);
        else
            chunk_met(s, &g, k);
        packed_a += s->a_panels * s->rows * s->words * g.depth;
        packed_b += s->b_panels * s->cols * s->words * g.depth;
    }
}

/* A block, and what follows: it is in cache. */
static void
unit_run(packed *s, const block *k)
{
    const mr_product *p = s->p;
    int64_t i = k->i0 * s->rows, i1 = k->i1 * s->rows;
    int64_t j = k->j0 * s->cols, j1 = k->j1 * s->cols;

    block_run(s, k);
    if (s->follows && s->depth0 + s->depth == p->k)
        mr__product_after(p, s->item0 + k->item, i, (i1 < p->m ? i1 : p->m) - i,
                          j, (j1 < p->n ? j1 : p->n) - j);
}

static void
block_piece(void *ctx, int64_t begin, int64_t end)
{
    packed *s = ctx;

    for (int64_t u = begin; u < end; u++) {
        block k = unit_at(s, u);

        unit_run(s, &k);
    }
}

/* Units that nobody has taken, [front, back): back * LEFT_BACK + front. */
typedef struct own {
    packed *s;
    int64_t least; /* of them that pay for packing b once more */
    _Atomic int64_t left;
} own;

static int64_t
own_left(own *o)
{
    /* relaxed: a hint */
    int64_t left = atomic_load_explicit(&o->left, memory_order_relaxed);
    int64_t front = left & (LEFT_BACK - 1);

    return (left - front) / LEFT_BACK - front;
}

/* The first slot takes units from the front, the others from the back, so that
 * each thread meets the same rows of c in the next span. */
static int64_t
own_claim(own *o, int64_t slot)
{
    /* relaxed: only who takes which unit */
    int64_t left = atomic_fetch_add_explicit(
        &o->left, slot == 0 ? 1 : -LEFT_BACK, memory_order_relaxed);
    int64_t front = left & (LEFT_BACK - 1), back = (left - front) / LEFT_BACK;

    return front >= back ? -1 : slot == 0 ? front : back - 1;
}

/* A thread's units, and b, which it packs when it has the first one. */
static void
own_piece(void *ctx, int64_t begin, int64_t end)
{
    own *o = ctx;
    packed *s = o->s;

    for (int64_t slot = begin; slot < end; slot++) {
        float *b = s->b + slot * s->b_floats;
        bool ready = false;
        int64_t u;

        if (slot > 0 && own_left(o) < o->least)
            continue;
        while (!unfit(s) && (u = own_claim(o, slot)) >= 0) {
            block k = unit_at(s, u);

            if (!ready || s->each)
                own_pack(s, k.item, b);
            ready = true;
            k.b = b;
            unit_run(s, &k);
        }
    }
}

/* Units of `ns` nanoseconds each. */
static void
own_run(packed *s, double ns)
{
    double pack_ns = mr__product_pack_ns(s->p) * (double)(s->p->n * s->depth);
    int64_t n = n_units(s);
    own o = {.s = s, .least = s->each ? 0 : (int64_t)(pack_ns / ns)};

    if (s->each)
        ns +=
            pack_ns + mr__product_pack_ns(s->p) * (double)(s->p->m * s->depth);
    atomic_init(&o.left, n * LEFT_BACK);
    mr__cpu_for(n > mr__cpu_grain(ns) ? s->n_slots : 1, 1, own_piece, &o);
}

/* Rows of a block at most. */
static int64_t
rows_most(const packed *s)
{
    if (s->form != MR_GEMM_IN_PIECES)
        return BLOCK_ROWS;
    return PIECES_ROWS;
}

/* At a loop's end a thread waits for what another has begun, so the blocks that
 * are taken last go in parts: those in the middle, since one thread takes units
 * from the front and the others from the back. */
static void
cut_plan(packed *s, double block_ns)
{
    int64_t n = n_blocks(s), threads = mr__pool_threads();

    s->n_cut = 0;
    if (threads < 2 || n < CUT_BLOCKS * threads || block_ns < BLOCK_NS ||
        s->b_panels / s->block_cols < CUT_PARTS)
        return;
    s->n_cut = CUT_BLOCKS;
    s->cut_at = n / threads - CUT_BLOCKS / 2;
}

/* Blocks of as few panels of a as are work enough, so that threads end
 * together; higher ones where something follows, unless there are few. */
static void
blocks_plan(packed *s)
{
    int64_t most = rows_most(s) / s->rows, wide = cols_most(s) / s->cols;
    int64_t cols, high;
    double panel_ns;
    bool few;

    s->n_cut = 0;
    s->block_rows = s->block_cols = 1;
    if (s->each)
        return;
    s->block_cols = (s->b_panels - 1) / wide + 1;
    cols = s->b_panels * s->cols / s->block_cols;
    panel_ns = mr__product_ns(s->p) * (double)(s->chunk * s->rows * cols);
    high = 1 + (int64_t)(BLOCK_NS / panel_ns);
    few = s->n_items * s->block_cols * s->a_panels <
          FEW_BLOCKS * (s->form == MR_GEMM_IN_PIECES ? PIECES_FEW : most);
    if (high > most || ((s->follows || s->form == MR_GEMM_IN_PIECES) && !few))
        high = most;
    s->block_rows = (s->a_panels - 1) / high + 1;
    cut_plan(s, panel_ns * (double)high);
}

/* n units of `ns` nanoseconds each.  Threads take small shares, so that they
 * end together; what is one grain in all is not shared. */
static void
units_run(packed *s, int64_t n, double ns, mr_cpu_body *body)
{
    int64_t grain = mr__cpu_grain(ns), share = grain / GRAIN_SHARES;

    if (n > grain)
        grain = share > 0 ? share : 1;
    mr__cpu_for(n, grain, body, s);
}

static void
pack_all(packed *s)
{
    double numbers = (double)(s->pack_depth * s->cols * s->pack_panels);

    if (s->lies)
        numbers = (double)(s->chunk * s->rows);
    units_run(s, (a_units(s) + b_units(s)) * s->n_chunks,
              mr__product_pack_ns(s->p) * numbers, pack_piece);
}

/* In pieces: all has been packed, so it is known what will be made again. */
static void
followed_plan(packed *s)
{
    if (s->form != MR_GEMM_IN_PIECES || !s->follows)
        return;
    s->follows = mr__seen_fit(s->p->seen);
    s->p->seen->followed = s->follows;
}

static void
group_run(packed *s)
{
    int64_t rows, cols; /* of a block, about */

    blocks_plan(s);
    rows = s->a_panels * s->rows / s->block_rows;
    cols = s->b_panels * s->cols / s->block_cols;
    for (s->depth0 = 0; s->depth0 < s->p->k; s->depth0 += s->depth) {
        int64_t left = s->p->k - s->depth0;
        double ns;

        s->depth = left < s->span ? left : s->span;
        s->n_chunks = (s->depth - 1) / s->chunk + 1;
        if (!s->own && !s->each)
            pack_all(s);
        if (unfit(s))
            return;
        followed_plan(s);
        ns = mr__product_ns(s->p) * (double)s->depth * (double)(rows * cols);
        if (s->own || s->each)
            own_run(s, ns);
        else
            units_run(s, n_units(s), ns, block_piece);
    }
}

bool
mr__product_packed(const mr_product *p, void *workspace)
{
    packed s;

    if (mr__product_near_fits(p)) {
        mr__product_near(p, workspace);
        return true;
    }
    if (mr__product_grid(p, workspace))
        return true;
    packed_plan(p, &s);
    /* Whether it can go in pairs is known once all is packed. */
    s.follows = p->after != NULL &&
                (p->form == MR_GEMM_FLOATS ||
                 (!s.alone && s.span >= p->k && s.group == p->n_items));
    s.a = workspace;
    s.b = s.a + (s.a_shared ? 1 : s.group) * s.a_floats;
    s.sums = s.b + n_b(&s) * s.b_floats;
    for (s.item0 = 0; s.item0 < p->n_items && !unfit(&s); s.item0 += s.group) {
        int64_t left = p->n_items - s.item0;

        s.n_items = left < s.group ? left : s.group;
        group_run(&s);
    }
    if (unfit(&s))
        return false;
    if (p->after != NULL && !s.follows && p->seen == NULL)
        mr__product_after_all(p);
    return true;
}
