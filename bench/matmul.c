/* SPDX-License-Identifier: Apache-2.0
 *
 * matmul.c -- how close does the CPU's matrix product come to the machine,
 * and to OpenBLAS and oneDNN called directly?
 *
 * For each shape and dtype: GFLOP/s of the kernel as eval calls it (all
 * threads of the pool), of one OpenBLAS call (float32 and float64, one
 * thread), of oneDNN where libdnnl is installed (its own threads), and GB/s
 * for products with vectors.  The ceiling is the register tile on operands in
 * the first-level cache, one thread.  Best of several runs; spread is the
 * median over the best.  MARRAM_NUM_THREADS=1 compares one thread with one.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "array/layout.h"
#include "base/pool.h"
#include "cpu/blas.h"
#include "cpu/cpu.h"
#include "kernels/gemm.h"
#include "kernels/program.h"
#include "kernels/tier/tier.h"

enum { RUNS = 15 };

typedef int dnnl_sgemm_fn(char ta, char tb, int64_t m, int64_t n, int64_t k,
                          float alpha, const float *a, int64_t lda,
                          const float *b, int64_t ldb, float beta, float *c,
                          int64_t ldc);

typedef struct problem {
    mr_dtype dtype;
    int64_t batch, m, n, k;
    bool turned; /* b is a transposed view */
} problem;

typedef struct operands {
    problem p;
    void *a, *b, *c;
    mr_kernel_args args;
    dnnl_sgemm_fn *dnnl;
} operands;

static double
now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int
by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Seconds: the best, and the median over it. */
static double
measure(void (*run)(const operands *), const operands *o, double *spread)
{
    double t[RUNS];

    for (int i = 0; i < RUNS; i++) {
        double start = now();

        run(o);
        t[i] = now() - start;
    }
    qsort(t, RUNS, sizeof *t, by_value);
    *spread = t[RUNS / 2] / t[0];
    return t[0];
}

static void
run_marram(const operands *o)
{
    if (mr__cpu_matmul(&o->args) != MR_OK)
        abort();
}

static void
run_blas(const operands *o)
{
    const problem *p = &o->p;
    int64_t item = mr__dtype_size(p->dtype);

    for (int64_t i = 0; i < p->batch; i++) {
        mr_blas_gemm g = {.trans_b = p->turned,
                          .m = p->m,
                          .n = p->n,
                          .k = p->k,
                          .a = (const char *)o->a + i * p->m * p->k * item,
                          .b = (const char *)o->b + i * p->n * p->k * item,
                          .c = (char *)o->c + i * p->m * p->n * item,
                          .lda = p->k,
                          .ldb = p->turned ? p->k : p->n,
                          .ldc = p->n};

        mr__blas_run(p->dtype, &g);
    }
}

static void
run_dnnl(const operands *o)
{
    const problem *p = &o->p;

    for (int64_t i = 0; i < p->batch; i++)
        o->dnnl('N', p->turned ? 'T' : 'N', p->m, p->n, p->k, 1.0F,
                (const float *)o->a + i * p->m * p->k, p->k,
                (const float *)o->b + i * p->n * p->k, p->turned ? p->k : p->n,
                0.0F, (float *)o->c + i * p->m * p->n, p->n);
}

static void *
filled(mr_dtype t, int64_t n)
{
    int64_t bytes = n * mr__dtype_size(t);
    char *x = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
    double *v = malloc((size_t)n * sizeof *v);

    if (!x || !v)
        abort();
    for (int64_t i = 0; i < n; i++)
        v[i] = (double)(i % 17) / 16.0 - 0.5;
    mr__tier()->casts->cast[MR_FLOAT64][t](x, v, n);
    free(v);
    return x;
}

static void
report(const char *name, const problem *p, double seconds, double spread)
{
    double flops = 2.0 * (double)(p->batch * p->m * p->n * p->k);
    double bytes = (double)(p->batch * mr__dtype_size(p->dtype)) *
                   (double)(p->m * p->k + p->n * p->k + p->m * p->n);
    bool thin = p->m <= 4 || p->n <= 4;

    printf("  %-10s %9.1f us  %7.1f %s  spread %.2f\n", name, seconds * 1e6,
           (thin ? bytes : flops) / seconds * 1e-9, thin ? "GB/s" : "GFLOP/s",
           spread);
}

