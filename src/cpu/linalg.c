/* SPDX-License-Identifier: Apache-2.0
 *
 * linalg.c -- the linear algebra rows of the kernel table: every operator is
 * one job on each matrix of a batch.
 *
 * The matrices of a batch are cut up among the threads, each piece with its
 * own part of the workspace; what a matrix gives depends on itself alone.  A
 * matrix that cannot be worked on (singular, not positive definite) is named
 * by its place in the batch, the first one of several.
 * Called by: device.c.  Calls: dense.h.
 */
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/integers.h"
#include "base/pool.h"
#include "cpu/blas.h"
#include "cpu/cpu.h"
#include "cpu/dense.h"
#include "cpu/product.h"
#include "gen/ids.h"
#include "ops/params.h"

typedef struct work {
    const mr_kernel_args *a;
    const mr_dense *d;
    mr_dtype t;      /* of the matrices */
    int64_t item;    /* bytes of an element */
    int64_t m, n;    /* in[0] is m x n */
    int64_t k;       /* columns of in[1] */
    int64_t count;   /* matrices */
    int64_t n_slots; /* pieces, each with slot_bytes of workspace */
    size_t slot_bytes, lu_bytes;
    int64_t out_bytes[3]; /* of one matrix's part of each output */
    mr_walk walk;         /* offsets of in[0] and in[1] */
    _Atomic int64_t failed;
} work;

/* Where one matrix is: its inputs, its scratch.  `same`: in[0] is the one of
 * the call before, whose factors are still in scratch. */
typedef struct place {
    const char *in[2];
    char *scratch;
    bool same;
} place;

/* False: matrix i cannot be worked on. */
typedef bool one_fn(const work *w, int64_t i, const place *p);

/* SMALL: up to this many rows a loop is as good as the library. */
enum { SMALL = 16 };

/* ---- memory -----------------------------------------------------------------
 */

static void
element_copy(char *to, const char *from, int64_t item)
{
    if (item == 4)
        memcpy(to, from, 4);
    else if (item == 8)
        memcpy(to, from, 8);
    else
        memcpy(to, from, 16);
}

/* rows x columns elements, `rs` and `cs` apart, to `to` without gaps. */
static void
matrix_load(char *to, const char *from, int64_t rows, int64_t columns,
            int64_t rs, int64_t cs, int64_t item)
{
    if (cs == 1 && rs == columns) {
        memcpy(to, from, (size_t)(rows * columns * item));
        return;
    }
    for (int64_t i = 0; i < rows; i++) {
        const char *row = from + i * rs * item;

        if (cs == 1)
            memcpy(to + i * columns * item, row, (size_t)(columns * item));
        else
            for (int64_t j = 0; j < columns; j++)
                element_copy(to + (i * columns + j) * item, row + j * cs * item,
                             item);
    }
}

static void
load(const work *w, const place *p, int which, char *to)
{
    const mr_kernel_view *x = &w->a->in[which];
    int32_t r = x->ndim - 2, c = x->ndim - 1;

    matrix_load(to, p->in[which], x->dim[r], x->dim[c], x->stride[r],
                x->stride[c], w->item);
}

static bool
is_complex(mr_dtype t)
{
    return t == MR_COMPLEX64 || t == MR_COMPLEX128;
}

static bool
is_double(mr_dtype t)
{
    return t == MR_FLOAT64 || t == MR_COMPLEX128;
}

static double
real_at(mr_dtype t, const void *x, int64_t i)
{
    return is_double(t) ? ((const double *)x)[i]
                        : (double)((const float *)x)[i];
}

static void
real_put(mr_dtype t, void *x, int64_t i, double v)
{
    if (is_double(t))
        ((double *)x)[i] = v;
    else
        ((float *)x)[i] = (float)v;
}

/* in[0] to `to`; what the triangle named by `upper` holds comes to the lower
 * one. */
