/* SPDX-License-Identifier: Apache-2.0
 *
 * lapack.c -- factorizations by the private OpenBLAS's LAPACK.
 *
 * LAPACK keeps columns together, Marram rows.  A row-major matrix is the
 * column-major transpose, so what is symmetric in that goes in as it is: the
 * upper Cholesky factor of the transpose is the lower one of the matrix, and
 * u and vt of the SVD change places.  The others are turned round on the way
 * in and out.  All calls run on the calling thread.
 * Called by: linalg.c, through mr__dense_for.  Calls: blas.c.
 */
#include "cpu/dense.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "array/dtype.h"
#include "base/integers.h"
#include "cpu/blas.h"

/* Fortran's lengths of text arguments come last. */
typedef void getrf_fn(const int *m, const int *n, void *a, const int *lda,
                      int *pivot, int *info);
typedef void potrf_fn(const char *uplo, const int *n, void *a, const int *lda,
                      int *info, size_t);
typedef void geqrf_fn(const int *m, const int *n, void *a, const int *lda,
                      void *tau, void *work, const int *lwork, int *info);
typedef void orgqr_fn(const int *m, const int *n, const int *k, void *a,
                      const int *lda, const void *tau, void *work,
                      const int *lwork, int *info);
typedef void syevd_fn(const char *job, const char *uplo, const int *n, void *a,
                      const int *lda, void *w, void *work, const int *lwork,
                      int *iwork, const int *liwork, int *info, size_t, size_t);
typedef void heevd_fn(const char *job, const char *uplo, const int *n, void *a,
                      const int *lda, void *w, void *work, const int *lwork,
                      void *rwork, const int *lrwork, int *iwork,
                      const int *liwork, int *info, size_t, size_t);
typedef void gesdd_fn(const char *job, const int *m, const int *n, void *a,
                      const int *lda, void *s, void *u, const int *ldu,
                      void *vt, const int *ldvt, void *work, const int *lwork,
                      int *iwork, int *info, size_t);
typedef void cgesdd_fn(const char *job, const int *m, const int *n, void *a,
                       const int *lda, void *s, void *u, const int *ldu,
                       void *vt, const int *ldvt, void *work, const int *lwork,
                       void *rwork, int *iwork, int *info, size_t);
typedef void geev_fn(const char *left, const char *right, const int *n, void *a,
                     const int *lda, void *wr, void *wi, void *vl,
                     const int *ldvl, void *vr, const int *ldvr, void *work,
                     const int *lwork, int *info, size_t, size_t);
typedef void cgeev_fn(const char *left, const char *right, const int *n,
                      void *a, const int *lda, void *w, void *vl,
                      const int *ldvl, void *vr, const int *ldvr, void *work,
                      const int *lwork, void *rwork, int *info, size_t, size_t);
typedef void strsm_fn(int order, int side, int uplo, int trans, int diag, int m,
                      int n, float alpha, const void *a, int lda, void *b,
                      int ldb);
typedef void dtrsm_fn(int order, int side, int uplo, int trans, int diag, int m,
                      int n, double alpha, const void *a, int lda, void *b,
                      int ldb);
typedef void ztrsm_fn(int order, int side, int uplo, int trans, int diag, int m,
                      int n, const void *alpha, const void *a, int lda, void *b,
                      int ldb);

enum { ROW_MAJOR = 101, NO_TRANS = 111, UPPER = 121, LOWER = 122 };
enum { NON_UNIT = 131, UNIT = 132, LEFT = 141 };

typedef struct routines {
    getrf_fn *getrf;
    potrf_fn *potrf;
    geqrf_fn *geqrf;
    orgqr_fn *orgqr;
    syevd_fn *syevd; /* real */
    heevd_fn *heevd; /* complex */
    gesdd_fn *gesdd;
    cgesdd_fn *cgesdd;
    geev_fn *geev;
    cgeev_fn *cgeev;
} routines;

