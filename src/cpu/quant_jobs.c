/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_jobs.c -- operands of products with packed matrices, which way rows may
 * go, and what each way needs of the workspace.
 *
 * Called by: quant_product.c.  Calls: kernels/quant.h.
 */
#include "cpu/quant_jobs.h"

#include "base/integers.h"
#include "kernels/quant_floats.h"
#include "kernels/quant_pairs.h"
#include "kernels/quant_pieces.h"

/* ---- reading the operands ---------------------------------------------------
 */

static int64_t
matrices(const mr_kernel_view *x)
{
    int64_t n = 1;

    for (int32_t k = 0; k < x->ndim - 2; k++)
        n *= x->dim[k];
    return n;
}

/* Strides of the matrices of x along the batch axes of out. */
static void
matrix_strides(const mr_kernel_view *x, const mr_kernel_view *out,
               int64_t *stride)
{
    int64_t step = 1;

    for (int32_t k = out->ndim - 3; k >= 0; k--) {
        int32_t own = k - (out->ndim - x->ndim);

        stride[k] = own < 0 || x->dim[own] == 1 ? 0 : step;
        step *= own < 0 ? 1 : x->dim[own];
    }
}

mr_quant_jobs
mr__quant_jobs_read(const mr_kernel_args *a)
{
    const mr_quant_params *q = a->params;
    const mr_kernel_view *x = &a->in[0], *w = &a->in[1], *out = &a->out[0];
    mr_quant_jobs p = {.a = a,
                       .w = mr__quant_matrix(q, w, &a->in[2], &a->in[3]),
                       .turned = q->transpose,
                       .m = x->dim[x->ndim - 2],
                       .inner = x->dim[x->ndim - 1],
                       .outer = out->dim[out->ndim - 1],
                       .n_x = matrices(x),
                       .n_w = matrices(w)};
    int64_t band = p.turned ? MR_QUANT_BAND_ROWS : MR_QUANT_BAND_COLS;

    p.n_bands = (p.outer + band - 1) / band;
    p.arranged_floats =
        p.turned ? mr__quant_arranged_floats(&p.w.f, p.inner) : 0;
    return p;
}

void
mr__quant_jobs_batch(mr_quant_jobs *p)
{
    const mr_kernel_view *x = &p->a->in[0], *w = &p->a->in[1];
    const mr_kernel_view *out = &p->a->out[0];
    int64_t stride[2][MR_MAX_NDIM];

    matrix_strides(x, out, stride[0]);
    matrix_strides(w, out, stride[1]);
    mr__walk_init(&p->batch, out->ndim - 2, out->dim, 0);
    mr__walk_add(&p->batch, out->ndim - 2, stride[0], 0);
    mr__walk_add(&p->batch, out->ndim - 2, stride[1], 0);
    mr__walk_merge(&p->batch);
    p->n_items = mr__walk_size(&p->batch);
    if (p->n_w == 1 && p->n_items == p->n_x) { /* one product with all rows */
        p->m *= p->n_items;
        p->n_items = p->n_x = 1;
        p->batch.ndim = 0;
    }
}

/* Matrix i of w. */
mr_quant_matrix
mr__quant_jobs_matrix(const mr_quant_jobs *p, int64_t i)
{
    mr_quant_matrix w = p->w;
    int64_t codes = i * w.rows * w.cols, groups = codes / w.f.group;
    int64_t size = mr__dtype_size(p->a->in[2].dtype);

    w.words = (const char *)w.words + codes / 8 * w.f.bits;
    w.scales = (const char *)w.scales + groups * size;
    if (w.f.biased)
        w.biases = (const char *)w.biases + groups * size;
    return w;
}

bool
mr__quant_x_is_float(const mr_quant_jobs *p)
{
    return p->a->in[0].dtype == MR_FLOAT32;
}

/* Can the product go in pairs, if its numbers can? */
bool
mr__quant_in_pairs(const mr_quant_jobs *p)
{
    return p->turned && p->a->in[0].dtype == MR_BFLOAT16 &&
           mr__quant_pairs_pay(&p->w.f);
}

/* The same in pieces. */
bool
mr__quant_in_pieces(const mr_quant_jobs *p)
{
    return p->turned && mr__quant_pieces_pay(&p->w.f, p->inner);
}

/* Do m rows meet values that are made beside the products?  Where they nearly
 * fill the lanes: a strip has lanes for each fourth (4 bits, one thread, to
 * strips: 12 rows 1.05 of the time, 13 0.82, 24 1.20, 28 1.05, 32 0.94, 64
 * 0.98). */
bool
mr__quant_in_floats(const mr_quant_jobs *p, int64_t m)
{
    if (p->again)
        return true;
    return p->turned && m > MR_QUANT_FEW && m <= MR_QUANT_RUN &&
           mr__quant_floats_pay() && mr__quant_floats_lanes(m) - m < 4;
}

