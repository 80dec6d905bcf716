/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.h -- the packed matrix product in float32 and float64, and products with
 * vectors.
 *
 * c = a @ b for float64, float32, float16 and bfloat16 operands of any strides.
 * Both operands are first packed: their lanes (rows of a, columns of b) go into
 * panels as wide as the register tile, depth by depth, halves widened on the
 * way, missing lanes zero.  Then each tile of c is computed in registers.
 * The depth is cut into chunks of MR_GEMM_DEPTH (half in float64), the same in
 * every tier: each
 * element is a chain of fused multiply-adds over a chunk, the chunks' sums
 * added in order.  So the bits depend on the operands alone, not on the tier
 * (but baseline, which has no FMA), the tiles or the threads.
 *
 * The caller owns the loops over chunks, panels and blocks, and runs them on
 * as many threads as it likes.
 */
#ifndef MR_KERNELS_GEMM_H
#define MR_KERNELS_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/tier/tier.h"
#include "marram/types.h"

#define MR_GEMM_DEPTH 512

/* The widest panels of any tier, in lanes. */
#define MR_GEMM_MAX_ROWS 12
#define MR_GEMM_MAX_COLS 32
/* Panels that are packed together. */
#define MR_GEMM_MAX_PANELS 8

/* Pairs: bfloat16 stays as it is, two depths in an element of a panel, where
 * the processor multiplies such pairs faster than floats.  Operands and
 * results below 2^-126 count as 0 there, so operands with numbers below 2^-63
 * must not go this way.  Chunks are twice as deep: beyond one, the last bits
 * are others than without pairs.
 */
#define MR_GEMM_PAIRS_DEPTH 1024

/* How numbers lie in panels: as floats (float64: doubles); in pairs; or in
 * pieces, for the matrix unit of the processor (tier/gemm_matrix.c).  There a
 * number is split into bfloat16 numbers whose sum it is, bfloat16 into one,
 * float16 two, float32 three, and pieces are multiplied.  Panels have 32 lanes
 * and whole steps of MR_GEMM_PIECES_STEP depths.  Errors are no larger than
 * those of floats; the last bits are others.  Which operands must not go in
 * pieces, mr__gemm_ranges_fit says; packing finds out.
 */
typedef enum mr_gemm_form {
    MR_GEMM_FLOATS,
    MR_GEMM_IN_PAIRS,
    MR_GEMM_IN_PIECES
} mr_gemm_form;

#define MR_GEMM_PIECES_LANES 32
#define MR_GEMM_PIECES_STEP  32
/* a in one piece and b in two, or the other way round; there can be one panel
 * of b only. */
#define MR_GEMM_1_BY_2 4
#define MR_GEMM_2_BY_1 5
/* Two and three in the order that b @ a has: the same bits as that, turned; for
 * chunks that add to nothing. */
#define MR_GEMM_2_TURNED 6
#define MR_GEMM_3_TURNED 7

/* One operand: element (lane, depth) is at data + lane * lane_stride + depth *
 * depth_stride elements. */
typedef struct mr_gemm_side {
    const void *data;
    mr_dtype dtype;
    int64_t lanes;
    int64_t lane_stride, depth_stride;
} mr_gemm_side;

/* One chunk of depth of one product. */
typedef struct mr_gemm_chunk {
    int64_t m, n, depth; /* elements of a panel's lane: mr__gemm_steps() */
    mr_gemm_form form;
    int pieces;         /* of a number, in that form; or as above */
    const float *a, *b; /* packed, all panels of the chunk; float64: doubles */
    int64_t a_first;    /* the panel that a begins with */
    int64_t b_first;    /* the same of b, packed */
    int64_t
        b_row; /* 0, or: b is no copy but lies as it came, this far from
                  depth to depth; n is a multiple of the columns of a tile */
    void *c;   /* rows c_row elements apart, columns adjacent */
    int64_t c_row;
    mr_dtype dtype; /* of c */
    float *sums;    /* m x n, dense (in pieces: tile after tile, so that
                       they share no place in the caches): where halves
                       wait between chunks;
                       NULL when there is one chunk or c is no half */
    bool first, last;
    bool far; /* a's panels are met for the first time (pieces) */
} mr_gemm_chunk;

/* Lanes of a panel, of a (rows) and of b (columns; half as many in float64), in
 * the tier in use. */
int mr__gemm_rows(void);
int mr__gemm_cols(void);
/* Of a core's second level; 1 MB where nobody says. */
int64_t mr__gemm_level2_bytes(void);

/* What a block may hold of b in the second-level cache where that is large and
 * the third level slow (2 MB or more, as Intel's): b is to stay there while
 * panels of a pass by.  INT64_MAX: no matter. */