static void
load_lower(const work *w, const place *p, bool upper, char *to)
{
    const mr_kernel_view *x = &w->a->in[0];
    int64_t rs = x->stride[x->ndim - 2], cs = x->stride[x->ndim - 1];

    matrix_load(to, p->in[0], w->n, w->n, upper ? cs : rs, upper ? rs : cs,
                w->item);
    if (!upper || !is_complex(w->t))
        return;
    for (int64_t i = 0; i < w->n * w->n; i++)
        real_put(w->t, to, 2 * i + 1, -real_at(w->t, to, 2 * i + 1));
}

/* The memory of matrix i in output `which`. */
static char *
out_at(const work *w, int which, int64_t i)
{
    return (char *)w->a->out[which].data + i * w->out_bytes[which];
}

/* NaN and infinities would keep iterations from their end. */
static bool
all_finite(mr_dtype t, const void *x, int64_t count)
{
    double sum = 0.0;

    count *= is_complex(t) ? 2 : 1;
    for (int64_t i = 0; i < count; i++)
        sum += real_at(t, x, i) * 0.0;
    return sum == 0.0;
}

static void
outputs_nan(const work *w, int64_t i)
{
    for (int k = 0; k < w->a->n_out; k++) {
        const mr_kernel_view *x = &w->a->out[k];
        int64_t count = x->size / w->count * (is_complex(x->dtype) ? 2 : 1);
        char *to = out_at(w, k, i);

        for (int64_t j = 0; j < count; j++)
            real_put(x->dtype, to, j, (double)NAN);
    }
}

static void
identity(mr_dtype t, int64_t item, void *x, int64_t n)
{
    memset(x, 0, (size_t)(n * n * item));
    for (int64_t i = 0; i < n; i++)
        real_put(t, (char *)x + (i * n + i) * item, 0, 1.0);
}

/* ---- systems ----------------------------------------------------------------
 */

/* The factors of in[0] in scratch; the determinant's sign and the logarithm of
 * its modulus follow from them. */
static char *
factored(const work *w, const place *p, int32_t **pivot)
{
    char *lu = p->scratch;

    *pivot = (int32_t *)(void *)(lu + w->lu_bytes);
    if (!p->same) {
        load(w, p, 0, lu);
        w->d->lu(w->t, lu, w->n, w->n, *pivot,
                 lu + w->lu_bytes +
                     mr__whole_lines(w->n * (int64_t)sizeof **pivot));
    }
    return lu;
}

static bool
diagonal_zero(const work *w, const char *a)
{
    int parts = is_complex(w->t) ? 2 : 1;

    for (int64_t i = 0; i < w->n; i++) {
        const char *x = a + (i * w->n + i) * w->item;

        if (real_at(w->t, x, 0) == 0.0 &&
            (parts == 1 || real_at(w->t, x, 1) == 0.0))
            return true;
    }
    return false;
}

static bool
solve_one(const work *w, int64_t i, const place *p)
{
    int32_t *pivot;
    const char *lu = factored(w, p, &pivot);
    char *b = out_at(w, 0, i);

    if (diagonal_zero(w, lu))
        return false;
    load(w, p, 1, b);
    w->d->lu_solve(w->t, lu, pivot, w->n, b, w->k);
    return true;
}

/* Matrix i is singular: false, but for an unchecked inverse, which is NaN. */
static bool
singular_one(const work *w, int64_t i)
{
    const mr_inverse_params *q = w->a->params;

    if (w->a->op->id != MR_OP_INV || !q->unchecked)
        return false;
    outputs_nan(w, i);
    return true;
}

static bool
inv_one(const work *w, int64_t i, const place *p)
{
    int32_t *pivot;
    const char *lu = factored(w, p, &pivot);
    char *b = out_at(w, 0, i);

    if (diagonal_zero(w, lu))
        return singular_one(w, i);
    identity(w->t, w->item, b, w->n);
    w->d->lu_solve(w->t, lu, pivot, w->n, b, w->n);
    return true;
}

static bool
triangular_one(const work *w, int64_t i, const place *p)
{
    const mr_triangle_params *q = w->a->params;
    char *b = out_at(w, 0, i);

    if (!p->same)
        load(w, p, 0, p->scratch);
    if (diagonal_zero(w, p->scratch))
        return false;
    load(w, p, 1, b);
    w->d->triangular(w->t, p->scratch, q->upper, w->n, b, w->k);
    return true;
}