/* Written once, under `once`; read after it. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool ready;
static routines table[4];
static strsm_fn *strsm;
static dtrsm_fn *dtrsm;
static ztrsm_fn *ctrsm, *ztrsm;

static const routines *
routines_of(mr_dtype t)
{
    return &table[t - MR_FLOAT32];
}

static bool
all_bind(void)
{
    routines *s = &table[0], *d = &table[1], *c = &table[2], *z = &table[3];
    const struct {
        const char *name;
        void *fn;
    } want[] = {
        {"scipy_sgetrf_", &s->getrf},  {"scipy_dgetrf_", &d->getrf},
        {"scipy_cgetrf_", &c->getrf},  {"scipy_zgetrf_", &z->getrf},
        {"scipy_spotrf_", &s->potrf},  {"scipy_dpotrf_", &d->potrf},
        {"scipy_cpotrf_", &c->potrf},  {"scipy_zpotrf_", &z->potrf},
        {"scipy_sgeqrf_", &s->geqrf},  {"scipy_dgeqrf_", &d->geqrf},
        {"scipy_cgeqrf_", &c->geqrf},  {"scipy_zgeqrf_", &z->geqrf},
        {"scipy_sorgqr_", &s->orgqr},  {"scipy_dorgqr_", &d->orgqr},
        {"scipy_cungqr_", &c->orgqr},  {"scipy_zungqr_", &z->orgqr},
        {"scipy_ssyevd_", &s->syevd},  {"scipy_dsyevd_", &d->syevd},
        {"scipy_cheevd_", &c->heevd},  {"scipy_zheevd_", &z->heevd},
        {"scipy_sgesdd_", &s->gesdd},  {"scipy_dgesdd_", &d->gesdd},
        {"scipy_cgesdd_", &c->cgesdd}, {"scipy_zgesdd_", &z->cgesdd},
        {"scipy_sgeev_", &s->geev},    {"scipy_dgeev_", &d->geev},
        {"scipy_cgeev_", &c->cgeev},   {"scipy_zgeev_", &z->cgeev},
        {"scipy_cblas_strsm", &strsm}, {"scipy_cblas_dtrsm", &dtrsm},
        {"scipy_cblas_ctrsm", &ctrsm}, {"scipy_cblas_ztrsm", &ztrsm},
    };

    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        if (!mr__blas_symbol(want[i].name, want[i].fn))
            return false;
    return true;
}

static void
bind_once(void)
{
    ready = all_bind();
}

/* ---- scratch ----------------------------------------------------------------
 * Of a job: the matrix turned round where that is needed, then what LAPACK
 * asks for. */

typedef struct sizes {
    bool ok;
    int work; /* elements */
    int64_t rwork, iwork;
    int64_t before; /* elements in front of work */
} sizes;

/* The answer to a query stands in the first element of work. */
static int
answer(mr_dtype t, const void *work, double least)
{
    double x = t == MR_FLOAT32 || t == MR_COMPLEX64
                   ? (double)*(const float *)work * 1.000001 + 1
                   : *(const double *)work;

    x = x < least ? least : x;
    return x < INT_MAX ? (int)x : -1;
}

static sizes
qr_sizes(mr_dtype t, int m, int n)
{
    const routines *l = routines_of(t);
    int k = m < n ? m : n, ask = -1, info, a, b;
    mr_c128 work = {0, 0};
    sizes z = {.before = (int64_t)m * n + k};

    l->geqrf(&m, &n, NULL, &m, NULL, &work, &ask, &info);
    a = answer(t, &work, n);
    l->orgqr(&m, &k, &k, NULL, &m, NULL, &work, &ask, &info);
    b = answer(t, &work, n);
    z.work = a > b ? a : b;
    z.ok = a > 0 && b > 0;
    return z;
}

static sizes
eigh_sizes(mr_dtype t, int n)
{
    double d = n;
    sizes z = {.iwork = 3 + 5 * (int64_t)n};
    double work =
        mr__dtype_is_complex(t) ? 2 * d + d * d : 1 + 6 * d + 2 * d * d;

    /* room for blocks of 64 columns, for the reduction */
    work = work + 66 * d;
    if (mr__dtype_is_complex(t))
        z.rwork = 1 + 5 * (int64_t)n + 2 * (int64_t)n * n;
    z.ok = work < INT_MAX && z.rwork < INT_MAX;
    z.work = z.ok ? (int)work : 0;
    return z;
}

