/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_product.c -- products with packed matrices, whose values are never
 * written out.
 *
 *   few     rows of x meet the packed words: up to MR_QUANT_FEW rows of a
 * matrix strips  more: a strip of the matrix is dequantised in cache and meets
 * them all (strips.c) packed  many: panels are dequantised for the packed
 * product (packed.c) floats  the same where values are made beside the products
 *           (quant_floats.c)
 *   pairs   PAIRS_LEAST or more of bfloat16, where pairs are fast
 *           (quant_pairs.c)
 *   pieces  any number, where there is a matrix unit (quant_pieces.c)
 *
 * The few rows, those in pairs, floats and pieces are a list of jobs, one for
 * each row of the result, in the order of their matrices: so rows that were
 * picked for one matrix read it together.  Runs of jobs with one matrix times
 * bands of columns are the units of work; a row's sum depends neither on its
 * run nor on its band.
 *
 * Whether numbers can go in pairs or pieces is asked row by row.  Rows that
 * cannot are made again as floats (the unit has their lanes, which meet no
 * others), so no row has other bits for what the others hold.
 *
 * The few and pairs add up codes before they scale them, so sums of huge
 * numbers exceed float32 where their products do not, and infinite ones meet
 * codes instead of values.  Rows that have such (MR_QUANT_HUGE) meet values.
 * Called by: device.c.  Calls: kernels/quant.h, kernels/gemm.h, packed.c,
 * share.c.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/integers.h"
#include "base/pool.h"
#include "cpu/epilogue.h"
#include "cpu/index.h"
#include "cpu/product.h"
#include "cpu/quant.h"
#include "cpu/quant_jobs.h"
#include "cpu/share.h"
#include "kernels/quant_floats.h"
#include "kernels/quant_pairs.h"
#include "kernels/quant_pieces.h"
#include "kernels/tier/tier.h"

enum {
    PAIRS_LEAST = 5,  /* rows of an item from which on pairs are faster */
    PIECES_LEAST = 3, /* the same of pieces; of a matrix on average */
    RUN_BLOCKS = MR_QUANT_RUN / 32,
    PAIRS_ROWS = MR_QUANT_PAIRS_ROWS,
    PIECES_ROWS = MR_QUANT_PIECES_ROWS,
    FLOATS_ROWS = MR_QUANT_FLOATS_ROWS,
    DEPTHS = 16,     /* rows of w dequantised together, when it is not turned */
    LANES = 16,      /* the same, when it is, for huge numbers */
    LANE_DEPTH = 256 /* of them at a time */
};

static void
panel_pack(const void *ctx, int64_t at, int width, int64_t panel,
           int64_t depth0, int64_t depth, float *to)
{
    const mr_quant_jobs *p = ctx;
    mr_quant_matrix w = mr__quant_jobs_matrix(p, at);

    mr__quant_panel(&w, p->turned, width, panel, depth0, depth, to);
}

/* ---- few rows ---------------------------------------------------------------
 */

static const float *
x_row(const mr_quant_jobs *p, int64_t row)
{
    const float *x = mr__quant_x_is_float(p) ? p->a->in[0].data : p->wide;

    return x + row * p->inner;
}

static void
arrange_piece(void *ctx, int64_t begin, int64_t end)
{
    const mr_quant_jobs *p = ctx;
    const mr_kernel_view *x = &p->a->in[0];

    for (int64_t row = begin; row < end; row++) {
        if (!mr__quant_x_is_float(p))
            mr__tier()->casts->cast[x->dtype][MR_FLOAT32](
                p->wide + row * p->inner,
                (const uint16_t *)x->data + row * p->inner, p->inner);
        if (p->turned)
            mr__quant_arrange(&p->w.f, p->inner, x_row(p, row), p->m,
                              p->arranged + row * p->arranged_floats);
    }
}

/* Up to four rows times rows [j, j + n) of w. */
static void
rows_turned(const mr_quant_jobs *p, const mr_quant_matrix *w,
            const mr_quant_job *jobs, int m, int64_t j, int64_t n,
            float (*y)[MR_QUANT_BAND_COLS])
{
    const float *x[MR_QUANT_ROWS];

    for (int i = 0; i < m; i++)
        x[i] = p->arranged + jobs[i].x * p->arranged_floats;
    mr__quant_dot(w, j, j + n, m, x, y[0], MR_QUANT_BAND_COLS);
}

/* One row times rows [j, j + n) of w, as values. */
static void
row_of_huge(const mr_quant_jobs *p, const mr_quant_matrix *w,
            const mr_quant_job *one, int64_t j, int64_t n, float *y)
{
    float values[LANES][LANE_DEPTH], part[LANES];
    const float *x = x_row(p, one->x);
    mr_gemm_side b = {.data = values,
                      .dtype = MR_FLOAT32,
                      .lane_stride = LANE_DEPTH,
                      .depth_stride = 1};

    memset(y, 0, (size_t)n * sizeof *y);
    for (int64_t c = 0; c < n; c += LANES) {
        b.lanes = n - c < LANES ? n - c : LANES;
        for (int64_t k = 0, depth; k < p->inner; k += depth) {
            depth = p->inner - k < LANE_DEPTH ? p->inner - k : LANE_DEPTH;
            for (int64_t l = 0; l < b.lanes; l++)
                mr__quant_read(w, j + c + l, k, depth, 1.0F, false, values[l]);
            mr__gemv_deep(part, LANES, x + k, p->inner, 1, &b, depth, b.lanes);
            for (int64_t l = 0; l < b.lanes; l++)
                y[c + l] += part[l];
        }
    }
}

