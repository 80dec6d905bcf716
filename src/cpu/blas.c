/* SPDX-License-Identifier: Apache-2.0
 *
 * blas.c -- finds and opens the private OpenBLAS.
 *
 * libmarram_blas.so lies beside the library that holds this code; the
 * variable MARRAM_BLAS names another file, or "none".  It is opened with
 * RTLD_LOCAL and its symbols carry the prefix scipy_, so it never meets the
 * process's own BLAS.
 *
 * Two things are kept from it while it initialises.  Its tuning variables
 * (OPENBLAS_CORETYPE and such, meant for another copy of another age) made it
 * run kernels of the 1990s on some machines; and it would start a thread for
 * each processor.  setenv() is not safe while other threads run, so the
 * entries of `environ` are pointed to other strings for that moment, one
 * pointer store each: a concurrent getenv() sees one or the other.  The
 * thread's own affinity is narrowed to one processor meanwhile, which the
 * library takes for the size of the machine.
 * Called by: matmul.c, lapack.c.
 */
#include "cpu/blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/pool.h"

extern char **environ;

/* Races of a library that is not built with the sanitizer would look like
 * ours. */
#if defined(MR_NO_BLAS) || defined(MR_SANITIZE_THREAD)
enum { WANTED = 0 };
#else
enum { WANTED = 1 };
#endif

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

typedef void sgemm_fn(int order, int ta, int tb, int m, int n, int k,
                      float alpha, const float *a, int lda, const float *b,
                      int ldb, float beta, float *c, int ldc);
typedef void dgemm_fn(int order, int ta, int tb, int m, int n, int k,
                      double alpha, const double *a, int lda, const double *b,
                      int ldb, double beta, double *c, int ldc);
/* complex64 and complex128 take their factors by address */
typedef void zgemm_fn(int order, int ta, int tb, int m, int n, int k,
                      const void *alpha, const void *a, int lda, const void *b,
                      int ldb, const void *beta, void *c, int ldc);

/* Written once, under `once`; read after it. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
    bool ready;
    void *library;
    const char *core;
    sgemm_fn *sgemm;
    dgemm_fn *dgemm;
    zgemm_fn *cgemm, *zgemm;
} blas;

static const char *const hidden_names[] = {
    "OPENBLAS_CORETYPE",    "OPENBLAS_L2_SIZE", "OPENBLAS_BLOCK_FACTOR",
    "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS",  "OPENBLAS_DEFAULT_NUM_THREADS",
    "GOTO_NUM_THREADS",     "OPENBLAS_VERBOSE"};
enum { N_HIDDEN = sizeof hidden_names / sizeof hidden_names[0] };
static char hidden_text[N_HIDDEN][2]; /* "=": a name that nobody asks for */

static void
environment_hide(char *saved[N_HIDDEN])
{
    for (int i = 0; i < N_HIDDEN; i++) {
        size_t length = strlen(hidden_names[i]);

        saved[i] = NULL;
        hidden_text[i][0] = '=';
        for (char **e = environ; e && *e; e++)
            if (!strncmp(*e, hidden_names[i], length) && (*e)[length] == '=') {
                saved[i] = *e;
                *e = hidden_text[i];
                break;
            }
    }
}

/* environ is searched again: another thread may have moved it. */
static void
environment_show(char *saved[N_HIDDEN])
{
    for (int i = 0; i < N_HIDDEN; i++)
        for (char **e = environ; saved[i] && e && *e; e++)
            if (*e == hidden_text[i]) {
                *e = saved[i];
                break;
            }
}

static void *
library_open(const char *path)
{
    char *saved[N_HIDDEN];
    cpu_set_t all, one;
    bool narrowed = sched_getaffinity(0, sizeof all, &all) == 0;
    void *h;

    (void)mr__pool_threads(); /* counted before the mask is narrow */
    if (narrowed) {
        int cpu = 0;

        while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &all))
            cpu++;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        narrowed = sched_setaffinity(0, sizeof one, &one) == 0;
    }
    environment_hide(saved);
    h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    environment_show(saved);
    if (narrowed)
        (void)sched_setaffinity(0, sizeof all, &all);
    return h;
}