static sizes
svd_sizes(mr_dtype t, int m, int n, bool thin)
{
    const routines *l = routines_of(t);
    const char *job = thin ? "S" : "A";
    int ask = -1, info, k = m < n ? m : n, mx = m < n ? n : m;
    double s = k, b = mx;
    mr_c128 work = {0, 0};
    sizes z = {.iwork = 8 * (int64_t)k};

    if (mr__dtype_is_complex(t)) {
        l->cgesdd(job, &n, &m, NULL, &n, NULL, NULL, &n, NULL, &m, &work, &ask,
                  NULL, NULL, &info, 1);
        z.work = answer(t, &work, s * s + 2 * s + b);
        z.rwork = k * (int64_t)(5 * (int64_t)k + 7);
        if (z.rwork < 2 * (int64_t)mx * k + 2 * (int64_t)k * k + k)
            z.rwork = 2 * (int64_t)mx * k + 2 * (int64_t)k * k + k;
    } else {
        l->gesdd(job, &n, &m, NULL, &n, NULL, NULL, &n, NULL, &m, &work, &ask,
                 NULL, &info, 1);
        z.work = answer(t, &work, 4 * s * s + 7 * s + b);
    }
    z.ok = z.work > 0;
    return z;
}

static sizes
eig_sizes(mr_dtype t, int n)
{
    const routines *l = routines_of(t);
    int ask = -1, info;
    mr_c128 work = {0, 0}, rwork = {0, 0}; /* the query writes to both */
    sizes z = {.before = 2 * (int64_t)n * n};

    if (mr__dtype_is_complex(t)) {
        l->cgeev("N", "V", &n, NULL, &n, NULL, NULL, &n, NULL, &n, &work, &ask,
                 &rwork, &info, 1, 1);
        z.rwork = 2 * (int64_t)n;
    } else {
        l->geev("N", "V", &n, NULL, &n, NULL, NULL, NULL, &n, NULL, &n, &work,
                &ask, &info, 1, 1);
        z.rwork = 2 * (int64_t)n; /* wr, wi */
    }
    z.work = answer(t, &work, 4.0 * n);
    z.ok = z.work > 0;
    return z;
}

static sizes
job_sizes(mr_dtype t, mr_dense_job job, int64_t rows, int64_t columns)
{
    int m = (int)rows, n = (int)columns;

    switch (job) {
    case MR_DENSE_LU:
        return (sizes){.ok = true, .before = rows * columns};
    case MR_DENSE_COFACTOR:
        return (sizes){.ok = true, .before = 2 * rows * columns + 2 * rows};
    case MR_DENSE_CHOLESKY:
        break;
    case MR_DENSE_QR:
        return qr_sizes(t, m, n);
    case MR_DENSE_EIGH:
        return eigh_sizes(t, n);
    case MR_DENSE_SVD:
        return svd_sizes(t, m, n, false);
    case MR_DENSE_SVD_THIN:
        return svd_sizes(t, m, n, true);
    case MR_DENSE_EIG:
        return eig_sizes(t, n);
    }
    return (sizes){.ok = true};
}

/* Pieces of scratch, each 64-aligned. */
static char *
piece(char **at, int64_t count, int64_t size)
{
    char *p = *at;

    *at += mr__round_up(count * size, 64);
    return p;
}

static size_t
lapack_scratch(mr_dtype t, mr_dense_job job, int64_t m, int64_t n)
{
    int64_t item = mr__dtype_size(t);
    sizes z = job_sizes(t, job, m, n);

    if (!z.ok)
        return SIZE_MAX;
    return (size_t)((z.before + z.work + z.rwork) * item +
                    z.iwork * (int64_t)sizeof(int) + 6 * 64);
}

/* ---- turning round
 * ------------------------------------------------------------ */

enum { TILE = 16 };

/* to (n x m) = the transpose of from (m x n). */
static void
turn_round(void *restrict to, const void *restrict from, int64_t m, int64_t n,
           int64_t item)
{
    for (int64_t i0 = 0; i0 < m; i0 += TILE)
        for (int64_t j0 = 0; j0 < n; j0 += TILE)
            for (int64_t i = i0; i < m && i < i0 + TILE; i++)
                for (int64_t j = j0; j < n && j < j0 + TILE; j++) {
                    char *t = (char *)to + (j * m + i) * item;
                    const char *f = (const char *)from + (i * n + j) * item;

                    if (item == 4)
                        memcpy(t, f, 4);
                    else if (item == 8)
                        memcpy(t, f, 8);
                    else
                        memcpy(t, f, 16);
                }
}