static void
rows_of_huge(const mr_quant_jobs *p, const mr_quant_matrix *w,
             const mr_quant_job *jobs, int m, int64_t j, int64_t n,
             float (*y)[MR_QUANT_BAND_COLS])
{
    for (int i = 0; i < m; i++)
        if (mr__quant_arranged_huge(&p->w.f, p->inner,
                                    p->arranged +
                                        jobs[i].x * p->arranged_floats))
            row_of_huge(p, w, jobs + i, j, n, y[i]);
}

/* Up to four rows times columns [j, j + n) of w. */
static void
rows_plain(const mr_quant_jobs *p, const mr_quant_matrix *w,
           const mr_quant_job *jobs, int m, int64_t j, int64_t n,
           float (*y)[MR_QUANT_BAND_COLS])
{
    float values[DEPTHS][MR_QUANT_BAND_COLS],
        part[MR_QUANT_ROWS][MR_QUANT_BAND_COLS];
    float x[MR_QUANT_ROWS][DEPTHS];
    mr_gemm_side b = {.data = values,
                      .dtype = MR_FLOAT32,
                      .lanes = n,
                      .lane_stride = 1,
                      .depth_stride = MR_QUANT_BAND_COLS};

    for (int i = 0; i < m; i++)
        memset(y[i], 0, (size_t)n * sizeof y[i][0]);
    for (int64_t k = 0; k < p->inner; k += DEPTHS) {
        int64_t depth = p->inner - k < DEPTHS ? p->inner - k : DEPTHS;

        for (int64_t d = 0; d < depth; d++)
            mr__quant_read(w, k + d, j, n, 1.0F, false, values[d]);
        for (int i = 0; i < m; i++)
            memcpy(x[i], x_row(p, jobs[i].x) + k,
                   (size_t)depth * sizeof x[i][0]);
        mr__gemv_wide(part[0], MR_QUANT_BAND_COLS, x[0], DEPTHS, m, &b, depth,
                      n);
        for (int i = 0; i < m; i++)
            for (int64_t c = 0; c < n; c++)
                y[i][c] += part[i][c];
    }
}

static void
out_write(const mr_quant_jobs *p, int64_t row, int64_t j, int64_t n,
          const float *y)
{
    const mr_kernel_view *out = &p->a->out[0];
    int64_t at = row * p->outer + j;

    if (out->dtype == MR_FLOAT32)
        memcpy((float *)out->data + at, y, (size_t)n * sizeof *y);
    else
        mr__tier()->casts->cast[MR_FLOAT32][out->dtype](
            (uint16_t *)out->data + at, y, n);
}

static int64_t
run_length(const mr_quant_jobs *p, int64_t run)
{
    return p->runs[run + 1] - p->runs[run];
}

/* Jobs four at a time with columns [j, j + n). */
static void
short_run(const mr_quant_jobs *p, int64_t run, int64_t j, int64_t n)
{
    float y[MR_QUANT_ROWS][MR_QUANT_BAND_COLS];
    mr_quant_matrix w = mr__quant_jobs_matrix(p, p->jobs[p->runs[run]].w);

    for (int64_t i = p->runs[run]; i < p->runs[run + 1]; i += MR_QUANT_ROWS) {
        int64_t left = p->runs[run + 1] - i;
        int m = left < MR_QUANT_ROWS ? (int)left : MR_QUANT_ROWS;

        (p->turned ? rows_turned : rows_plain)(p, &w, p->jobs + i, m, j, n, y);
        if (p->turned)
            rows_of_huge(p, &w, p->jobs + i, m, j, n, y);
        for (int r = 0; r < m; r++)
            out_write(p, p->jobs[i + r].out, j, n, y[r]);
    }
}

/* All jobs at once, a strip of columns after the other. */
static void
long_run(const mr_quant_jobs *p, int64_t run, int64_t j, int64_t n)
{
    _Alignas(64) float y[MR_STRIP_ROWS * MR_GEMM_MAX_COLS];
    const mr_quant_job *jobs = p->jobs + p->runs[run];
    int64_t m = run_length(p, run), cols = mr__gemm_cols();
    mr_strip s = {.m = m,
                  .k = p->inner,
                  .at = jobs[0].w,
                  .a = p->packed + p->first[run],
                  .b = {.dtype = MR_FLOAT32},
                  .pack_b = panel_pack,
                  .pack_ctx = p};

    for (int64_t c = j; c < j + n; c += cols) {
        int64_t left = j + n - c < cols ? j + n - c : cols;

        mr__strip_run(&s, c / cols, y);
        for (int64_t i = 0; i < m; i++)
            out_write(p, jobs[i].out, c, left, y + i * cols);
    }
}

