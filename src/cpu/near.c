/* SPDX-License-Identifier: Apache-2.0
 *
 * near.c -- the packed product where the second-level cache is large and the
 * third one slow (mr__gemm_near_bytes).
 *
 * b is cut into blocks: so many columns of one or two chunks of depth, the
 * span, as stay in half of the second level.  A thread packs a block and
 * multiplies it with all panels of a, so what it packed never leaves its core
 * and there is no loop to wait for before.  Who has no block of its own left
 * helps with another's: first to pack it, then with panels of a.  In the next
 * span a thread meets the same columns again, so their memory, and those of c,
 * are still its own.
 *
 * Called by: packed.c.  Calls: kernels/gemm.h, the pool.
 */
#include <stdatomic.h>
#include <stddef.h>

#include "base/pause.h"
#include "base/pool.h"
#include "cpu/product.h"

enum {
    LEAST_BYTES = 640 << 10, /* of b; less is read where it lies */
    LEAST_ROWS = 192,        /* for which a block is packed */
    LEAST_COLS = 256,        /* for which panels of a are */
    PANEL_FLOATS = MR_GEMM_MAX_ROWS * MR_GEMM_DEPTH, /* of a, on the stack */
    AFTER_PANELS = 4, /* of a, that something follows together */
    PACK_STEPS = 64,  /* rows of b are packed so many depths at a time */
    LAST_UNITS = 2,   /* go in so many parts */
    LAST_PARTS = 4,
    LINE = 64
};

/* A block of b in this span. */
typedef struct block {
    _Alignas(LINE) _Atomic int64_t pack; /* relaxed: hands out units */
    _Atomic int64_t packed; /* release by who packs, acquire before reading */
    _Atomic int64_t row;    /* relaxed: hands out panels of a */
    int64_t j0, j1;         /* panels of b */
    float *b;
} block;

typedef struct near {
    const mr_product *p;
    int rows, cols, words; /* of a tile; floats of an element */
    int64_t a_panels, b_panels;
    int64_t chunk, n_chunks;
    int64_t most;              /* chunks of a span at most */
    int64_t n_blocks, n_units; /* units of a's panels a block has */
    int64_t high;              /* panels of a in one */
    int n_slots;
    block *blocks;
    float *b;
    int64_t chunk0, chunks; /* of this span */
} near;

bool
mr__product_near_fits(const mr_product *p)
{
    bool floats = p->dtype == MR_FLOAT32 || p->dtype == MR_FLOAT64;

    return floats && p->form == MR_GEMM_FLOATS && p->pack_b == NULL &&
           p->n_items == 1 && p->m >= LEAST_ROWS && p->n >= LEAST_COLS &&
           p->n * p->k * mr__dtype_size(p->dtype) >= LEAST_BYTES &&
           mr__gemm_near_bytes() != INT64_MAX;
}

/* A block is as wide as the threads' shares, not narrower than LEAST_COLS / 2,
 * and as deep as it then may be: sums of c that come twice in a span are near
 * the second time. */
static void
blocks_plan(near *s)
{
    int64_t panel = s->cols * s->words * 4 * s->chunk;
    int64_t room = mr__gemm_near_bytes() / panel, wide, least;

    wide = (s->b_panels - 1) / s->n_slots + 1;
    least = LEAST_COLS / 2 / s->cols;
    wide = wide > least ? wide : least;
    s->most = room / wide;
    s->most = s->most < 1 ? 1 : s->most < s->n_chunks ? s->most : s->n_chunks;
    room = room / s->most > 1 ? room / s->most : 1;
    wide = wide < room ? wide : room;
    s->n_blocks = (s->b_panels - 1) / wide + 1;
}

static void
near_plan(const mr_product *p, near *s)
{
    int words = p->dtype == MR_FLOAT64 ? 2 : 1;
    int64_t most = MR_GEMM_DEPTH / words;

    *s = (near){.p = p,
                .rows = mr__gemm_rows(),
                .cols = mr__gemm_cols() / words,
                .words = words,
                .n_slots = mr__pool_threads()};
    s->n_chunks = (p->k - 1) / most + 1;
    s->chunk = (p->k - 1) / s->n_chunks + 1;
    s->a_panels = (p->m - 1) / s->rows + 1;
    s->b_panels = (p->n - 1) / s->cols + 1;
    s->high = p->after ? AFTER_PANELS : 1;
    s->n_units = (s->a_panels - 1) / s->high + 1;
    blocks_plan(s);
}

