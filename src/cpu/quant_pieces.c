/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_pieces.c -- rows times strips of a packed matrix on the matrix unit
 * (kernels/quant_pieces.h).
 *
 * Packed rows of a run: passes of up to two blocks of 16 lanes, each all steps
 * of the depth; then the sums of x over the groups, which biases meet: groups,
 * each all lanes.  The depth is cut into chunks whose x stays in the
 * first-level cache while all tiles of a strip meet it; of a tile 128 codes are
 * unpacked while the 128 before are multiplied.  With more than one pass a
 * chunk is as deep as that, and its tiles' codes wait for the passes.
 *
 * The sums of SPAN codes add up apart before they are added to those before
 * them: in one chain over all groups errors grew with the depth (numbers of one
 * sign, 16 rows by 65,536 mxfp8 codes: 11.5 in 2^-24 of the sum, root of mean
 * squares, where chains of multiply-adds have 4.2).
 * Called by: quant_product.c.  Calls: kernels/quant_pieces.h.
 */
#include "kernels/quant_pieces.h"

#include <string.h>

#include "cpu/quant.h"
#include "kernels/tier/tier.h"

enum {
    DEPTH = MR_QUANT_PIECES_DEPTH,
    STEP = MR_QUANT_PIECES_STEP,
    STEPS = DEPTH / STEP,
    ROWS = MR_QUANT_PIECES_ROWS,
    TILE = MR_QUANT_PIECES_TILE,
    TILES = ROWS / TILE,
    LANES = MR_QUANT_PIECES_LANES,
    SUMS = MR_QUANT_PIECES_SUMS,
    SCALES = MR_QUANT_SCALES,
    NEAR = 24 << 10, /* bytes of x that stay near */
    RING = TILES + 1,
    SCALED_GROUP = 64, /* whose sums go to y together, scales being there */
    BEHIND = 32,       /* bytes that may be read behind codes */
    SPAN = 1024        /* codes whose sums add up apart */
};

/* A run of m rows. */
typedef struct shape {
    int64_t m, k, lanes, blocks, passes;
    int pieces;
    bool narrow;
} shape;

static shape
shape_of(int64_t m, int pieces, int64_t k)
{
    shape s = {.m = m, .k = k, .pieces = pieces};

    s.lanes = mr__quant_pieces_lanes(m);
    s.blocks = s.lanes / LANES;
    s.passes = (s.blocks + 1) / 2;
    s.narrow = pieces > 1 && m * pieces <= LANES;
    return s;
}

int64_t
mr__quant_pieces_lanes(int64_t m)
{
    return (m + LANES - 1) / LANES * LANES;
}

/* Tiles of a step in all blocks. */
static int64_t
tiles_of(const shape *s, int64_t blocks)
{
    return s->narrow ? 1 : blocks * s->pieces;
}

static int64_t
pass_blocks(const shape *s, int64_t pass)
{
    return s->blocks - 2 * pass < 2 ? 1 : 2;
}

/* Where a pass has step `step`. */
static int64_t
place_of(const shape *s, int64_t pass, int64_t step)
{
    int64_t before = pass > 0 ? s->k / STEP * tiles_of(s, 2 * pass) : 0;

    return (before + step * tiles_of(s, pass_blocks(s, pass))) * SUMS;
}

int64_t
mr__quant_pieces_floats(const mr_quant_format *f, mr_dtype t, int64_t m,
                        int64_t k)
{
    shape s = shape_of(m, mr__quant_pieces_of(t), k);
    int64_t sums = f->biased ? k / f->group * s.lanes : 0;

    return k / STEP * tiles_of(&s, s.blocks) * SUMS + sums;
}

/* Of 1 to 16 / pieces rows a step is one tile, else that of `pieces` tiles for
 * each 16: at most 1 and an eighth of a row's pieces. */
int64_t
mr__quant_pieces_most(const mr_quant_format *f, mr_dtype t, int64_t n,
                      int64_t runs, int64_t k)
{
    int64_t tiles = runs + (n * mr__quant_pieces_of(t) + 7) / 8;
    int64_t lanes = n + runs * (LANES - 1);

    return k / STEP * tiles * SUMS + (f->biased ? k / f->group * lanes : 0);
}