/* Band u of all runs'. */
static void
few_unit(const mr_quant_jobs *p, int64_t u)
{
    int64_t band = p->turned ? MR_QUANT_BAND_ROWS : MR_QUANT_BAND_COLS;
    int64_t run = u / p->n_bands, j = u % p->n_bands * band;
    int64_t n = p->outer - j < band ? p->outer - j : band;
    int64_t m = run_length(p, run);

    if (m <= MR_QUANT_FEW)
        short_run(p, run, j, n);
    else if (!mr__quant_in_floats(p, m)) /* else floats_run has seen to it */
        long_run(p, run, j, n);
}

static void
few_piece(void *ctx, int64_t begin, int64_t end)
{
    for (int64_t u = begin; u < end; u++)
        few_unit(ctx, u);
}

/* Of a row of w: of its words, of its scales, of its biases. */
typedef struct w_row {
    int64_t words, scales, biases;
} w_row;

static w_row
w_row_of(const mr_quant_matrix *w)
{
    int64_t scales = w->cols / w->f.group * mr__quant_scale_bytes(w->f.scale);

    return (w_row){.words = w->cols / 8 * w->f.bits,
                   .scales = scales,
                   .biases = w->f.biased ? scales : 0};
}

/* Rows of w that are read again and again (share.h), where memory bounds them:
 * those of 8 bits go as they are, others are to be unpacked, and take 2 to 5 %
 * longer so. */
static bool
few_shares(const mr_quant_jobs *p)
{
    w_row one = w_row_of(&p->w);
    int64_t rows = p->n_runs * p->outer;

    return p->turned && p->w.f.code == MR_CODE_INTEGER && p->w.f.bits == 8 &&
           mr__share_pays(rows * (one.words + one.scales + one.biases));
}

/* With a slice of the unit beside it. */
static void
few_shared(const void *ctx, int64_t u, char *slot)
{
    const mr_quant_jobs *p = ctx;
    int64_t beside = u ^ 1, j = beside % p->n_bands * MR_QUANT_BAND_ROWS;

    (void)slot;
    if (beside < p->n_runs * p->n_bands) {
        mr_quant_matrix w =
            mr__quant_jobs_matrix(p, p->jobs[p->runs[beside / p->n_bands]].w);
        w_row one = w_row_of(&w);
        int64_t n = p->outer - j < MR_QUANT_BAND_ROWS ? p->outer - j
                                                      : MR_QUANT_BAND_ROWS;
        const char *words = w.words, *scales = w.scales, *biases = w.biases;

        mr__share_rows(p->slice, words + j * one.words, n, one.words,
                       one.words);
        mr__share_rows(p->slice, scales + j * one.scales, n, one.scales,
                       one.scales);
        if (w.f.biased)
            mr__share_rows(p->slice, biases + j * one.biases, n, one.biases,
                           one.biases);
    }
    few_unit(p, u);
}

/* Panels of a run. */
static int64_t
run_panels(void)
{
    return (MR_QUANT_RUN - 1) / mr__gemm_rows() + 1;
}

/* Units: panels of the runs, rows of the long ones. */
static void
run_pack_piece(void *ctx, int64_t begin, int64_t end)
{
    const mr_quant_jobs *p = ctx;
    const float *x[MR_STRIP_ROWS];

    for (int64_t u = begin; u < end; u++) {
        int64_t run = u / run_panels(), panel = u % run_panels();
        int64_t m = run_length(p, run), row = panel * mr__gemm_rows();

        if (m <= MR_QUANT_FEW || row >= m || mr__quant_in_floats(p, m))
            continue;
        for (int64_t i = row; i < m && i < row + mr__gemm_rows(); i++)
            x[i] = x_row(p, p->jobs[p->runs[run] + i].x);
        mr__strip_pack_rows(x, m, p->inner, panel, p->packed + p->first[run]);
    }
}

/* Jobs with one matrix, up to MR_QUANT_RUN, are a run. */
static void
runs_find(mr_quant_jobs *p)
{
    p->n_runs = 0;
    for (int64_t i = 0; i < p->n_jobs; i++) {
        bool same = p->n_runs > 0 && p->jobs[i].w == p->jobs[i - 1].w &&
                    i - p->runs[p->n_runs - 1] < MR_QUANT_RUN;

        if (!same)
            p->runs[p->n_runs++] = i;
    }
    p->runs[p->n_runs] = p->n_jobs;
}

typedef enum way { WAY_FLOATS, WAY_PAIRS, WAY_PIECES } way;