/* The logarithm of |det| and its sign, or the product itself. */
static bool
det_one(const work *w, int64_t i, const place *p)
{
    int32_t *pivot;
    const char *lu = factored(w, p, &pivot);
    double product = 1.0, sum = 0.0, sign = 1.0;
    bool logs = w->a->n_out == 2;

    for (int64_t k = 0; k < w->n; k++) {
        double x = real_at(w->t, lu, k * w->n + k);

        x = pivot[k] == k ? x : -x;
        product *= x;
        if (logs) {
            sum += log(fabs(x));
            sign = x > 0.0 ? sign : x < 0.0 ? -sign : x * 0.0;
        }
    }
    real_put(w->t, out_at(w, 0, i), 0, logs ? sign : product);
    if (logs)
        real_put(w->t, out_at(w, 1, i), 0, sign == 0.0 ? -INFINITY : sum);
    return true;
}

static bool
cofactor_one(const work *w, int64_t i, const place *p)
{
    load(w, p, 0, p->scratch);
    w->d->cofactor(w->t, p->scratch, w->n, out_at(w, 0, i),
                   p->scratch + w->lu_bytes);
    return true;
}

/* ---- factors ----------------------------------------------------------------
 */

static bool
lu_one(const work *w, int64_t i, const place *p)
{
    char *lu = out_at(w, 0, i);
    int32_t *pivot = (int32_t *)(void *)out_at(w, 1, i);
    uint32_t *place_of = (uint32_t *)(void *)out_at(w, 2, i);
    int32_t *order = (int32_t *)(void *)p->scratch;
    int64_t steps = w->m < w->n ? w->m : w->n;

    load(w, p, 0, lu);
    w->d->lu(w->t, lu, w->m, w->n, pivot,
             p->scratch + mr__whole_lines(w->m * (int64_t)sizeof *order));
    for (int64_t k = 0; k < w->m; k++)
        order[k] = (int32_t)k;
    for (int64_t k = 0; k < steps; k++) {
        int32_t x = order[k];

        order[k] = order[pivot[k]];
        order[pivot[k]] = x;
    }
    for (int64_t k = 0; k < w->m; k++)
        place_of[order[k]] = (uint32_t)k;
    return true;
}

/* The lower factor in place; the upper one is its transpose. */
static bool
cholesky_one(const work *w, int64_t i, const place *p)
{
    const mr_triangle_params *q = w->a->params;
    char *a = out_at(w, 0, i);
    int64_t n = w->n, item = w->item;

    load_lower(w, p, q->upper, a);
    if (w->d->cholesky(w->t, a, n) != 0)
        return false;
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = r + 1; c < n; c++) {
            char *above = a + (r * n + c) * item,
                 *below = a + (c * n + r) * item;

            if (q->upper)
                element_copy(above, below, item);
            memset(q->upper ? below : above, 0, (size_t)item);
        }
    return true;
}

static bool
qr_one(const work *w, int64_t i, const place *p)
{
    load(w, p, 0, p->scratch);
    w->d->qr(w->t, p->scratch, w->m, w->n, out_at(w, 0, i), out_at(w, 1, i),
             p->scratch + w->lu_bytes);
    return true;
}

/* ---- spectra ----------------------------------------------------------------
 */

static bool
triangle_finite(const work *w, const char *a)
{
    for (int64_t r = 0; r < w->n; r++)
        if (!all_finite(w->t, a + r * w->n * w->item, r + 1))
            return false;
    return true;
}

static bool
eigh_one(const work *w, int64_t i, const place *p)
{
    const mr_triangle_params *q = w->a->params;
    bool vectors = w->a->n_out == 2;
    char *a = vectors ? out_at(w, 1, i) : p->scratch;

    load_lower(w, p, q->upper, a);
    if (!triangle_finite(w, a)) {
        outputs_nan(w, i);
        return true;
    }
    return w->d->eigh(w->t, a, w->n, out_at(w, 0, i), vectors,
                      p->scratch + w->lu_bytes);
}