/* ISO C has no cast from void * to a function. */
static bool
symbol_find(void *h, const char *name, void *fn)
{
    void *p = dlsym(h, name);

    memcpy(fn, &p, sizeof p);
    return p != NULL;
}

static bool
symbols_bind(void *h)
{
    void (*set_threads)(int) = NULL;
    char *(*core)(void) = NULL;

    if (!symbol_find(h, "scipy_cblas_sgemm", &blas.sgemm) ||
        !symbol_find(h, "scipy_cblas_dgemm", &blas.dgemm) ||
        !symbol_find(h, "scipy_cblas_cgemm", &blas.cgemm) ||
        !symbol_find(h, "scipy_cblas_zgemm", &blas.zgemm) ||
        !symbol_find(h, "scipy_openblas_set_num_threads", &set_threads) ||
        !symbol_find(h, "scipy_openblas_get_corename", &core))
        return false;
    set_threads(1);
    blas.core = core();
    return true;
}

static void
blas_open(void)
{
    const char *path = getenv("MARRAM_BLAS");
    char beside[4096];
    void *h;

    if (!WANTED || (path && !strcmp(path, "none")))
        return;
    if (!path || !*path) {
        Dl_info here;
        const char *slash;

        path = NULL;
        if (!dladdr(&blas, &here) || !here.dli_fname)
            return;
        slash = strrchr(here.dli_fname, '/');
        if (snprintf(beside, sizeof beside, "%.*s%s",
                     slash ? (int)(slash - here.dli_fname) + 1 : 0,
                     here.dli_fname, "libmarram_blas.so") >= (int)sizeof beside)
            return;
    }
    h = library_open(path ? path : beside);
    if (h && symbols_bind(h)) {
        blas.library = h;
        blas.ready = true;
    }
    if (!blas.ready && path)
        mr__log(MR_LOG_WARN,
                "MARRAM_BLAS names no usable library: %s; matrix products use "
                "Marram's own kernels",
                path);
}

bool
mr__blas_ready(void)
{
    pthread_once(&once, blas_open);
    return blas.ready;
}

const char *
mr__blas_core(void)
{
    return mr__blas_ready() ? blas.core : NULL;
}

bool
mr__blas_symbol(const char *name, void *fn)
{
    return mr__blas_ready() && symbol_find(blas.library, name, fn);
}

void
mr__blas_run(mr_dtype t, const mr_blas_gemm *g)
{
    int ta = g->trans_a ? TRANS : NO_TRANS, tb = g->trans_b ? TRANS : NO_TRANS;
    int m = (int)g->m, n = (int)g->n, k = (int)g->k;
    int lda = (int)g->lda, ldb = (int)g->ldb, ldc = (int)g->ldc;
    double beta = g->add ? 1.0 : 0.0;

    if (t == MR_FLOAT32) {
        blas.sgemm(ROW_MAJOR, ta, tb, m, n, k, 1.0F, g->a, lda, g->b, ldb,
                   (float)beta, g->c, ldc);
    } else if (t == MR_FLOAT64) {
        blas.dgemm(ROW_MAJOR, ta, tb, m, n, k, 1.0, g->a, lda, g->b, ldb, beta,
                   g->c, ldc);
    } else if (t == MR_COMPLEX64) {
        mr_c64 one = {1.0F, 0.0F}, keep = {(float)beta, 0.0F};

        blas.cgemm(ROW_MAJOR, ta, tb, m, n, k, &one, g->a, lda, g->b, ldb,
                   &keep, g->c, ldc);
    } else {
        mr_c128 one = {1.0, 0.0}, keep = {beta, 0.0};

        blas.zgemm(ROW_MAJOR, ta, tb, m, n, k, &one, g->a, lda, g->b, ldb,
                   &keep, g->c, ldc);
    }
}