static void
firsts_find(mr_quant_jobs *p, way how)
{
    int64_t next = 0;

    for (int64_t run = 0; run < p->n_runs; run++) {
        int64_t m = run_length(p, run);

        p->first[run] = next;
        if (how == WAY_PIECES)
            next += mr__quant_pieces_floats(&p->w.f, p->a->in[0].dtype, m,
                                            p->inner);
        else if (how == WAY_PAIRS)
            next += mr__quant_pairs_floats(&p->w.f, m, p->inner);
        else if (mr__quant_in_floats(p, m))
            next += mr__quant_floats_floats(m, p->inner);
        else if (m > MR_QUANT_FEW)
            next += mr__strip_floats(MR_GEMM_FLOATS, MR_FLOAT32, m, p->inner);
    }
}

/* ---- as floats -------------------------------------------------------------
 * Runs that nearly fill the lanes.
 */

static int64_t
floats_pieces(const mr_quant_jobs *p)
{
    return (p->inner - 1) / MR_QUANT_FLOATS_DEPTH + 1;
}

/* Units: pieces of blocks of 32 rows of the runs. */
static void
floats_pack_piece(void *ctx, int64_t begin, int64_t end)
{
    const mr_quant_jobs *p = ctx;
    const mr_kernel_view *in = &p->a->in[0];
    int64_t pieces = floats_pieces(p);
    int64_t row_bytes = p->inner * mr__dtype_size(in->dtype);
    const void *x[MR_STRIP_ROWS];

    for (int64_t u = begin; u < end; u++) {
        int64_t block = u % RUN_BLOCKS, at = u / RUN_BLOCKS % pieces;
        int64_t run = u / RUN_BLOCKS / pieces, m = run_length(p, run);

        if (!mr__quant_in_floats(p, m) ||
            block * (MR_QUANT_RUN / RUN_BLOCKS) >= m)
            continue;
        for (int64_t i = 0; i < m; i++)
            x[i] = (const char *)in->data +
                   p->jobs[p->runs[run] + i].x * row_bytes;
        mr__quant_floats_pack(x, in->dtype, m, p->inner, block,
                              at * MR_QUANT_FLOATS_DEPTH,
                              p->packed + p->first[run]);
    }
}

/* Units: strips of rows of w of the runs. */
static void
floats_piece(void *ctx, int64_t begin, int64_t end)
{
    const mr_quant_jobs *p = ctx;
    _Alignas(64) float y[MR_STRIP_ROWS * FLOATS_ROWS];
    _Alignas(64) float turned[MR_STRIP_ROWS * FLOATS_ROWS];
    int64_t strips = (p->outer - 1) / FLOATS_ROWS + 1;

    for (int64_t u = begin; u < end; u++) {
        int64_t run = u / strips, j = u % strips * FLOATS_ROWS;
        int64_t n = p->outer - j < FLOATS_ROWS ? p->outer - j : FLOATS_ROWS;
        int64_t m = run_length(p, run), lanes = mr__quant_floats_lanes(m);
        const mr_quant_job *jobs = p->jobs + p->runs[run];
        mr_quant_matrix w = mr__quant_jobs_matrix(p, jobs[0].w);

        if (!mr__quant_in_floats(p, m))
            continue;
        mr__quant_floats_strip(&w, m, p->packed + p->first[run], j, y);
        mr__gemm_of_tier(mr__tier()->id)
            ->turn(turned, y, lanes, n, FLOATS_ROWS, lanes);
        for (int64_t i = 0; i < m; i++)
            out_write(p, jobs[i].out, j, n, turned + i * FLOATS_ROWS);
    }
}

/* The jobs and their runs are there. */
static void
floats_run(mr_quant_jobs *p)
{
    int64_t strips = (p->outer - 1) / FLOATS_ROWS + 1;

    mr__cpu_for(p->n_runs * RUN_BLOCKS * floats_pieces(p),
                mr__cpu_grain(4.0 * MR_QUANT_FLOATS_DEPTH), floats_pack_piece,
                p);
    mr__cpu_for(p->n_runs * strips, mr__cpu_grain(10.0 * (double)p->inner),
                floats_piece, p);
}

static bool
any_in_floats(const mr_quant_jobs *p)
{
    for (int64_t run = 0; run < p->n_runs; run++)
        if (mr__quant_in_floats(p, run_length(p, run)))
            return true;
    return false;
}

/* The jobs are there. */
static void
few_run(mr_quant_jobs *p)
{
    int64_t rows = p->a->in[0].size / p->inner;
    int64_t band = p->turned ? MR_QUANT_BAND_ROWS : MR_QUANT_BAND_COLS;

    band = p->outer < band ? p->outer : band;
    runs_find(p);
    firsts_find(p, WAY_FLOATS);
    mr__cpu_for(rows, mr__cpu_grain(1.0 * (double)p->inner), arrange_piece, p);
    mr__cpu_for(p->n_runs * run_panels(), mr__cpu_grain(2.0 * (double)p->inner),
                run_pack_piece, p);
    if (any_in_floats(p))
        floats_run(p);
    if (few_shares(p)) {
        p->slice = mr__share_slice();
        mr__cpu_units(mr__pool_threads(), p->n_runs * p->n_bands, NULL, 0,
                      few_shared, p);
        return;
    }
    mr__cpu_for(p->n_runs * p->n_bands,
                mr__cpu_grain(0.1 * (double)p->inner * (double)band), few_piece,
                p);
}