int64_t mr__gemm_near_bytes(void);
/* Does this tier's kernel run near the machine's peak? */
bool mr__gemm_fast(void);

/* Packs lanes [panel * width, ...) of depths [depth0, depth0 + depth) to
 * width * depth floats (float64: doubles) at `to` (64-byte aligned). */
void mr__gemm_pack(const mr_gemm_side *s, int width, int64_t panel,
                   int64_t depth0, int64_t depth, void *to);

/* Is a product of this dtype faster in pairs? */
bool mr__gemm_pairs(mr_dtype t);
/* The same for pairs: width * ((depth + 1) / 2) of them; depth0 is even.
 * False when some number is below 2^-63 and not 0: products of two
 * such may be below the normal range, and are 0 to the instruction. */
bool mr__gemm_pack_pairs(const mr_gemm_side *s, int width, int64_t panel,
                         int64_t depth0, int64_t depth, float *to);

/* Is the matrix unit there, and allowed to be used? */
bool mr__gemm_matrix(void);
/* Into how many pieces it takes a number; 0: not at all. */
int mr__gemm_pieces(mr_dtype t);

/* Lanes of a panel, of a (rows) and of b (columns; float64: half as many). */
int mr__gemm_form_rows(mr_gemm_form f);
int mr__gemm_form_cols(mr_gemm_form f);
/* Elements (floats; float64: doubles) of a panel's lane for so much depth. */
int64_t mr__gemm_steps(mr_gemm_form f, mr_dtype t, int64_t depth);

/* The exponents (of 2) of the least number that is not 0 and of the largest
 * one, 128 for what is infinite or none. */
typedef struct mr_gemm_range {
    int least, most;
} mr_gemm_range;

/* Of zeros. */
#define MR_GEMM_RANGE_NONE ((mr_gemm_range){.least = 1000, .most = -1000})

mr_gemm_range mr__gemm_range_join(mr_gemm_range x, mr_gemm_range y);
/* May the product of such operands go in pieces?  The unit takes numbers and
 * results below 2^-126 for 0.  Float32: the largest products stay finite,
 * pieces are whole, and of any two numbers the products of pieces that are lost
 * are below 2^-24 of theirs.  Float16: all are finite, since the pieces of
 * infinite ones would meet others of both signs.  Bfloat16: no sum of products
 * is below the normal range. */
bool mr__gemm_ranges_fit(mr_dtype t, mr_gemm_range a, mr_gemm_range b);
/* May one side, beside any numbers of 2^-50 and more that are no larger than
 * 2^60 (bfloat16: 2^-56, finite, since the other side may have two pieces)? */
bool mr__gemm_range_fits(mr_dtype t, mr_gemm_range r);

/* As mr__gemm_pack_panels in pieces: what the numbers are is for the caller to
 * judge. */
mr_gemm_range mr__gemm_pack_pieces(const mr_gemm_side *s, bool right,
                                   int64_t panel, int64_t n, int64_t depth0,
                                   int64_t depth, float *to, int64_t apart);

/* The same, and whether these numbers can go in pieces beside any usual ones:
 * mr__gemm_pack_panels in that form. */
bool mr__gemm_pieces_panels(const mr_gemm_side *s, bool right, int64_t panel,
                            int64_t n, int64_t depth0, int64_t depth, float *to,
                            int64_t apart);

/* Panels [panel, panel + n), each `apart` floats behind the one before, in any
 * form: where lanes are adjacent, a row of all of them at a time.  `right`: of
 * b.  False when these numbers must not have that form, whatever the other
 * side's (in pieces of float32: beside numbers of 2^-50 and more). */
bool mr__gemm_pack_panels(const mr_gemm_side *s, bool right, int64_t panel,
                          int64_t n, int64_t depth0, int64_t depth,
                          mr_gemm_form form, float *to, int64_t apart);

/* The tiles of the panels of a [i0, i1) times those of b [j0, j1). */
void mr__gemm_block(const mr_gemm_chunk *g, int64_t i0, int64_t i1, int64_t j0,
                    int64_t j1);
/* The same in pieces. */
void mr__gemm_pieces_block(const mr_gemm_chunk *g, int64_t i0, int64_t i1,
                           int64_t j0, int64_t j1);

/* ---- few rows ------------------------------------------------------------
 * y (m x n floats, rows y_row apart) = x (m rows of float32, x_row apart) @ b
 * over `depth`; m <= MR_GEMV_ROWS.  mr__gemv_wide: the columns of b are
 * adjacent.  mr__gemv_far: the same where they come from memory, all of b being
 * MR_GEMV_FAR bytes or more.  mr__gemv_deep: its depths are adjacent. */