static bool
svd_one(const work *w, int64_t i, const place *p)
{
    const mr_kernel_view *out = w->a->out;
    bool vectors = w->a->n_out == 3;
    int64_t nu = vectors ? out[0].dim[out[0].ndim - 1] : 0;
    int64_t nv = vectors ? out[2].dim[out[2].ndim - 2] : 0;

    load(w, p, 0, p->scratch);
    if (!all_finite(w->t, p->scratch, w->m * w->n)) {
        outputs_nan(w, i);
        return true;
    }
    return w->d->svd(
        w->t, p->scratch, w->m, w->n, vectors ? out_at(w, 0, i) : NULL, nu,
        out_at(w, vectors ? 1 : 0, i), vectors ? out_at(w, 2, i) : NULL, nv,
        p->scratch + w->lu_bytes);
}

static bool
eig_one(const work *w, int64_t i, const place *p)
{
    load(w, p, 0, p->scratch);
    if (!all_finite(w->t, p->scratch, w->n * w->n)) {
        outputs_nan(w, i);
        return true;
    }
    return w->d->eig(w->t, p->scratch, w->n, out_at(w, 0, i),
                     w->a->n_out == 2 ? out_at(w, 1, i) : NULL,
                     p->scratch + w->lu_bytes);
}

/* The product below without the library: in tiles of rows, vectorised. */
static void
pinv_plain(const work *w, const char *u, const char *vt, int64_t k,
           int64_t rank, char *out)
{
    const mr_product p = {.dtype = w->t,
                          .m = w->n,
                          .n = w->m,
                          .k = rank,
                          .a = {vt, w->t, w->n, 1, w->n},
                          .b = {u, w->t, w->m, k, 1},
                          .c = out,
                          .c_row = w->m,
                          .c_col = 1,
                          .c_item = w->m * w->n,
                          .n_items = 1};

    mr__product_plain(&p);
}

/* The product below of many values; vt is divided in its place. */
static void
pinv_large(const work *w, const char *u, const char *s, char *vt, double cut,
           char *out)
{
    mr_dtype t = w->t;
    int64_t k = w->m < w->n ? w->m : w->n, rank = 0;
    mr_blas_gemm g = {.trans_a = true,
                      .trans_b = true,
                      .m = w->n,
                      .n = w->m,
                      .a = vt,
                      .b = u,
                      .c = out,
                      .lda = w->n,
                      .ldb = k,
                      .ldc = w->m};

    for (; rank < k && real_at(t, s, rank) > cut; rank++)
        for (int64_t i = rank * w->n; i < (rank + 1) * w->n; i++)
            real_put(t, vt, i, real_at(t, vt, i) / real_at(t, s, rank));
    g.k = rank;
    if (rank == 0)
        memset(out, 0, (size_t)(w->n * w->m * w->item));
    else if (mr__blas_ready())
        mr__blas_run(t, &g);
    else
        pinv_plain(w, u, vt, k, rank, out);
}

/* out (n x m) = vt^T diag(1 / s) u^T, of the singular values that count:
 * those above rtol (NULL: max(m, n) * eps) times the first. */
static void
pinv_product(const work *w, const char *u, const char *s, char *vt,
             const char *rtol, char *out)
{
    mr_dtype t = w->t;
    int64_t k = w->m < w->n ? w->m : w->n, large = w->m + w->n - k;
    double eps = is_double(t) ? 0x1p-52 : 0x1p-23;
    double part = rtol ? real_at(t, rtol, 0) : eps * (double)large;
    double cut = k > 0 ? real_at(t, s, 0) * part : 0.0;

    if (k > SMALL) {
        pinv_large(w, u, s, vt, cut, out);
        return;
    }
    for (int64_t r = 0; r < w->n; r++)
        for (int64_t c = 0; c < w->m; c++) {
            double sum = 0.0;

            for (int64_t j = 0; j < k && real_at(t, s, j) > cut; j++)
                sum += real_at(t, vt, j * w->n + r) * real_at(t, u, c * k + j) /
                       real_at(t, s, j);
            real_put(t, out, r * w->m + c, sum);
        }
}