/* ---- rows that can be none of the pairs or pieces --------------------------
 */

static void
unfit_begin(mr_quant_jobs *p)
{
    for (int64_t i = 0; i < p->n_jobs; i++)
        atomic_init(&p->unfit[i], false);
}

static void
unfit_note(mr_quant_jobs *p, int64_t j)
{
    atomic_store_explicit(&p->unfit[j], true, memory_order_relaxed);
}

/* Jobs of a run that are to be made again: how many (list NULL: no more than
 * that). */
static int64_t
run_unfit(const mr_quant_jobs *p, int64_t run, mr_quant_job *list)
{
    int64_t n = 0;

    for (int64_t i = p->runs[run]; i < p->runs[run + 1]; i++)
        if (atomic_load_explicit(&p->unfit[i], memory_order_relaxed)) {
            if (list)
                list[n] = p->jobs[i];
            n++;
        }
    return n;
}

/* These, a run after the other, where packed rows were: always as floats, so
 * that their number shows in no bit. */
static void
unfit_run(const mr_quant_jobs *p)
{
    for (int64_t run = 0; run < p->n_runs; run++) {
        mr_quant_job list[MR_QUANT_RUN];
        int64_t n = run_unfit(p, run, list), runs[2] = {0, n}, first[1] = {0};
        mr_quant_jobs again = *p;

        if (n == 0)
            continue;
        again.again = true;
        again.jobs = list;
        again.n_jobs = n;
        again.runs = runs;
        again.n_runs = 1;
        again.first = first;
        floats_run(&again);
    }
}

/* ---- in pairs ---------------------------------------------------------------
 */

/* Can pairs have none of some numbers (mr__quant_pairs_rows)? */
static bool
pairs_refuse(const uint16_t *x, int64_t n)
{
    enum { NORMAL = 0x80, HUGE_HALF = (127 + 64) << 7 };

    for (int64_t i = 0; i < n; i++) {
        int size = x[i] & 0x7FFF;

        if ((size != 0 && size < NORMAL) || size >= HUGE_HALF)
            return true;
    }
    return false;
}

/* Rows of a block of 32, of which some numbers from `at` on are no pairs. */
static void
pairs_note(mr_quant_jobs *p, int64_t run, int64_t block, int64_t at,
           const uint16_t *const *x)
{
    enum { ROWS = MR_QUANT_RUN / RUN_BLOCKS, DEPTH = MR_QUANT_PAIRS_DEPTH };
    int64_t m = run_length(p, run), left = p->inner - at;

    for (int64_t i = block * ROWS; i < m && i < (block + 1) * ROWS; i++)
        if (pairs_refuse(x[i] + at, left < DEPTH ? left : DEPTH))
            unfit_note(p, p->runs[run] + i);
}

/* Pieces of the depth. */
static int64_t
pairs_pieces(const mr_quant_jobs *p)
{
    return (p->inner - 1) / MR_QUANT_PAIRS_DEPTH + 1;
}

/* Units: pieces of blocks of 32 rows of the runs. */
static void
pairs_pack_piece(void *ctx, int64_t begin, int64_t end)
{
    mr_quant_jobs *p = ctx;
    const uint16_t *x[MR_STRIP_ROWS], *from = p->a->in[0].data;
    int64_t pieces = pairs_pieces(p);

    for (int64_t u = begin; u < end; u++) {
        int64_t block = u % RUN_BLOCKS, at = u / RUN_BLOCKS % pieces;
        int64_t run = u / RUN_BLOCKS / pieces, m = run_length(p, run);

        if (block * (MR_QUANT_RUN / RUN_BLOCKS) >= m)
            continue;
        for (int64_t i = 0; i < m; i++)
            x[i] = from + p->jobs[p->runs[run] + i].x * p->inner;
        if (!mr__quant_pairs_pack(&p->w.f, x, m, p->inner, block,
                                  at * MR_QUANT_PAIRS_DEPTH,
                                  p->packed + p->first[run]))
            pairs_note(p, run, block, at * MR_QUANT_PAIRS_DEPTH, x);
    }
}

/* Units: strips of rows of w of the runs. */
static void
pairs_piece(void *ctx, int64_t begin, int64_t end)
{
    const mr_quant_jobs *p = ctx;
    _Alignas(64) float y[MR_STRIP_ROWS * PAIRS_ROWS];
    _Alignas(64) float turned[MR_STRIP_ROWS * PAIRS_ROWS];
    int64_t strips = (p->outer - 1) / PAIRS_ROWS + 1;

    for (int64_t u = begin; u < end; u++) {
        int64_t run = u / strips, j = u % strips * PAIRS_ROWS;
        int64_t n = p->outer - j < PAIRS_ROWS ? p->outer - j : PAIRS_ROWS;
        int64_t m = run_length(p, run), lanes = mr__quant_pairs_lanes(m);
        const mr_quant_job *jobs = p->jobs + p->runs[run];
        mr_quant_matrix w = mr__quant_jobs_matrix(p, jobs[0].w);

        if (run_unfit(p, run, NULL) == m)
            continue;
        mr__quant_pairs_strip(&w, m, p->packed + p->first[run], j, y);
        mr__gemm_of_tier(mr__tier()->id)
            ->turn(turned, y, lanes, PAIRS_ROWS, PAIRS_ROWS, lanes);
        for (int64_t i = 0; i < m; i++)
            out_write(p, jobs[i].out, j, n, turned + i * PAIRS_ROWS);
    }
}