static void
turn_in_place(void *a, int64_t n, int64_t item)
{
    char x[16];

    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++) {
            char *p = (char *)a + (i * n + j) * item;
            char *q = (char *)a + (j * n + i) * item;

            memcpy(x, p, (size_t)item);
            memcpy(p, q, (size_t)item);
            memcpy(q, x, (size_t)item);
        }
}

/* ---- the jobs
 * ----------------------------------------------------------------- */

static void
lapack_lu(mr_dtype t, void *a, int64_t rows, int64_t columns, int32_t *pivot,
          void *scratch)
{
    int64_t item = mr__dtype_size(t), k = rows < columns ? rows : columns;
    int m = (int)rows, n = (int)columns, info;

    turn_round(scratch, a, rows, columns, item);
    routines_of(t)->getrf(&m, &n, scratch, &m, pivot, &info);
    turn_round(a, scratch, columns, rows, item);
    for (int64_t i = 0; i < k; i++)
        pivot[i]--;
}

static void
solve_with(mr_dtype t, int uplo, int diag, int n, int k, const void *a, void *b)
{
    mr_c64 one = {1, 0};
    mr_c128 one_wide = {1, 0};

    if (t == MR_FLOAT32)
        strsm(ROW_MAJOR, LEFT, uplo, NO_TRANS, diag, n, k, 1.0F, a, n, b, k);
    else if (t == MR_FLOAT64)
        dtrsm(ROW_MAJOR, LEFT, uplo, NO_TRANS, diag, n, k, 1.0, a, n, b, k);
    else if (t == MR_COMPLEX64)
        ctrsm(ROW_MAJOR, LEFT, uplo, NO_TRANS, diag, n, k, &one, a, n, b, k);
    else
        ztrsm(ROW_MAJOR, LEFT, uplo, NO_TRANS, diag, n, k, &one_wide, a, n, b,
              k);
}

static void
lapack_triangular(mr_dtype t, const void *a, bool upper, int64_t n, void *b,
                  int64_t k)
{
    if (k > 0)
        solve_with(t, upper ? UPPER : LOWER, NON_UNIT, (int)n, (int)k, a, b);
}

static void
lapack_lu_solve(mr_dtype t, const void *a, const int32_t *pivot, int64_t n,
                void *b, int64_t k)
{
    int64_t row = k * mr__dtype_size(t);

    if (k == 0)
        return;
    for (int64_t i = 0; i < n; i++) {
        char *p = (char *)b + i * row, *q = (char *)b + pivot[i] * row;

        for (int64_t j = 0; p != q && j < row; j++) {
            char x = p[j];

            p[j] = q[j];
            q[j] = x;
        }
    }
    solve_with(t, LOWER, UNIT, (int)n, (int)k, a, b);
    solve_with(t, UPPER, NON_UNIT, (int)n, (int)k, a, b);
}

static int64_t
lapack_cholesky(mr_dtype t, void *a, int64_t size)
{
    int n = (int)size, info;

    routines_of(t)->potrf("U", &n, a, &n, &info, 1);
    return info;
}

static void
lapack_qr(mr_dtype t, void *a, int64_t rows, int64_t columns, void *q, void *r,
          void *scratch)
{
    const routines *l = routines_of(t);
    int64_t item = mr__dtype_size(t);
    int m = (int)rows, n = (int)columns, k = m < n ? m : n, info;
    sizes z = qr_sizes(t, m, n);
    char *at = scratch, *c = piece(&at, rows * columns, item);
    char *tau = piece(&at, k, item), *work = at, *out = r;

    turn_round(c, a, rows, columns, item);
    l->geqrf(&m, &n, c, &m, tau, work, &z.work, &info);
    turn_round(a, c, columns, rows, item);
    for (int64_t i = 0; i < k; i++) {
        memset(out + i * columns * item, 0, (size_t)(i * item));
        memcpy(out + (i * columns + i) * item,
               (char *)a + (i * columns + i) * item,
               (size_t)((columns - i) * item));
    }
    l->orgqr(&m, &k, &k, c, &m, tau, work, &z.work, &info);
    turn_round(q, c, k, rows, item);
}