/* Floats of the rows of all runs when n jobs have n_w matrices.  In panels:
 * each long run has more than MR_QUANT_FEW and its last panel need not be full.
 */
static int64_t
panel_floats(const mr_quant_jobs *p, int64_t n)
{
    return (n + n / (MR_QUANT_FEW + 1) * (mr__gemm_rows() - 1)) * p->inner;
}

static int64_t
most_runs(int64_t n, int64_t n_w)
{
    int64_t runs = n_w + n / MR_QUANT_RUN;

    return runs < n ? runs : n;
}

static int64_t
pair_floats(const mr_quant_jobs *p, int64_t n, int64_t n_w)
{
    const int64_t eight = MR_QUANT_PAIRS_LANES;
    int64_t runs = most_runs(n, n_w);

    return mr__quant_pairs_floats(&p->w.f, 1, p->inner) / eight *
               (n + runs * (eight - 1)) +
           runs * MR_QUANT_ALIGN;
}

/* Lays the jobs' memory out from `at` on (NULL: measures only). */
size_t
mr__quant_jobs_place(mr_quant_jobs *p, char *at, int64_t n_jobs)
{
    size_t bytes = 0;

    p->jobs = at ? (mr_quant_job *)(void *)(at + bytes) : NULL;
    bytes += mr__whole_lines((size_t)n_jobs * sizeof(mr_quant_job));
    p->runs = at ? (int64_t *)(void *)(at + bytes) : NULL;
    bytes += mr__whole_lines((size_t)(n_jobs + 1) * sizeof(int64_t));
    p->first = at ? (int64_t *)(void *)(at + bytes) : NULL;
    bytes += mr__whole_lines((size_t)n_jobs * sizeof(int64_t));
    p->unfit = at ? (atomic_bool *)(void *)(at + bytes) : NULL;
    bytes += mr__whole_lines((size_t)n_jobs * sizeof(atomic_bool));
    p->n_jobs = n_jobs;
    return bytes;
}

/* The same of the few. */
size_t
mr__quant_few_place(mr_quant_jobs *p, char *at, int64_t n_jobs)
{
    int64_t rows = p->a->in[0].size / (p->inner > 0 ? p->inner : 1);
    size_t wide =
        mr__quant_x_is_float(p) ? 0 : (size_t)p->a->in[0].size * sizeof(float);
    size_t arranged = (size_t)(rows * p->arranged_floats) * sizeof(float);
    size_t bytes = mr__quant_jobs_place(p, at, n_jobs);

    p->wide = at ? (float *)(void *)(at + bytes) : NULL;
    bytes += mr__whole_lines(wide);
    p->arranged = at ? (float *)(void *)(at + bytes) : NULL;
    bytes += mr__whole_lines(arranged);
    p->packed = at ? (float *)(void *)(at + bytes) : NULL;
    return bytes +
           mr__whole_lines((size_t)panel_floats(p, n_jobs) * sizeof(float));
}

/* With room for so many floats of packed rows, and for a run that is made
 * again. */
static size_t
packed_place(mr_quant_jobs *p, char *at, int64_t n_jobs, int64_t floats)
{
    size_t bytes = mr__quant_jobs_place(p, at, n_jobs);
    int64_t run = n_jobs < MR_QUANT_RUN ? n_jobs : MR_QUANT_RUN;
    int64_t again = mr__quant_floats_floats(run, p->inner);

    p->packed = at ? (float *)(void *)(at + bytes) : NULL;
    return bytes + mr__whole_lines((size_t)(floats > again ? floats : again) *
                                   sizeof(float));
}

/* And of those in pairs. */
size_t
mr__quant_pairs_place(mr_quant_jobs *p, char *at, int64_t n_jobs, int64_t n_w)
{
    return packed_place(p, at, n_jobs, pair_floats(p, n_jobs, n_w));
}

/* And of those in pieces. */
size_t
mr__quant_pieces_place(mr_quant_jobs *p, char *at, int64_t n_jobs, int64_t n_w)
{
    int64_t floats = mr__quant_pieces_most(&p->w.f, p->a->in[0].dtype, n_jobs,
                                           most_runs(n_jobs, n_w), p->inner);

    return packed_place(p, at, n_jobs, floats);
}

/* And of more than MR_QUANT_FEW rows of each item as floats. */
size_t
mr__quant_floats_place(mr_quant_jobs *p, char *at)
{
    size_t bytes = mr__quant_jobs_place(p, at, p->m * p->n_items);

    p->packed = at ? (float *)(void *)(at + bytes) : NULL;
    return bytes +
           mr__whole_lines(
               (size_t)(p->n_items * mr__quant_floats_floats(p->m, p->inner)) *
               sizeof(float));
}