static bool
pinv_one(const work *w, int64_t i, const place *p)
{
    int64_t k = w->m < w->n ? w->m : w->n;
    char *u = p->scratch + w->lu_bytes;
    char *s = u + mr__whole_lines(w->m * k * w->item);
    char *vt = s + mr__whole_lines(k * w->item);
    char *scratch = vt + mr__whole_lines(k * w->n * w->item);

    load(w, p, 0, p->scratch);
    if (!all_finite(w->t, p->scratch, w->m * w->n)) {
        outputs_nan(w, i);
        return true;
    }
    if (!w->d->svd(w->t, p->scratch, w->m, w->n, u, k, s, vt, k, scratch))
        return false;
    pinv_product(w, u, s, vt, w->a->n_in > 1 ? p->in[1] : NULL,
                 out_at(w, 0, i));
    return true;
}

/* ---- batches
 * ------------------------------------------------------------------ */

typedef struct job {
    uint16_t op;
    mr_dense_job dense;
    one_fn *one;
    double flops; /* times m * n * min(m, n) */
    const char *trouble;
} job;

static const char singular[] = "is singular: it has no inverse, pinv takes any";
static const char zero_pivot[] = "is singular: it has a zero on its diagonal";
static const char indefinite[] = "is not positive definite";
static const char endless[] = "has a spectrum that was not found in time";

static const job jobs[] = {
    {MR_OP_SOLVE, MR_DENSE_LU, solve_one, 1.5, singular},
    {MR_OP_INV, MR_DENSE_LU, inv_one, 3.0, singular},
    {MR_OP_SOLVE_TRIANGULAR, MR_DENSE_LU, triangular_one, 0.5, zero_pivot},
    {MR_OP_DET, MR_DENSE_LU, det_one, 0.7, singular},
    {MR_OP_SLOGDET, MR_DENSE_LU, det_one, 0.7, singular},
    {MR_OP_COFACTOR, MR_DENSE_COFACTOR, cofactor_one, 4.0, singular},
    {MR_OP_LU_PACKED, MR_DENSE_LU, lu_one, 0.7, singular},
    {MR_OP_CHOLESKY, MR_DENSE_CHOLESKY, cholesky_one, 0.4, indefinite},
    {MR_OP_QR, MR_DENSE_QR, qr_one, 3.0, endless},
    {MR_OP_EIGH, MR_DENSE_EIGH, eigh_one, 15.0, endless},
    {MR_OP_EIGVALSH, MR_DENSE_EIGH, eigh_one, 5.0, endless},
    {MR_OP_SVD, MR_DENSE_SVD, svd_one, 25.0, endless},
    {MR_OP_SVDVALS, MR_DENSE_SVD_THIN, svd_one, 8.0, endless},
    {MR_OP_PINV, MR_DENSE_SVD_THIN, pinv_one, 30.0, endless},
    {MR_OP_EIG, MR_DENSE_EIG, eig_one, 30.0, endless},
    {MR_OP_EIGVALS, MR_DENSE_EIG, eig_one, 12.0, endless},
};

static const job *
job_of(const mr_kernel_args *a)
{
    size_t i = 0;

    while (jobs[i].op != a->op->id)
        i++;
    return &jobs[i];
}

static bool
svd_is_thin(const mr_kernel_args *a)
{
    return a->op->id == MR_OP_SVD && !((const mr_svd_params *)a->params)->full;
}

/* Elements of a matrix in front of the dense scratch. */
static size_t
extra_bytes(const work *w, const job *j)
{
    int64_t k = w->m < w->n ? w->m : w->n, pivots = (w->m + 1) * 4;

    if (j->op == MR_OP_PINV)
        return mr__whole_lines(w->m * k * w->item) +
               mr__whole_lines(k * w->item) +
               mr__whole_lines(k * w->n * w->item);
    return mr__whole_lines(pivots);
}