/* The jobs and their runs are there. */
static void
pairs_run(mr_quant_jobs *p)
{
    int64_t strips = (p->outer - 1) / PAIRS_ROWS + 1;
    double depth = (double)p->inner;

    firsts_find(p, WAY_PAIRS);
    unfit_begin(p);
    mr__cpu_for(p->n_runs * RUN_BLOCKS * pairs_pieces(p),
                mr__cpu_grain(2.0 * MR_QUANT_PAIRS_DEPTH), pairs_pack_piece, p);
    mr__cpu_for(p->n_runs * strips, mr__cpu_grain(10.0 * depth), pairs_piece,
                p);
    unfit_run(p);
}

/* ---- in pieces --------------------------------------------------------------
 */

enum { RUN_SIXTEENS = MR_QUANT_RUN / MR_QUANT_PIECES_LANES };

/* Units: pieces of the depth of blocks of 16 rows of the runs. */
static void
pieces_pack_piece(void *ctx, int64_t begin, int64_t end)
{
    mr_quant_jobs *p = ctx;
    const mr_kernel_view *in = &p->a->in[0];
    int64_t pieces = (p->inner - 1) / MR_QUANT_PIECES_DEPTH + 1;
    int64_t row_bytes = p->inner * mr__dtype_size(in->dtype);
    const void *x[MR_STRIP_ROWS];
    uint32_t unfit;

    for (int64_t u = begin; u < end; u++) {
        int64_t block = u % RUN_SIXTEENS, at = u / RUN_SIXTEENS % pieces;
        int64_t run = u / RUN_SIXTEENS / pieces, m = run_length(p, run);
        int64_t row = p->runs[run] + block * MR_QUANT_PIECES_LANES;

        if (block * MR_QUANT_PIECES_LANES >= m)
            continue;
        for (int64_t i = 0; i < m; i++)
            x[i] = (const char *)in->data +
                   p->jobs[p->runs[run] + i].x * row_bytes;
        unfit = mr__quant_pieces_rows(&p->w.f, x, in->dtype, m, p->inner, block,
                                      at * MR_QUANT_PIECES_DEPTH,
                                      p->packed + p->first[run]);
        for (; unfit != 0; unfit &= unfit - 1)
            unfit_note(p, row + __builtin_ctz(unfit));
    }
}

/* Units: strips of rows of w of the runs. */
static void
pieces_piece(void *ctx, int64_t begin, int64_t end)
{
    const mr_quant_jobs *p = ctx;
    _Alignas(64) float y[MR_STRIP_ROWS * PIECES_ROWS];
    _Alignas(64) float turned[MR_STRIP_ROWS * PIECES_ROWS];
    int64_t strips = (p->outer - 1) / PIECES_ROWS + 1;

    for (int64_t u = begin; u < end; u++) {
        int64_t run = u / strips, j = u % strips * PIECES_ROWS;
        int64_t n = p->outer - j < PIECES_ROWS ? p->outer - j : PIECES_ROWS;
        int64_t m = run_length(p, run), lanes = mr__quant_pieces_lanes(m);
        const mr_quant_job *jobs = p->jobs + p->runs[run];
        mr_quant_matrix w = mr__quant_jobs_matrix(p, jobs[0].w);
        mr_quant_run r = {m, mr__quant_pieces_of(p->a->in[0].dtype),
                          p->packed + p->first[run]};

        if (run_unfit(p, run, NULL) == m)
            continue;
        mr__quant_pieces_strip(&w, &r, j, y, turned);
        mr__gemm_of_tier(mr__tier()->id)
            ->turn(turned, y, lanes, PIECES_ROWS, PIECES_ROWS, m);
        for (int64_t i = 0; i < m; i++)
            out_write(p, jobs[i].out, j, n, turned + i * PIECES_ROWS);
    }
}

/* The jobs and their runs are there. */
static void
pieces_run(mr_quant_jobs *p)
{
    int64_t strips = (p->outer - 1) / PIECES_ROWS + 1;
    int64_t pieces = (p->inner - 1) / MR_QUANT_PIECES_DEPTH + 1;

    firsts_find(p, WAY_PIECES);
    unfit_begin(p);
    mr__cpu_for(p->n_runs * RUN_SIXTEENS * pieces,
                mr__cpu_grain(2.0 * MR_QUANT_PIECES_DEPTH), pieces_pack_piece,
                p);
    mr__cpu_for(p->n_runs * strips, mr__cpu_grain(1.5 * (double)p->inner),
                pieces_piece, p);
    unfit_run(p);
}