static bool
lapack_eigh(mr_dtype t, void *a, int64_t size, void *w, bool vectors,
            void *scratch)
{
    const routines *l = routines_of(t);
    int64_t item = mr__dtype_size(t);
    int n = (int)size, info, lrwork, liwork;
    sizes z = eigh_sizes(t, n);
    char *at = scratch, *work = piece(&at, z.work, item);
    char *rwork = piece(&at, z.rwork, item), *iwork = at;
    const char *job = vectors ? "V" : "N";

    lrwork = (int)z.rwork;
    liwork = (int)z.iwork;
    if (mr__dtype_is_complex(t)) {
        turn_in_place(a, size, item);
        l->heevd(job, "L", &n, a, &n, w, work, &z.work, rwork, &lrwork,
                 (int *)(void *)iwork, &liwork, &info, 1, 1);
    } else {
        l->syevd(job, "U", &n, a, &n, w, work, &z.work, (int *)(void *)iwork,
                 &liwork, &info, 1, 1);
    }
    if (vectors)
        turn_in_place(a, size, item);
    return info == 0;
}

static bool
lapack_svd(mr_dtype t, void *a, int64_t rows, int64_t columns, void *u,
           int64_t nu, void *s, void *vt, int64_t nv, void *scratch)
{
    const routines *l = routines_of(t);
    int64_t item = mr__dtype_size(t);
    bool thin = u == NULL || nu < rows || nv < columns;
    sizes z = svd_sizes(t, (int)rows, (int)columns, thin);
    int m = (int)columns, n = (int)rows, info;
    int ldu = m, ldvt = nu > 0 ? (int)nu : 1;
    char *at = scratch, *work = piece(&at, z.work, item);
    char *rwork = piece(&at, z.rwork, item), *iwork = at;
    const char *job = u == NULL ? "N" : thin ? "S" : "A";

    if (mr__dtype_is_complex(t))
        l->cgesdd(job, &m, &n, a, &m, s, vt, &ldu, u, &ldvt, work, &z.work,
                  rwork, (int *)(void *)iwork, &info, 1);
    else
        l->gesdd(job, &m, &n, a, &m, s, vt, &ldu, u, &ldvt, work, &z.work,
                 (int *)(void *)iwork, &info, 1);
    return info == 0;
}

/* Number i of a row of floats or doubles, and a complex one of that kind. */
static double
real_at(mr_dtype t, const void *x, int64_t i)
{
    return t == MR_FLOAT32 ? (double)((const float *)x)[i]
                           : ((const double *)x)[i];
}

static void
complex_put(mr_dtype t, void *x, int64_t i, double re, double im)
{
    if (t == MR_FLOAT32)
        ((mr_c64 *)x)[i] = (mr_c64){(float)re, (float)im};
    else
        ((mr_c128 *)x)[i] = (mr_c128){re, im};
}

/* A pair of conjugates has the real and the imaginary parts of its vector in
 * two columns. */
static void
pairs_unpack(mr_dtype t, int64_t n, const char *wr, const char *wi,
             const void *x, void *w, void *v)
{
    for (int64_t j = 0; j < n; j++)
        complex_put(t, w, j, real_at(t, wr, j), real_at(t, wi, j));
    for (int64_t j = 0; v != NULL && j < n; j++) {
        bool pair = real_at(t, wi, j) != 0 && j + 1 < n;

        for (int64_t i = 0; i < n; i++) {
            double re = real_at(t, x, j * n + i);
            double im = pair ? real_at(t, x, (j + 1) * n + i) : 0.0;

            complex_put(t, v, i * n + j, re, im);
            if (pair)
                complex_put(t, v, i * n + j + 1, re, -im);
        }
        j += pair;
    }
}