static int64_t
b_floats(const near *s)
{
    return s->b_panels * s->cols * s->words * s->chunk * s->most;
}

size_t
mr__product_near_bytes(const mr_product *p)
{
    near s;

    near_plan(p, &s);
    return (size_t)s.n_blocks * sizeof(block) +
           (size_t)b_floats(&s) * sizeof(float);
}

static int64_t
chunk_depth(const near *s, int64_t chunk)
{
    int64_t left = s->p->k - chunk * s->chunk;

    return left < s->chunk ? left : s->chunk;
}

/* ---- packing a block -------------------------------------------------------
 */

static bool
b_rows(const near *s)
{
    return s->p->b.lane_stride == 1 && s->p->b.depth_stride != 1;
}

static int64_t
pack_panels(const near *s)
{
    return b_rows(s) ? MR_GEMM_MAX_PANELS : 1;
}

static int64_t
pack_depth(const near *s)
{
    return b_rows(s) ? PACK_STEPS : s->chunk;
}

static int64_t
pack_units(const near *s, const block *b)
{
    int64_t groups = (b->j1 - b->j0 - 1) / pack_panels(s) + 1;

    return s->chunks * groups * ((s->chunk - 1) / pack_depth(s) + 1);
}

/* Where chunk `at` of the span begins. */
static float *
block_chunk(const near *s, const block *b, int64_t at)
{
    return b->b + (b->j1 - b->j0) * s->cols * s->words * s->chunk * at;
}

static void
pack_unit(const near *s, const block *b, int64_t unit)
{
    int64_t groups = (b->j1 - b->j0 - 1) / pack_panels(s) + 1;
    int64_t pieces = (s->chunk - 1) / pack_depth(s) + 1;
    int64_t j = b->j0 + unit % groups * pack_panels(s), n = b->j1 - j;
    int64_t at = unit / groups % pieces * pack_depth(s);
    int64_t chunk = unit / groups / pieces;
    int64_t depth = chunk_depth(s, s->chunk0 + chunk), left = depth - at;
    int64_t lane = s->cols * s->words;

    if (left <= 0)
        return;
    mr__gemm_pack_panels(
        &s->p->b, true, j, n < pack_panels(s) ? n : pack_panels(s),
        (s->chunk0 + chunk) * s->chunk + at,
        left < pack_depth(s) ? left : pack_depth(s), MR_GEMM_FLOATS,
        block_chunk(s, b, chunk) + ((j - b->j0) * depth + at) * lane,
        depth * lane);
}

/* All of it, with those who come at the same time. */
static void
block_pack(const near *s, block *b)
{
    int64_t n = pack_units(s, b), done = 0;

    for (;; done++) {
        int64_t u =
            atomic_fetch_add_explicit(&b->pack, 1, memory_order_relaxed);

        if (u >= n)
            break;
        pack_unit(s, b, u);
    }
    /* release: pairs with the acquire below */
    if (done > 0)
        atomic_fetch_add_explicit(&b->packed, done, memory_order_release);
    while (atomic_load_explicit(&b->packed, memory_order_acquire) < n)
        mr__cpu_pause();
}

/* ---- blocks ---------------------------------------------------------------
 */

