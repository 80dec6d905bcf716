/* SPDX-License-Identifier: Apache-2.0
 *
 * grid.c -- small products in pieces, a block for each thread.
 *
 * What is packed for all has to leave the caches of those that read it last
 * time before it can be written again, which takes longer than packing it: two
 * threads of a Xeon by half, 16 of them five times as long.  So c is cut into a
 * grid of blocks, one a thread; a thread packs the columns of b and the rows of
 * a that its block needs into room of its own, which stays in its second level,
 * and waits for nobody.  Rows are packed once for each column of the grid,
 * columns once for each row: that pays as long as operands are small.
 *
 * Chunks of depth are those of packed.c, so no bit shows which way was taken,
 * and the grid may depend on the number of threads.
 * Called by: packed.c.  Calls: kernels/gemm.h, the pool.
 */
#include <stdatomic.h>
#include <stddef.h>

#include "base/pool.h"
#include "cpu/product.h"

enum {
    LANES = MR_GEMM_PIECES_LANES,
    MOST_NUMBERS = 1 << 18, /* of each operand */
    MOST_BYTES = 1 << 20,   /* that a slot packs */
    LEAST_NS = 20000,       /* of all, by one thread */
    PACK_DEPTH = 64,        /* rows of b at a time */
    LINE = 16               /* floats */
};

typedef struct turn {
    _Alignas(64) _Atomic int64_t next; /* of its units that nobody has taken */
} turn;

typedef struct grid {
    const mr_product *p;
    int64_t a_panels, b_panels, chunk;
    int64_t rows, cols; /* blocks */
    int n_slots;
    int64_t a_floats, b_floats; /* room of a slot */
    turn *turns;
    float *room;
} grid;

static int64_t
n_units(const grid *s)
{
    return s->rows * s->cols;
}

/* The time of a block of such a grid. */
static double
block_ns(const grid *s, int64_t rows, int64_t cols)
{
    const mr_product *p = s->p;
    int64_t high = (s->a_panels - 1) / rows + 1;
    int64_t wide = (s->b_panels - 1) / cols + 1;

    return (double)(LANES * p->k) *
           ((double)(high + wide) * mr__product_pack_ns(p) +
            (double)(high * wide * LANES) * mr__product_ns(p));
}

/* Of a slot: its columns, and a panel of a. */
static int64_t
block_bytes(const grid *s, int64_t cols)
{
    int64_t wide = (s->b_panels - 1) / cols + 1;

    return (wide + 1) * LANES * 4 *
           mr__gemm_steps(MR_GEMM_IN_PIECES, s->p->dtype, s->chunk);
}

/* Room for one panel of a and a block's columns of b, of one chunk: whole lines
 * apart, and no power of two, so that threads' rooms share no places in a cache
 * more than they must. */
static void
rooms_plan(grid *s)
{
    int64_t steps = mr__gemm_steps(MR_GEMM_IN_PIECES, s->p->dtype, s->chunk);
    int threads = mr__pool_threads();

    s->n_slots = n_units(s) < threads ? (int)n_units(s) : threads;
    s->a_floats = LANES * steps + LINE;
    s->b_floats = ((s->b_panels - 1) / s->cols + 1) * LANES * steps + LINE;
}

/* The best grid of as many blocks as there are threads.  False: there is a
 * better way. */
static bool
grid_plan(const mr_product *p, grid *s)
{
    int64_t threads = mr__pool_threads();
    double best = 0.0;

    if (threads < 2 || p->form != MR_GEMM_IN_PIECES || p->pack_b ||
        p->n_items > 1 || p->m * p->k > MOST_NUMBERS ||
        p->n * p->k > MOST_NUMBERS)
        return false;
    *s = (grid){.p = p,
                .a_panels = (p->m - 1) / LANES + 1,
                .b_panels = (p->n - 1) / LANES + 1,
                .chunk = mr__product_chunk(p)};
    if (p->dtype != MR_FLOAT32 && s->chunk < p->k) /* sums would wait */
        return false;
    if (block_ns(s, 1, 1) < LEAST_NS)
        return false;
    for (int64_t cols = 1; cols <= s->b_panels && cols <= threads; cols *= 2) {
        int64_t rows = (threads - 1) / cols + 1;
        double ns;

        rows = rows < s->a_panels ? rows : s->a_panels;
        ns = block_ns(s, rows, cols);
        if (block_bytes(s, cols) > MOST_BYTES || (s->rows > 0 && ns >= best))
            continue;
        best = ns;
        s->rows = rows;
        s->cols = cols;
    }
    if (s->rows == 0)
        return false;
    rooms_plan(s);
    return true;
}

size_t
mr__product_grid_bytes(const mr_product *p)
{
    grid s;

    if (!grid_plan(p, &s))
        return 0;
    return (size_t)s.n_slots * sizeof(turn) +
           (size_t)(s.n_slots * (s.a_floats + s.b_floats)) * sizeof(float);
}