static double
matrix_cost(const work *w, const job *j)
{
    double k = (double)(w->m < w->n ? w->m : w->n);
    double ns = is_double(w->t) ? 0.12 : 0.06;
    double cost = (double)w->m * (double)w->n * k * j->flops;

    if (w->k > 0)
        cost += 2.0 * (double)w->n * (double)w->n * (double)w->k;
    if (w->m <= MR_DENSE_SMALL && w->n <= MR_DENSE_SMALL)
        ns *= 10.0; /* plain loops */
    if (is_complex(w->t))
        ns *= 4.0;
    return 30.0 + ns * cost;
}

static bool
work_plan(const mr_kernel_args *a, work *w)
{
    const mr_kernel_view *x = &a->in[0];
    const job *j = job_of(a);
    int32_t batch = x->ndim - 2;
    size_t dense;

    *w = (work){.a = a, .t = x->dtype, .item = mr__dtype_size(x->dtype)};
    w->m = x->dim[batch];
    w->n = x->dim[batch + 1];
    w->k = a->n_in > 1 ? a->in[1].dim[a->in[1].ndim - 1] : 0;
    w->count = 1;
    for (int32_t i = 0; i < batch; i++)
        w->count *= x->dim[i];
    for (int i = 0; i < a->n_out && w->count > 0; i++)
        w->out_bytes[i] =
            a->out[i].size / w->count * mr__dtype_size(a->out[i].dtype);
    w->d = mr__dense_for(w->t, j->dense, w->m, w->n);
    dense = w->d->scratch(w->t, svd_is_thin(a) ? MR_DENSE_SVD_THIN : j->dense,
                          w->m, w->n);
    if (dense == SIZE_MAX || w->m > INT_MAX || w->n > INT_MAX || w->k > INT_MAX)
        return false;
    w->lu_bytes = mr__whole_lines(w->m * w->n * w->item);
    w->slot_bytes = w->lu_bytes + extra_bytes(w, j) + mr__whole_lines(dense);
    w->n_slots =
        matrix_cost(w, j) * (double)w->count < 40000.0 ? 1 : mr__pool_threads();
    if (w->n_slots > w->count)
        w->n_slots = w->count;
    mr__walk_init(&w->walk, batch, x->dim, 0);
    for (int i = 0; i < a->n_in; i++)
        mr__walk_add(&w->walk, batch, a->in[i].stride, 0);
    mr__walk_merge(&w->walk);
    atomic_init(&w->failed, INT64_MAX);
    return true;
}

/* Beside an empty factor another may be full: the 3 x 3 one of a 0 x 3
 * matrix. */
static bool
nothing_to_do(const mr_kernel_args *a)
{
    for (int k = 0; k < a->n_out; k++)
        if (a->out[k].size > 0)
            return false;
    return true;
}

size_t
mr__cpu_linalg_workspace(const mr_kernel_args *a)
{
    work w;

    if (nothing_to_do(a) || !work_plan(a, &w))
        return 0;
    return (size_t)w.n_slots * w.slot_bytes;
}

double
mr__cpu_linalg_cost(const mr_kernel_args *a)
{
    work w;

    if (nothing_to_do(a) || !work_plan(a, &w))
        return 100.0;
    return 300.0 + matrix_cost(&w, job_of(a)) * (double)w.count;
}

/* The lowest index wins, whichever thread came first. */
static void
note_failure(work *w, int64_t i)
{
    /* relaxed: read after the loop's end, which orders it */
    int64_t seen = atomic_load_explicit(&w->failed, memory_order_relaxed);

    while (i < seen && !atomic_compare_exchange_weak_explicit(
                           &w->failed, &seen, i, memory_order_relaxed,
                           memory_order_relaxed))
        continue;
}

/* Is this a batch of small systems?  They go in groups. */
static bool
is_grouped(const work *w)
{
    int64_t k = w->a->n_in > 1 ? w->k : w->n;
    uint16_t id = w->a->op->id;

    return (id == MR_OP_SOLVE || id == MR_OP_INV) && w->d->group_size > 0 &&
           w->count > 1 && w->n <= MR_DENSE_GROUPED && k <= MR_DENSE_GROUPED;
}