/* Panels [i0, i1) of a, panels [j0, j1) of the block's. */
static void
panels_run(const near *s, const block *b, int64_t i0, int64_t i1, int64_t j0,
           int64_t j1)
{
    _Alignas(LINE) float panel[PANEL_FLOATS];
    const mr_product *p = s->p;
    mr_gemm_chunk g = {.m = p->m,
                       .n = p->n,
                       .form = MR_GEMM_FLOATS,
                       .a = panel,
                       .c = p->c,
                       .c_row = p->c_row,
                       .dtype = p->dtype};

    for (int64_t i = i0; i < i1; i++)
        for (int64_t k = 0; k < s->chunks; k++) {
            int64_t chunk = s->chunk0 + k;

            g.depth = chunk_depth(s, chunk);
            g.first = chunk == 0;
            g.last = chunk == s->n_chunks - 1;
            g.a_first = i;
            g.b_first = b->j0;
            g.b = block_chunk(s, b, k);
            mr__gemm_pack_panels(&p->a, false, i, 1, chunk * s->chunk, g.depth,
                                 MR_GEMM_FLOATS, panel, 0);
            mr__gemm_block(&g, i, i + 1, j0, j1);
        }
}

/* The last units go in parts of the columns, so that threads end together. */
static int64_t
n_whole(const near *s)
{
    int64_t last = s->n_slots > 1 ? LAST_UNITS : 0;

    return s->n_units > last ? s->n_units - last : 0;
}

static void
unit_run(const near *s, const block *b, int64_t unit)
{
    const mr_product *p = s->p;
    int64_t whole = n_whole(s), past = unit - whole, j0 = b->j0, j1 = b->j1;
    int64_t i0, i1, row, rows, col, cols;

    if (past >= 0) {
        int64_t n = j1 - j0, part = past % LAST_PARTS;

        unit = whole + past / LAST_PARTS;
        j1 = j0 + n * (part + 1) / LAST_PARTS;
        j0 += n * part / LAST_PARTS;
    }
    i0 = unit * s->high;
    i1 = i0 + s->high < s->a_panels ? i0 + s->high : s->a_panels;
    panels_run(s, b, i0, i1, j0, j1);
    if (p->after == NULL || s->chunk0 + s->chunks < s->n_chunks)
        return;
    row = i0 * s->rows;
    rows = p->m - row < (i1 - i0) * s->rows ? p->m - row : (i1 - i0) * s->rows;
    col = j0 * s->cols;
    cols = p->n - col < (j1 - j0) * s->cols ? p->n - col : (j1 - j0) * s->cols;
    mr__product_after(p, 0, row, rows, col, cols);
}

static void
block_run(const near *s, block *b)
{
    int64_t whole = n_whole(s), n = whole + (s->n_units - whole) * LAST_PARTS;

    if (atomic_load_explicit(&b->row, memory_order_relaxed) >= n)
        return;
    block_pack(s, b);
    for (;;) {
        int64_t u = atomic_fetch_add_explicit(&b->row, 1, memory_order_relaxed);

        if (u >= n)
            return;
        unit_run(s, b, u);
    }
}

/* A thread's own blocks first. */
static void
slot_piece(void *ctx, int64_t begin, int64_t end)
{
    const near *s = ctx;

    for (int64_t slot = begin; slot < end; slot++) {
        int64_t first = slot * s->n_blocks / s->n_slots;

        for (int64_t k = 0; k < s->n_blocks; k++)
            block_run(s, &s->blocks[(first + k) % s->n_blocks]);
    }
}

static void
span_begin(near *s)
{
    for (int64_t k = 0; k < s->n_blocks; k++) {
        block *b = &s->blocks[k];

        b->j0 = k * s->b_panels / s->n_blocks;
        b->j1 = (k + 1) * s->b_panels / s->n_blocks;
        b->b = s->b + b->j0 * s->cols * s->words * s->chunk * s->most;
        atomic_init(&b->pack, 0);
        atomic_init(&b->packed, 0);
        atomic_init(&b->row, 0);
    }
}

void
mr__product_near(const mr_product *p, void *workspace)
{
    near s;

    near_plan(p, &s);
    s.blocks = workspace;
    s.b = (float *)(void *)(s.blocks + s.n_blocks);
    for (s.chunk0 = 0; s.chunk0 < s.n_chunks; s.chunk0 += s.chunks) {
        int64_t left = s.n_chunks - s.chunk0;

        s.chunks = left < s.most ? left : s.most;
        span_begin(&s);
        mr__cpu_for(s.n_slots, 1, slot_piece, &s);
    }
}