uint32_t
mr__quant_pieces_rows(const mr_quant_format *f, const void *const *x,
                      mr_dtype t, int64_t m, int64_t k, int64_t block,
                      int64_t at, float *to)
{
    _Alignas(64) float room[LANES][DEPTH];
    shape s = shape_of(m, mr__quant_pieces_of(t), k);
    int64_t size = mr__dtype_size(t), from = block * LANES;
    int64_t blocks = pass_blocks(&s, block / 2);
    mr_quant_x p = {.x = (const float(*)[DEPTH])room,
                    .rows = m - from < LANES ? m - from : LANES,
                    .depth = k - at < DEPTH ? k - at : DEPTH,
                    .pieces = s.pieces,
                    .narrow = s.narrow,
                    .apart = tiles_of(&s, blocks) * SUMS,
                    .sums_row = s.lanes};

    for (int64_t i = 0; i < p.rows; i++) {
        const char *row = (const char *)x[from + i] + at * size;

        if (t == MR_FLOAT32)
            memcpy(room[i], row, (size_t)(p.depth * size));
        else
            mr__tier()->casts->cast[t][MR_FLOAT32](room[i], row, p.depth);
    }
    p.to =
        to + place_of(&s, block / 2, at / STEP) + block % 2 * s.pieces * SUMS;
    if (f->biased)
        p.sums = to + k / STEP * tiles_of(&s, s.blocks) * SUMS +
                 at / f->group * s.lanes + from;
    return mr__quant_pieces_pack(f, &p);
}

/* A strip of rows of w on its way through the depth. */
typedef struct strip {
    const mr_quant_matrix *w;
    const mr_quant_run *run;
    shape s;
    int64_t row0, rows, tiles, chunk; /* that are there; codes of a chunk */
    bool scaled;                      /* codes go with their scales */
    int64_t group;                    /* whose sums are scaled together */
    int group_shift;                  /* of the format's */
    const uint8_t *row[ROWS], *scale_row[ROWS];
    /* of all groups where they lie, or of SCALES of them */
    const float *scale, *bias;
    float *scale_room, *bias_room;
    int64_t scale_step;              /* from row to row */
    uint16_t (*codes)[TILE * DEPTH]; /* a ring of them */
    uint32_t item, ready, ring;      /* the next one; those made; in the ring */
    float *y;
} strip;

/* Missing rows are the last one again. */
static void
rows_find(strip *s)
{
    const mr_quant_matrix *w = s->w;
    int64_t row_bytes = w->cols / 8 * w->f.bits, row0 = s->row0;
    int64_t per_row = w->cols >> s->group_shift;

    s->rows = w->rows - row0 < ROWS ? w->rows - row0 : ROWS;
    s->tiles = (s->rows + TILE - 1) / TILE;
    for (int64_t i = 0; i < ROWS; i++) {
        int64_t r = row0 + (i < s->rows ? i : s->rows - 1);

        s->row[i] = (const uint8_t *)w->words + r * row_bytes;
        s->scale_row[i] = (const uint8_t *)w->scales + r * per_row;
    }
}

/* Scales are read where they lie, or are copied, or are all 1. */
static void
scales_find(strip *s)
{
    const mr_quant_matrix *w = s->w;
    int64_t per_row = w->cols >> s->group_shift;

    s->scale = s->scale_room;
    s->bias = s->bias_room;
    s->scale_step = SCALES;
    if (s->scaled) {
        for (int i = 0; i < ROWS * SCALES; i++)
            s->scale_room[i] = 1.0F;
    } else if (w->f.scale == MR_SCALE_FLOAT32 && s->rows == ROWS) {
        s->scale = (const float *)w->scales + s->row0 * per_row;
        s->bias = (const float *)w->biases + s->row0 * per_row;
        s->scale_step = per_row;
    }
}

/* DEPTH times a power of two: x stays near, and the scales that are read
 * together are whole chunks. */
static int64_t
chunk_depth(const strip *s)
{
    int64_t per_code = tiles_of(&s->s, s->s.blocks) * SUMS * 4 / STEP;
    int64_t depth = DEPTH;

    if (s->s.passes > 1)
        return depth;
    while (2 * depth * per_code <= NEAR &&
           (s->scaled || 2 * depth <= SCALES * s->w->f.group))
        depth *= 2;
    return depth;
}