static bool
lapack_eig(mr_dtype t, void *a, int64_t size, void *w, void *v, void *scratch)
{
    const routines *l = routines_of(t);
    int64_t item = mr__dtype_size(t);
    int n = (int)size, info;
    sizes z = eig_sizes(t, n);
    char *at = scratch, *c = piece(&at, size * size, item);
    char *x = piece(&at, size * size, item), *work = piece(&at, z.work, item);
    char *rwork = at;
    const char *job = v == NULL ? "N" : "V";

    turn_round(c, a, size, size, item);
    if (mr__dtype_is_complex(t)) {
        l->cgeev("N", job, &n, c, &n, w, NULL, &n, x, &n, work, &z.work, rwork,
                 &info, 1, 1);
        if (v != NULL && info == 0)
            turn_round(v, x, size, size, item);
        return info == 0;
    }
    l->geev("N", job, &n, c, &n, rwork, rwork + size * item, NULL, &n, x, &n,
            work, &z.work, &info, 1, 1);
    if (info != 0)
        return false;
    pairs_unpack(t, size, rwork, rwork + size * item, x, w, v);
    return true;
}

/* Elements of a row of floats or doubles times f. */
static void
row_scale(mr_dtype t, void *x, int64_t n, double f)
{
    for (int64_t i = 0; i < n; i++)
        if (t == MR_FLOAT32)
            ((float *)x)[i] = (float)(((float *)x)[i] * f);
        else
            ((double *)x)[i] *= f;
}

/* The determinant from LU factors; 0 where a pivot is so much smaller than
 * the largest one that the inverse tells nothing. */
static double
safe_determinant(mr_dtype t, const void *lu, const int32_t *pivot, int64_t n)
{
    double d = 1.0, low = INFINITY, high = 0.0;

    for (int64_t i = 0; i < n; i++) {
        double x = real_at(t, lu, i * n + i), size = fabs(x);

        d *= pivot[i] == i ? x : -x;
        low = size < low ? size : low;
        high = size > high ? size : high;
    }
    return low > high * (t == MR_FLOAT32 ? 1e-3 : 1e-7) ? d : 0.0;
}

static void
lapack_cofactor(mr_dtype t, void *a, int64_t n, void *out, void *scratch)
{
    int64_t item = mr__dtype_size(t);
    char *at = scratch, *lu = piece(&at, n * n, item);
    int32_t *pivot = (int32_t *)(void *)piece(&at, n, sizeof *pivot);
    double d;

    memcpy(lu, a, (size_t)(n * n * item));
    lapack_lu(t, lu, n, n, pivot, at);
    d = safe_determinant(t, lu, pivot, n);
    if (d == 0.0 || !isfinite(d)) {
        (t == MR_FLOAT32 ? &mr__dense_f32 : &mr__dense_f64)
            ->cofactor(t, a, n, out, scratch);
        return;
    }
    memset(out, 0, (size_t)(n * n * item));
    for (int64_t i = 0; i < n; i++)
        if (t == MR_FLOAT32)
            ((float *)out)[i * n + i] = 1.0F;
        else
            ((double *)out)[i * n + i] = 1.0;
    lapack_lu_solve(t, lu, pivot, n, out, n);
    turn_in_place(out, n, item);
    row_scale(t, out, n * n, d);
}

static const mr_dense lapack = {
    .scratch = lapack_scratch,
    .lu = lapack_lu,
    .lu_solve = lapack_lu_solve,
    .triangular = lapack_triangular,
    .cholesky = lapack_cholesky,
    .qr = lapack_qr,
    .eigh = lapack_eigh,
    .svd = lapack_svd,
    .eig = lapack_eig,
    .cofactor = lapack_cofactor,
};

const mr_dense *
mr__dense_for(mr_dtype t, mr_dense_job job, int64_t m, int64_t n)
{
    static const mr_dense *const plain[] = {&mr__dense_f32, &mr__dense_f64,
                                            &mr__dense_c64, &mr__dense_c128};
    int64_t large = m > n ? m : n, small = m > n ? n : m;

    if ((large > MR_DENSE_SMALL || job == MR_DENSE_EIG) && small > 0 &&
        large < INT_MAX) {
        pthread_once(&once, bind_once);
        if (ready)
            return &lapack;
    }
    return plain[t - MR_FLOAT32];
}