static void
bench(const problem *p, dnnl_sgemm_fn *dnnl)
{
    static const char *const names[MR_N_DTYPES] = {
        [MR_FLOAT16] = "float16",     [MR_BFLOAT16] = "bfloat16",
        [MR_FLOAT32] = "float32",     [MR_FLOAT64] = "float64",
        [MR_COMPLEX64] = "complex64",
    };
    int64_t dim[3][3] = {
        {p->batch, p->m, p->k}, {p->batch, p->k, p->n}, {p->batch, p->m, p->n}};
    int64_t stride[3][3];
    mr_kernel_view view[3];
    operands o = {.p = *p, .dnnl = dnnl};
    double seconds, spread;
    size_t bytes;
    void *data[3];

    for (int i = 0; i < 3; i++) {
        int64_t n = dim[i][0] * dim[i][1] * dim[i][2];

        data[i] = filled(p->dtype, n);
        mr__strides_fresh(3, dim[i], stride[i]);
        view[i] = (mr_kernel_view){data[i], p->dtype, 3, n, dim[i], stride[i]};
    }
    if (p->turned) {
        stride[1][1] = 1;
        stride[1][2] = p->k;
    }
    o.a = data[0];
    o.b = data[1];
    o.c = data[2];
    o.args =
        (mr_kernel_args){.n_in = 2, .n_out = 1, .in = view, .out = &view[2]};
    bytes = mr__cpu_matmul_workspace(&o.args);
    o.args.workspace = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!o.args.workspace)
        abort();

    printf("%s %lld x (%lld, %lld) @ (%lld, %lld)%s\n", names[p->dtype],
           (long long)p->batch, (long long)p->m, (long long)p->k,
           (long long)p->k, (long long)p->n, p->turned ? " transposed" : "");
    seconds = measure(run_marram, &o, &spread);
    report("marram", p, seconds, spread);
    if (mr__blas_ready() && p->dtype >= MR_FLOAT32) {
        seconds = measure(run_blas, &o, &spread);
        report("OpenBLAS", p, seconds, spread);
    }
    if (dnnl && p->dtype == MR_FLOAT32) {
        seconds = measure(run_dnnl, &o, &spread);
        report("oneDNN", p, seconds, spread);
    }
    free(o.args.workspace);
    for (int i = 0; i < 3; i++)
        free(data[i]);
}

/* One tile, one panel of each side in the first-level cache. */
static void
ceiling(mr_dtype dtype, mr_gemm_form form, const char *what)
{
    enum { DEPTH = 128, TIMES = 20000 };
    int64_t m = mr__gemm_form_rows(form), n = mr__gemm_form_cols(form);
    int64_t steps = mr__gemm_steps(form, dtype, DEPTH);
    float *a = filled(MR_FLOAT32, m * steps);
    float *b = filled(MR_FLOAT32, n * steps);
    float *c = filled(MR_FLOAT32, m * n);
    mr_gemm_chunk g = {.m = m,
                       .n = n,
                       .depth = steps,
                       .form = form,
                       .pieces = mr__gemm_pieces(dtype),
                       .a = a,
                       .b = b,
                       .c = c,
                       .c_row = n,
                       .dtype = MR_FLOAT32,
                       .first = true,
                       .last = true};
    double start = now(), seconds;

    for (int i = 0; i < TIMES; i++)
        mr__gemm_block(&g, 0, 1, 0, 1);
    seconds = now() - start;
    printf("ceiling of one thread, %s: %.1f GFLOP/s (tile %lld x %lld)\n", what,
           2.0 * (double)(m * n) * DEPTH * TIMES / seconds * 1e-9, (long long)m,
           (long long)n);
    free(a);
    free(b);
    free(c);
}

static void
ceilings(void)
{
    ceiling(MR_FLOAT32, MR_GEMM_FLOATS, "float32");
    if (!mr__gemm_matrix())
        return;
    ceiling(MR_FLOAT32, MR_GEMM_IN_PIECES, "float32 in pieces");
    ceiling(MR_FLOAT16, MR_GEMM_IN_PIECES, "float16 in pieces");
    ceiling(MR_BFLOAT16, MR_GEMM_IN_PIECES, "bfloat16");
}

int
main(void)
{
    static const problem problems[] = {
        {MR_FLOAT32, 1, 1024, 1024, 1024, false},
        {MR_FLOAT32, 1, 1024, 1024, 1024, true},
        {MR_FLOAT32, 1, 2048, 2048, 2048, false},
        {MR_FLOAT32, 1, 256, 256, 256, false},
        {MR_FLOAT32, 1, 64, 64, 64, false},
        {MR_FLOAT32, 1, 16, 4096, 1024, false},
        {MR_FLOAT32, 64, 128, 128, 64, true},
        {MR_FLOAT32, 1, 1, 4096, 4096, false},
        {MR_FLOAT32, 1, 1, 4096, 4096, true},
        {MR_FLOAT32, 1, 4096, 1, 4096, false},
        {MR_BFLOAT16, 1, 1024, 1024, 1024, false},
        {MR_BFLOAT16, 1, 1, 4096, 4096, true},
        {MR_FLOAT16, 1, 1024, 1024, 1024, false},
        {MR_FLOAT64, 1, 1024, 1024, 1024, false},
        {MR_COMPLEX64, 1, 512, 512, 512, false},
    };
    void *h3 = dlopen("libdnnl.so.3", RTLD_NOW | RTLD_LOCAL);
    void *h = h3 ? h3 : dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
    void *symbol = h ? dlsym(h, "dnnl_sgemm") : NULL;
    dnnl_sgemm_fn *dnnl = NULL;

    memcpy(&dnnl, &symbol, sizeof symbol);
    printf("tier %s, %d threads, OpenBLAS %s, oneDNN %s\n", mr__cpu_tier(),
           mr__pool_threads(), mr__blas_ready() ? mr__blas_core() : "none",
           dnnl ? "yes" : "none");
    ceilings();
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++)
        bench(&problems[i], dnnl);
    return 0;
}