#define MR_GEMV_ROWS 4
/* Columns whose sums stay in the first-level cache whatever the rows. */
#define MR_GEMV_COLS 512
#define MR_GEMV_FAR  (24 << 20)

/* How many of n columns `wide` takes at a time: long runs of a row come from
 * memory faster than short ones, so as many as keep the sums (m rows of
 * elements of `size` bytes) in the first-level cache, fewer where `units` times
 * the bands would be few.  Columns are summed one by one: no bit changes. */
int64_t mr__gemv_band(int64_t n, int64_t m, int64_t size, int64_t units);
/* The same where bands are to be read side by side: half of n where one would
 * have it all. */
int64_t mr__gemv_halves(int64_t band, int64_t n);

void mr__gemv_wide(float *y, int64_t y_row, const float *x, int64_t x_row,
                   int m, const mr_gemm_side *b, int64_t depth, int64_t n);
void mr__gemv_far(float *y, int64_t y_row, const float *x, int64_t x_row, int m,
                  const mr_gemm_side *b, int64_t depth, int64_t n);
void mr__gemv_deep(float *y, int64_t y_row, const float *x, int64_t x_row,
                   int m, const mr_gemm_side *b, int64_t depth, int64_t n);

/* ---- very small products ---------------------------------------------------
 * c = a @ b, columns of b and c adjacent, as the tier has it. */
typedef void mr_small_f32_fn(const float *a, int64_t a_row, int64_t a_depth,
                             const float *b, int64_t b_row, float *c,
                             int64_t c_row, int64_t m, int64_t depth,
                             int64_t n);
typedef void mr_small_f64_fn(const double *a, int64_t a_row, int64_t a_depth,
                             const double *b, int64_t b_row, double *c,
                             int64_t c_row, int64_t m, int64_t depth,
                             int64_t n);

/* ---- plain loops: integers (wrapping), bool (or of ands), double, complex -
 * Rows [i0, i1) of c, row-major, rows c_row apart. */
void mr__gemm_plain(const mr_gemm_side *a, const mr_gemm_side *b, void *c,
                    int64_t c_row, int64_t depth, int64_t i0, int64_t i1);

/* ---- what a tier gives (tier/gemm.c) --------------------------------------
 * tile[r][v]: (r + 1) * rows / 3 rows times (v + 1) * cols / 2 columns of c,
 * which are added to c or replace it.  b's depths are b_row apart. */
typedef void mr_gemm_tile_fn(int64_t depth, const float *a, const float *b,
                             int64_t b_row, float *c, int64_t c_row, bool add);
typedef void mr_gemv_wide_fn(float *y, int64_t y_row, const float *x,
                             int64_t x_row, int m, const void *b, int64_t b_row,
                             int64_t depth, int64_t n, bool far);
typedef void mr_gemv_dot_fn(float *lanes, const float *x, const void *b,
                            int64_t n);
/* What b is made of. */
typedef enum mr_gemm_kind {
    MR_GEMM_FLOAT32,
    MR_GEMM_FLOAT16,
    MR_GEMM_BFLOAT16,
    MR_N_GEMM_KINDS
} mr_gemm_kind;

/* tier/gemv64.c: as below, in float64; tiles have as many rows and half as many
 * columns. */
typedef void mr_gemm_tile64_fn(int64_t depth, const double *a, const double *b,
                               int64_t b_row, double *c, int64_t c_row,
                               bool add);
typedef struct mr_gemv_tier {
    mr_gemm_tile64_fn *tile[2][3][2];
    void (*turn)(double *to, const double *from, int64_t lane_stride,
                 int64_t lanes, int64_t width, int64_t depth);
    void (*wide)(double *y, int64_t y_row, const double *x, int64_t x_row,
                 int m, const void *b, int64_t b_row, int64_t depth, int64_t n,
                 bool far);
    void (*dot)(double *lanes, const double *x, const void *b, int64_t n);
    mr_small_f64_fn *small;
} mr_gemv_tier;

typedef struct mr_gemm_tier {
    int32_t rows, cols;
    bool fast;
    mr_gemm_tile_fn *tile[2][3][2];
    /* to[p * width + l] = from[l * lane_stride + p]; lanes <= width, others
     * 0 */
    void (*turn)(float *to, const float *from, int64_t lane_stride,
                 int64_t lanes, int64_t width, int64_t depth);
    /* to[k * apart + p * cols + l] = from[k * cols + p * row + l], k < n */
    void (*runs)(float *to, const float *from, int64_t row, int64_t depth,
                 int64_t n, int64_t apart);
    /* y[i][j] += sum over p < depth of x[i][p] * b[p][j] */
    mr_gemv_wide_fn *wide[MR_N_GEMM_KINDS];
    /* lane p % 64 += x[p] * b[p] */
    mr_gemv_dot_fn *dot[MR_N_GEMM_KINDS];
    mr_small_f32_fn *small;
    const mr_gemv_tier *f64;
} mr_gemm_tier;