/* ---- blocks ----------------------------------------------------------------
 */

/* One: which panels of a and b, and where they are packed. */
typedef struct block {
    int64_t i0, i1, j0, j1;
    float *a, *b;
} block;

/* Those of a column come one after the other. */
static block
block_at(const grid *s, int64_t unit, float *room)
{
    int64_t row = unit % s->rows, col = unit / s->rows;

    return (block){.i0 = row * s->a_panels / s->rows,
                   .i1 = (row + 1) * s->a_panels / s->rows,
                   .j0 = col * s->b_panels / s->cols,
                   .j1 = (col + 1) * s->b_panels / s->cols,
                   .a = room,
                   .b = room + s->a_floats};
}

static void
columns_pack(const grid *s, const mr_gemm_side *b, const block *k, int64_t at,
             int64_t depth)
{
    int64_t apart = LANES * mr__gemm_steps(MR_GEMM_IN_PIECES, b->dtype, depth);
    bool rows = b->lane_stride == 1 && b->depth_stride != 1;
    int64_t most = rows ? PACK_DEPTH : depth, n;

    for (int64_t d = 0; d < depth; d += n) {
        float *to =
            k->b + LANES * mr__gemm_steps(MR_GEMM_IN_PIECES, b->dtype, d);

        n = depth - d < most ? depth - d : most;
        mr__ranges_take(mr__seen_b(s->p->seen, 0),
                        mr__gemm_pack_pieces(b, true, k->j0, k->j1 - k->j0,
                                             at + d, n, to, apart));
    }
}

static void
chunk_run(const grid *s, const block *k, const mr_gemm_side *a,
          const mr_gemm_chunk *g, int64_t at, int64_t depth)
{
    for (int64_t i = k->i0; i < k->i1; i++) {
        mr_gemm_chunk t = *g;

        mr__ranges_take(
            mr__seen_a(s->p->seen, 0, i),
            mr__gemm_pack_pieces(a, false, i, 1, at, depth, k->a, 0));
        if (mr__seen_hopeless(s->p->seen, 0, i))
            continue;
        t.a_first = i;
        mr__gemm_block(&t, i, i + 1, k->j0, k->j1);
    }
}

/* `packed`: b's columns are there. */
static void
block_run(const grid *s, const block *k, bool packed)
{
    const mr_product *p = s->p;
    mr_gemm_chunk g = {.m = p->m,
                       .n = p->n,
                       .form = MR_GEMM_IN_PIECES,
                       .pieces = mr__gemm_pieces(p->dtype),
                       .a = k->a,
                       .b = k->b,
                       .b_first = k->j0,
                       .c_row = p->c_row,
                       .dtype = p->dtype};
    mr_gemm_side a, b;

    mr__product_item(p, 0, &a, &b, &g.c);
    for (int64_t at = 0; at < p->k; at += s->chunk) {
        int64_t depth = p->k - at < s->chunk ? p->k - at : s->chunk;

        if (!packed)
            columns_pack(s, &b, k, at, depth);
        g.depth = mr__gemm_steps(MR_GEMM_IN_PIECES, p->dtype, depth);
        g.first = at == 0;
        g.last = at + depth == p->k;
        chunk_run(s, k, &a, &g, at, depth);
    }
}

static void
units_run(const grid *s, int64_t slot, int64_t of)
{
    float *room = s->room + slot * (s->a_floats + s->b_floats);
    int64_t units = n_units(s), end = (of + 1) * units / s->n_slots, u;
    block last = {.j0 = -1};

    /* relaxed: only who takes which unit */
    while ((u = atomic_fetch_add_explicit(&s->turns[of].next, 1,
                                          memory_order_relaxed)) < end) {
        block k = block_at(s, u, room);

        block_run(s, &k, s->chunk >= s->p->k && k.j0 == last.j0);
        last = k;
    }
}

/* A slot's units are the same ones in each call; then those that others have
 * left. */
static void
slot_piece(void *ctx, int64_t begin, int64_t end)
{
    const grid *s = ctx;

    for (int64_t slot = begin; slot < end; slot++)
        for (int64_t k = 0; k < s->n_slots; k++)
            units_run(s, slot, (slot + k) % s->n_slots);
}

bool
mr__product_grid(const mr_product *p, void *workspace)
{
    grid s;

    if (!grid_plan(p, &s))
        return false;
    s.turns = workspace;
    s.room = (float *)(void *)(s.turns + s.n_slots);
    for (int64_t k = 0; k < s.n_slots; k++)
        atomic_init(&s.turns[k].next, k * n_units(&s) / s.n_slots);
    mr__cpu_for(s.n_slots, 1, slot_piece, &s);
    return true;
}