/* Systems [begin, begin + g->count). */
static void
group_run(work *w, mr_dense_group *g, int64_t begin)
{
    uint32_t bad = w->d->solve_group(g);

    for (int64_t i = 0; bad != 0; i++, bad >>= 1)
        if ((bad & 1U) != 0 && !singular_one(w, begin + i))
            note_failure(w, begin + i);
}

static void
groups_run(work *w, int64_t begin, int64_t end)
{
    const mr_kernel_view *in = w->a->in;
    mr_dense_group g = {.n = w->n, .k = w->a->n_in > 1 ? w->k : w->n};
    mr_walk at = w->walk;

    memcpy(g.a_step, in[0].stride + in[0].ndim - 2, sizeof g.a_step);
    if (w->a->n_in > 1)
        memcpy(g.b_step, in[1].stride + in[1].ndim - 2, sizeof g.b_step);
    mr__walk_seek(&at, begin);
    for (int64_t i = begin; i < end; i++, mr__walk_next(&at)) {
        g.a[g.count] = (const char *)in[0].data + at.offset[0] * w->item;
        g.b[g.count] = w->a->n_in > 1
                           ? (const char *)in[1].data + at.offset[1] * w->item
                           : NULL;
        g.x[g.count++] = out_at(w, 0, i);
        if (g.count == w->d->group_size || i + 1 == end) {
            group_run(w, &g, i + 1 - g.count);
            g.count = 0;
        }
    }
}

static void
slot_run(work *w, int64_t slot)
{
    const mr_kernel_args *a = w->a;
    one_fn *one = job_of(a)->one;
    int64_t begin = w->count * slot / w->n_slots;
    int64_t end = w->count * (slot + 1) / w->n_slots;
    place p = {.scratch = (char *)a->workspace + (size_t)slot * w->slot_bytes};
    mr_walk at = w->walk;
    const char *before = NULL;

    if (is_grouped(w)) {
        groups_run(w, begin, end);
        return;
    }
    mr__walk_seek(&at, begin);
    for (int64_t i = begin; i < end; i++, mr__walk_next(&at)) {
        for (int k = 0; k < a->n_in; k++)
            p.in[k] = (const char *)a->in[k].data + at.offset[k] * w->item;
        p.same = before == p.in[0];
        before = p.in[0];
        if (!one(w, i, &p)) {
            note_failure(w, i);
            before = NULL;
        }
    }
}

static void
slots_piece(void *ctx, int64_t begin, int64_t end)
{
    for (int64_t slot = begin; slot < end; slot++)
        slot_run(ctx, slot);
}

/* "the matrix", or "the matrix at batch index (1, 0)". */
static mr_code
failure(const work *w, int64_t i)
{
    const mr_kernel_view *x = &w->a->in[0];
    char text[160] = "";
    int64_t index[MR_MAX_NDIM];
    int32_t batch = x->ndim - 2;
    int n = 0;

    for (int32_t k = batch - 1; k >= 0; k--) {
        index[k] = i % x->dim[k];
        i /= x->dim[k];
    }
    for (int32_t k = 0; k < batch && n < (int)sizeof text - 32; k++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%lld",
                      k == 0 ? " at batch index (" : ", ", (long long)index[k]);
    return mr__fail(MR_E_VALUE, "the matrix%s%s %s", text,
                    batch == 0   ? ""
                    : batch == 1 ? ",)"
                                 : ")",
                    job_of(w->a)->trouble);
}

mr_code
mr__cpu_linalg(const mr_kernel_args *a)
{
    work w;
    int64_t failed;

    if (nothing_to_do(a))
        return MR_OK;
    if (!work_plan(a, &w))
        return mr__fail(MR_E_OVERFLOW,
                        "a matrix of %lld x %lld is larger than LAPACK takes",
                        (long long)w.m, (long long)w.n);
    mr__cpu_for(w.n_slots, 1, slots_piece, &w);
    failed = atomic_load_explicit(&w.failed, memory_order_relaxed);
    return failed == INT64_MAX ? MR_OK : failure(&w, failed);
}