/* Codes [at, at + n) of a tile to the ring. */
static void
codes_make(strip *s, int64_t tile, int64_t at)
{
    const mr_quant_matrix *w = s->w;
    int64_t bits = w->f.bits, row_bytes = w->cols / 8 * bits;
    mr_quant_codes c = {.row = s->row + tile * TILE,
                        .offset = at / 8 * bits,
                        .n = w->cols - at < DEPTH ? w->cols - at : DEPTH,
                        .to = s->codes[s->ready++ % s->ring]};
    const uint8_t *end = (const uint8_t *)w->words + w->rows * row_bytes;

    /* the same rows' next chunk, then the first one of rows behind */
    c.beyond = at + s->chunk < w->cols
                   ? s->chunk / 8 * bits
                   : ROWS * row_bytes - (at & -s->chunk) / 8 * bits;
    c.all = end - c.row[TILE - 1] >= c.offset + c.n / 8 * bits + BEHIND;
    if (s->scaled) {
        c.values = mr__quant_pieces_values(&w->f);
        c.scale = s->scale_row + tile * TILE;
        c.at = at >> s->group_shift;
    }
    mr__quant_pieces_codes(w, &c);
}

/* Of the groups from that at `at` on, if these are not there. */
static void
scales_read(strip *s, int64_t at)
{
    const mr_quant_matrix *w = s->w;
    int64_t first = at >> s->group_shift;
    int64_t n = (w->cols >> s->group_shift) - first;

    if (s->scale != s->scale_room || s->scaled || first % SCALES != 0)
        return;
    n = n < SCALES ? n : SCALES;
    mr__quant_scales(w, w->scales, s->row0, ROWS, first, n, s->scale_room);
    if (w->f.biased)
        mr__quant_scales(w, w->biases, s->row0, ROWS, first, n, s->bias_room);
}

/* Those of rows of the next strip are brought near. */
static void
scales_bring(const float *from, int64_t step)
{
    uintptr_t at = (uintptr_t)(from + ROWS * step);

    for (int r = 0; r < TILE; r++, at += (uintptr_t)step * sizeof *from)
        __builtin_prefetch((const void *)at, 0, 2);
}

/* The tile and depth that come after these in a chunk and the next one; false:
 * nothing does. */
static bool
next_of(const strip *s, int64_t *tile, int64_t *at)
{
    int64_t first = *at & -s->chunk, stop = first + s->chunk;

    stop = stop < s->s.k ? stop : s->s.k;
    *at += DEPTH;
    if (*at < stop)
        return true;
    *at = first;
    if (++*tile < s->tiles)
        return true;
    *tile = 0;
    *at = stop;
    /* codes of a chunk wait for its passes */
    return stop < s->s.k && s->s.passes == 1;
}

/* Scales, and with them sums of x, of groups from that at `at` on. */
static void
scaling_find(const strip *s, int64_t tile, int64_t at, mr_quant_scaling *c)
{
    int64_t first = at >> s->group_shift, place;

    place = s->scale == s->scale_room ? first % SCALES : first;
    place += tile * TILE * s->scale_step;
    c->scale_row = s->scale_step;
    c->scale = s->scale + (s->scaled ? 0 : place);
    if (!s->w->f.biased)
        return;
    c->bias = s->bias + place;
    if (s->scale != s->scale_room && first % SCALES == 0) {
        scales_bring(c->scale, s->scale_step);
        scales_bring(c->bias, s->scale_step);
    }
}