/* ---- many rows --------------------------------------------------------------
 */

static mr_product
many_product(const mr_quant_jobs *p)
{
    const mr_kernel_view *x = &p->a->in[0], *out = &p->a->out[0];
    mr_product g = {.dtype = out->dtype,
                    .m = p->m,
                    .n = p->outer,
                    .k = p->inner,
                    .a = {x->data, x->dtype, p->m, p->inner, 1},
                    .b = {p->a->in[1].data, out->dtype, p->outer, 1, 1},
                    .c = out->data,
                    .c_row = p->outer,
                    .c_col = 1,
                    .c_item = p->m * p->outer,
                    .batch = p->batch,
                    .n_items = p->n_items,
                    .pack_b = panel_pack,
                    .pack_ctx = p};

    for (int32_t k = 0; k < g.batch.ndim; k++)
        g.batch.stride[0][k] *= p->m * p->inner;
    return g;
}

/* ---- the rows of the table
 * ----------------------------------------------------
 */

static bool
nothing(const mr_quant_jobs *p)
{
    const mr_kernel_view *out = &p->a->out[0];

    if (out->size == 0)
        return true;
    if (p->inner > 0)
        return false;
    memset(out->data, 0,
           (size_t)out->size * (size_t)mr__dtype_size(out->dtype));
    return true;
}

size_t
mr__cpu_quantized_matmul_workspace(const mr_kernel_args *a)
{
    mr_quant_jobs p = mr__quant_jobs_read(a);
    int64_t n_jobs;
    mr_product g;

    if (a->out[0].size == 0 || p.inner == 0)
        return 0;
    mr__quant_jobs_batch(&p);
    n_jobs = p.m * p.n_items;
    if (mr__quant_in_pieces(&p) && p.m >= PIECES_LEAST)
        return mr__quant_pieces_place(&p, NULL, n_jobs, p.n_items);
    if (mr__quant_in_pairs(&p) && p.m >= PAIRS_LEAST)
        return mr__quant_pairs_place(&p, NULL, n_jobs, p.n_items);
    if (p.m <= MR_QUANT_FEW)
        return mr__quant_few_place(&p, NULL, n_jobs);
    if (mr__quant_in_floats(&p, p.m))
        return mr__quant_floats_place(&p, NULL);
    g = many_product(&p);
    return mr__product_strips_fit(&g) ? mr__product_strips_bytes(&g)
                                      : mr__product_packed_bytes(&g);
}

/* What follows, where no tile of a product has seen to it. */
static void
follow(const mr_quant_jobs *p)
{
    if (p->a->epilogue != NULL && p->a->out[0].size > 0)
        mr__after_all(p->a->epilogue);
}

static void
many_run(mr_product *g, const mr_quant_jobs *p)
{
    const mr_epilogue *e = p->a->epilogue;
    const mr_kernel_view *out = &p->a->out[0];
    bool tiles =
        e != NULL && mr__after_pays(e, out->size * mr__dtype_size(out->dtype));
    mr_after after;

    if (tiles) {
        mr__after_make(&after, e);
        g->after = &after;
    }
    if (mr__product_strips_fit(g))
        mr__product_strips(g, p->a->workspace);
    else
        mr__product_packed(g, p->a->workspace);
    if (!tiles)
        follow(p);
}

/* A job for each row of the items. */
static void
jobs_make(mr_quant_jobs *p)
{
    mr_walk walk = p->batch;

    for (int64_t i = 0; i < p->n_items; i++, mr__walk_next(&walk)) {
        int64_t x = walk.ndim > 0 ? walk.offset[0] : 0;
        int64_t w = walk.ndim > 0 ? walk.offset[1] : 0;

        for (int64_t r = 0; r < p->m; r++)
            p->jobs[i * p->m + r] =
                (mr_quant_job){x * p->m + r, w, i * p->m + r};
    }
}

static bool
matmul_in_floats(mr_quant_jobs *p)
{
    if (!mr__quant_in_floats(p, p->m))
        return false;
    mr__quant_floats_place(p, p->a->workspace);
    jobs_make(p);
    runs_find(p);
    firsts_find(p, WAY_FLOATS);
    floats_run(p);
    return true;
}

static bool
matmul_in_pieces(mr_quant_jobs *p)
{
    if (!mr__quant_in_pieces(p) || p->m < PIECES_LEAST)
        return false;
    mr__quant_pieces_place(p, p->a->workspace, p->m * p->n_items, p->n_items);
    jobs_make(p);
    runs_find(p);
    pieces_run(p);
    return true;
}

static bool
matmul_in_pairs(mr_quant_jobs *p)
{
    if (!mr__quant_in_pairs(p) || p->m < PAIRS_LEAST)
        return false;
    mr__quant_pairs_place(p, p->a->workspace, p->m * p->n_items, p->n_items);
    jobs_make(p);
    runs_find(p);
    pairs_run(p);
    return true;
}