/* [r][v] as above, of pairs (tier/gemm_pairs.c); all NULL where a tier has
 * none.
 */
typedef struct mr_gemm_pairs {
    mr_gemm_tile_fn *tile[3][2];
    /* The whole tile, c being bfloat16. */
    void (*rounded)(int64_t depth, const float *a, const float *b,
                    int64_t b_row, uint16_t *c, int64_t c_row);
    /* to[l] = the pair of low[l] and high[l] (NULL: zeros); lanes <= width,
     * others 0 */
    void (*zip)(uint32_t *to, const uint16_t *low, const uint16_t *high,
                int64_t lanes, int64_t width);
    /* The same of all columns of n panels, depths `row` apart, but in the
     * order of the tiles; is one below 2^-63 and not 0? */
    bool (*zip_cols)(uint32_t *to, const uint16_t *from, int64_t row,
                     int64_t pairs, int64_t n, int64_t apart);
    /* the halves of each pair change places; is one below 2^-63 and not
     * 0? */
    bool (*order)(uint32_t *pairs, int64_t n);
} mr_gemm_pairs;

/* The matrix unit (tier/gemm_matrix.c); all NULL where a tier has none. */
typedef mr_gemm_range mr_gemm_split_fn(const mr_gemm_side *s, bool right,
                                       int64_t lane0, int64_t n, int64_t depth0,
                                       int64_t depth, float *to, int64_t apart);
/* Products of pieces that are added up one after the other. */
typedef enum mr_gemm_spans {
    MR_GEMM_SPAN_1,
    MR_GEMM_SPAN_FAR, /* the same where a comes from the third level */
    MR_GEMM_SPAN_2,
    MR_GEMM_SPAN_3,
    MR_GEMM_SPAN_LESSER,  /* of three pieces, all but */
    MR_GEMM_SPAN_LARGEST, /* those of the largest ones */
    MR_GEMM_SPAN_1_BY_2,
    MR_GEMM_SPAN_2_BY_1,
    MR_GEMM_SPAN_2_TURNED,
    MR_GEMM_SPAN_3_TURNED,
    MR_GEMM_SPAN_LESSER_TURNED,
    MR_N_GEMM_SPANS
} mr_gemm_spans;

/* Some depth of a tile of c. */
typedef struct mr_gemm_span {
    int64_t depth; /* elements of a lane of a */
    const float *a, *b;
    const float *from; /* sums to go on with; NULL: none */
    int64_t from_row;
    float *to;
    int64_t to_row;
    /* Asked for ahead: a or b one step further, whichever passes by, and what
     * follows its last one; lines that are needed later, far_step floats
     * apart (0: none). */
    const float *soon, *next, *far;
    int64_t far_step;
} mr_gemm_span;
typedef void mr_gemm_span_fn(const mr_gemm_span *s);

typedef struct mr_gemm_matrix {
    /* A thread's tiles are its own from one to the other. */
    void (*enter)(void);
    void (*leave)(void);
    /* [r][v]: 16 (r + 1) rows of c, 16 (v + 1) columns */
    mr_gemm_span_fn *span[MR_N_GEMM_SPANS][2][2];
    /* Sums of a whole tile, dense, as halves; rows `row` elements apart. */
    void (*round[MR_N_GEMM_KINDS])(const float *sums, uint16_t *to,
                                   int64_t row);
    /* n panels from lane0 on; lanes or depths are adjacent */
    mr_gemm_split_fn *pack[MR_N_GEMM_KINDS];
} mr_gemm_matrix;

#define MR_X(id, name)                                                         \
    extern const mr_gemm_tier mr__gemm_tier_##name;                            \
    extern const mr_gemv_tier mr__gemv_tier_##name;                            \
    extern const mr_gemm_pairs mr__gemm_pairs_##name;                          \
    extern const mr_gemm_matrix mr__gemm_matrix_##name;
MR_TIERS(MR_X)
#undef MR_X

/* The table of the tier in use. */
static inline const mr_gemm_tier *
mr__gemm_in_use(void)
{
    return mr__tier()->gemm;
}
/* The table of one tier, NULL where this machine cannot run it. */
static inline const mr_gemm_tier *
mr__gemm_of_tier(int id)
{
    return mr__tier_or_none(id)->gemm;
}

#endif