/* DEPTH codes of a tile, which slot `slot` of the ring has, in one pass. */
static void
tile_run(strip *s, int64_t pass, int64_t tile, int64_t at, uint32_t slot)
{
    _Alignas(64) float sums[2 * DEPTH / STEP * SUMS];
    const shape *h = &s->s;
    int64_t depth = h->k - at < DEPTH ? h->k - at : DEPTH;
    int64_t group = (depth & (s->group - 1)) == 0 ? s->group : STEP;
    int64_t next_tile = tile, next_at = at, lane = pass * 2 * LANES;
    int shift = __builtin_ctz((unsigned)group);
    const float *packed = s->run->packed;
    const float *x_sums = packed + h->k / STEP * tiles_of(h, h->blocks) * SUMS +
                          (at >> s->group_shift) * h->lanes + lane;
    mr_quant_groups g = {.n_groups = depth >> shift,
                         .steps = group / STEP,
                         .pieces = h->narrow ? 1 : h->pieces,
                         .blocks = (int)pass_blocks(h, pass),
                         .codes = s->codes[slot % s->ring],
                         .x = packed + place_of(h, pass, at / STEP),
                         .sums = sums};
    mr_quant_scaling c = {.n_groups = g.n_groups,
                          .blocks = g.blocks,
                          .sums = sums,
                          .x_sums = x_sums,
                          .sums_row = h->lanes,
                          .y_row = h->lanes,
                          .y = s->y + tile * TILE * h->lanes + lane};

    mr__quant_pieces_multiply(&g);
    if (pass == 0 && next_of(s, &next_tile, &next_at))
        codes_make(s, next_tile, next_at);
    scaling_find(s, tile, at, &c);
    mr__quant_pieces_scale(&c);
}

static void
chunk_run(strip *s, int64_t at)
{
    int64_t stop = at + s->chunk < s->s.k ? at + s->chunk : s->s.k;
    uint32_t slot;

    scales_read(s, at);
    if (s->ready == s->item)
        codes_make(s, 0, at);
    for (int64_t pass = 0; pass < s->s.passes; pass++) {
        slot = s->item;
        for (int64_t tile = 0; tile < s->tiles; tile++)
            for (int64_t k = at; k < stop; k += DEPTH)
                tile_run(s, pass, tile, k, slot++);
        if (pass == s->s.passes - 1)
            s->item = slot;
    }
}

/* Pieces in columns of their own are added up, small ones first. */
static void
columns_join(const strip *s)
{
    float factor = mr__quant_pieces_factor(&s->w->f), *y = s->y;
    int64_t m = s->s.m;

    if (s->s.narrow)
        for (int64_t r = 0; r < s->rows; r++, y += s->s.lanes)
            for (int64_t i = 0; i < m; i++)
                for (int p = s->s.pieces - 1; p > 0; p--)
                    y[(p - 1) * m + i] += y[p * m + i];
    y = s->y;
    if (factor != 1.0F)
        for (int64_t i = 0; i < s->rows * s->s.lanes; i++)
            y[i] *= factor;
}

/* The sums of a span go to those of all before it. */
static void
span_end(const strip *s, float *y)
{
    static const int64_t steps[2] = {1, 1};
    const void *both[2] = {y, s->y};
    int64_t n = ROWS * s->s.lanes;

    mr__tier()->dtype[MR_FLOAT32]->map[MR_K_ADD](y, both, steps, n);
    memset(s->y, 0, (size_t)n * sizeof *y);
}

void
mr__quant_pieces_strip(const mr_quant_matrix *w, const mr_quant_run *run,
                       int64_t row0, float *y, float *room)
{
    _Alignas(64) uint16_t codes[RING][TILE * DEPTH];
    _Alignas(64) float scale[ROWS * SCALES], bias[ROWS * SCALES];
    strip s = {.w = w,
               .run = run,
               .s = shape_of(run->m, run->pieces, w->cols),
               .row0 = row0,
               .group = w->f.group,
               .group_shift = __builtin_ctz((unsigned)w->f.group),
               .scale_room = scale,
               .bias_room = bias,
               .codes = codes,
               .y = room};

    rows_find(&s);
    s.scaled = mr__quant_pieces_scaled(&w->f) &&
               mr__quant_pieces_in_range(w, row0, s.rows);
    s.group = s.scaled ? SCALED_GROUP : s.group;
    s.chunk = chunk_depth(&s);
    s.ring = s.s.passes > 1 ? RING : 2;
    scales_find(&s);
    memset(y, 0, (size_t)(ROWS * s.s.lanes) * sizeof *y);
    memset(room, 0, (size_t)(ROWS * s.s.lanes) * sizeof *y);
    mr__quant_pieces_enter();
    for (int64_t at = 0; at < w->cols; at += s.chunk) {
        chunk_run(&s, at);
        if ((at + s.chunk) % SPAN == 0 || at + s.chunk >= w->cols)
            span_end(&s, y);
    }
    mr__quant_pieces_leave();
    s.y = y;
    columns_join(&s);
}