mr_code
mr__cpu_quantized_matmul(const mr_kernel_args *a)
{
    mr_quant_jobs p = mr__quant_jobs_read(a);

    if (nothing(&p)) {
        follow(&p);
        return MR_OK;
    }
    mr__quant_jobs_batch(&p);
    if (matmul_in_pieces(&p) || matmul_in_pairs(&p) || matmul_in_floats(&p)) {
        follow(&p);
    } else if (p.m > MR_QUANT_FEW) {
        mr_product g = many_product(&p);

        many_run(&g, &p);
    } else {
        mr__quant_few_place(&p, a->workspace, p.m * p.n_items);
        jobs_make(&p);
        few_run(&p);
        follow(&p);
    }
    return MR_OK;
}

/* Bytes at 10 GB/s, or 50 GFLOP/s when that is more. */
double
mr__cpu_quantized_matmul_cost(const mr_kernel_args *a)
{
    const mr_kernel_view *x = &a->in[0];
    double k = (double)x->dim[x->ndim - 1];

    return 500.0 + 0.4 * (double)a->in[1].size +
           0.04 * k * (double)a->out[0].size;
}

/* The workspace of gather_qmm: the indices, resolved, and the first job of each
 * matrix; then the few's. */
static size_t
gather_bytes(const mr_quant_jobs *p, int64_t n)
{
    return mr__whole_lines((size_t)(2 * n + p->n_w + 1) * sizeof(int64_t));
}

size_t
mr__cpu_gather_qmm_workspace(const mr_kernel_args *a)
{
    mr_quant_jobs p = mr__quant_jobs_read(a);
    int64_t n = a->in[a->n_in - 1].size;
    size_t bytes = mr__quant_few_place(&p, NULL, n * p.m), pairs = 0;

    if (mr__quant_in_pieces(&p))
        pairs = mr__quant_pieces_place(&p, NULL, n * p.m, p.n_w);
    else if (mr__quant_in_pairs(&p))
        pairs = mr__quant_pairs_place(&p, NULL, n * p.m, p.n_w);
    return gather_bytes(&p, n) + (bytes > pairs ? bytes : pairs);
}

/* Jobs in the order of their matrices; those of one matrix in theirs. */
static void
jobs_sort(mr_quant_jobs *p, int64_t n, const int64_t *lhs, const int64_t *rhs,
          int64_t *first)
{
    memset(first, 0, (size_t)(p->n_w + 1) * sizeof *first);
    for (int64_t i = 0; i < n; i++)
        first[rhs[i] + 1] += p->m;
    for (int64_t i = 0; i < p->n_w; i++)
        first[i + 1] += first[i];
    for (int64_t i = 0; i < n; i++)
        for (int64_t r = 0; r < p->m; r++)
            p->jobs[first[rhs[i]]++] =
                (mr_quant_job){lhs[i] * p->m + r, rhs[i], i * p->m + r};
}

/* Have matrices enough rows for pieces? */
static bool
gather_in_pieces(mr_quant_jobs *p, void *workspace)
{
    if (!mr__quant_in_pieces(p))
        return false;
    mr__quant_pieces_place(p, workspace, p->n_jobs, p->n_w);
    runs_find(p);
    if (p->n_jobs < PIECES_LEAST * p->n_runs)
        return false;
    pieces_run(p);
    return true;
}

/* Has some matrix enough rows for pairs? */
static bool
gather_in_pairs(mr_quant_jobs *p, void *workspace)
{
    int64_t most = 0;

    if (!mr__quant_in_pairs(p) || mr__quant_in_pieces(p))
        return false;
    mr__quant_pairs_place(p, workspace, p->n_jobs, p->n_w);
    runs_find(p);
    for (int64_t run = 0; run < p->n_runs; run++)
        most = run_length(p, run) > most ? run_length(p, run) : most;
    if (most < PAIRS_LEAST)
        return false;
    pairs_run(p);
    return true;
}

mr_code
mr__cpu_gather_qmm(const mr_kernel_args *a)
{
    const mr_kernel_view *index = &a->in[a->n_in - 2];
    mr_quant_jobs p = mr__quant_jobs_read(a);
    int64_t n = index->size, *lhs = a->workspace, *rhs = lhs + n;
    mr_index_axis x = {&index[0], 0, p.n_x, 1, 1};
    mr_index_axis w = {&index[1], 0, p.n_w, 1, 1};
    char *room;

    if (mr__index_offsets(&x, 1, n, lhs) != MR_OK ||
        mr__index_offsets(&w, 1, n, rhs) != MR_OK)
        return MR_E_INDEX;
    if (nothing(&p)) {
        follow(&p);
        return MR_OK;
    }
    room = (char *)a->workspace + gather_bytes(&p, n);
    mr__quant_jobs_place(&p, room, n * p.m);
    jobs_sort(&p, n, lhs, rhs, rhs + n);
    if (!gather_in_pieces(&p, room) && !gather_in_pairs(&p, room)) {
        mr__quant_few_place(&p, room, n * p.m);
        few_run(&p);
    }
    follow(&p);
    return MR_OK;
}
