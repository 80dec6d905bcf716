/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels_programs.c -- how close do block programs come to memory speed?
 *
 * Each program on 1 Mi float32 values (and add on 32 Mi), on one thread and
 * on all threads of the pool; GB/s count what must be read and written once.
 * memcpy is the ceiling.  Best of several runs; spread is worst over best.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/pool.h"
#include "kernels/ready.h"

#define MAX_REG 24

typedef struct program {
    const char *name;
    int64_t rows, n; /* n points of a row */
    bool columns;    /* rows are the inner dim in memory */
    int n_in, n_const, n_inst, out;
    mr_inst inst[MAX_REG];
    float value[MAX_REG];
    bool row[MAX_REG];
    mr_dtype dtype;
} program;

static const program programs[] = {
    {.name = "add 1Mi",
     .rows = 1 << 20,
     .n = 1,
     .n_in = 2,
     .n_inst = 1,
     .inst = {{MR_K_ADD, 2, {0, 1}, 0}},
     .out = 2},
    {.name = "add 32Mi",
     .rows = 1 << 25,
     .n = 1,
     .n_in = 2,
     .n_inst = 1,
     .inst = {{MR_K_ADD, 2, {0, 1}, 0}},
     .out = 2},
    {.name = "exp 1Mi",
     .rows = 1 << 20,
     .n = 1,
     .n_in = 1,
     .n_inst = 1,
     .inst = {{MR_K_EXP, 1, {0}, 0}},
     .out = 1},
    {.name = "erf 1Mi",
     .rows = 1 << 20,
     .n = 1,
     .n_in = 1,
     .n_inst = 1,
     .inst = {{MR_K_ERF, 1, {0}, 0}},
     .out = 1},
    {.name = "tanh 1Mi",
     .rows = 1 << 20,
     .n = 1,
     .n_in = 1,
     .n_inst = 1,
     .inst = {{MR_K_TANH, 1, {0}, 0}},
     .out = 1},
    {.name = "gelu formula 1Mi",
     .rows = 1 << 20,
     .n = 1,
     .n_in = 1,
     .n_const = 3,
     .value = {0, 0.70710678F, 1, 0.5F},
     .n_inst = 5,
     .inst = {{MR_K_MULTIPLY, 4, {0, 1}, 0},
              {MR_K_ERF, 5, {4}, 0},
              {MR_K_ADD, 6, {5, 2}, 0},
              {MR_K_MULTIPLY, 7, {0, 6}, 0},
              {MR_K_MULTIPLY, 8, {7, 3}, 0}},
     .out = 8},
    {.name = "sum all 1Mi",
     .rows = 1,
     .n = 1 << 20,
     .n_in = 1,
     .n_inst = 1,
     .inst = {{MR_R_SUM, 1, {0}, 0}},
     .row = {[1] = true},
     .out = 1},
    {.name = "sum rows 1024x1024",
     .rows = 1024,
     .n = 1024,
     .n_in = 1,
     .n_inst = 1,
     .inst = {{MR_R_SUM, 1, {0}, 0}},
     .row = {[1] = true},
     .out = 1},
    {.name = "sum rows 131072x8",
     .rows = 131072,
     .n = 8,
     .n_in = 1,
     .n_inst = 1,
     .inst = {{MR_R_SUM, 1, {0}, 0}},
     .row = {[1] = true},
     .out = 1},
    {.name = "sum columns 1024x1024",
     .rows = 1024,
     .n = 1024,
     .columns = true,
     .n_in = 1,
     .n_inst = 1,
     .inst = {{MR_R_SUM, 1, {0}, 0}},
     .row = {[1] = true},
     .out = 1},
    {.name = "sum columns 8192x128",
     .rows = 128,
     .n = 8192,
     .columns = true,
     .n_in = 1,
     .n_inst = 1,
     .inst = {{MR_R_SUM, 1, {0}, 0}},
     .row = {[1] = true},
     .out = 1},
    {.name = "argmax rows 1024x1024",
     .rows = 1024,
     .n = 1024,
     .n_in = 1,
     .n_inst = 1,
     .inst = {{MR_R_ARGMAX, 1, {0}, 0}},
     .row = {[1] = true},
     .out = 1},
#define SOFTMAX                                                                \
    .n_in = 1, .n_inst = 5,                                                    \
    .inst = {{MR_R_MAX, 1, {0}, 0},                                            \
             {MR_K_SUBTRACT, 2, {0, 1}, 1},                                    \
             {MR_K_EXP, 3, {2}, 1},                                            \
             {MR_R_SUM, 4, {3}, 1},                                            \
             {MR_K_DIVIDE, 5, {3, 4}, 2}},                                     \
    .row = {[1] = true, [4] = true}, .out = 5
    {.name = "softmax 65536x16", .rows = 65536, .n = 16, SOFTMAX},
    {.name = "softmax 1024x1024", .rows = 1024, .n = 1024, SOFTMAX},
    {.name = "softmax 32x32768", .rows = 32, .n = 32768, SOFTMAX},
    {.name = "softmax columns 1024x1024",
     .rows = 1024,
     .n = 1024,
     .columns = true,
     SOFTMAX},
    {.name = "layer norm 1024x1024",
     .rows = 1024,
     .n = 1024,
     .n_in = 1,
     .n_const = 1,
     .value = {0, 1e-5F},
     .n_inst = 7,
     .inst = {{MR_R_MEAN, 2, {0}, 0},
              {MR_K_SUBTRACT, 3, {0, 2}, 1},
              {MR_K_SQUARE, 4, {3}, 1},
              {MR_R_MEAN, 5, {4}, 1},
              {MR_K_ADD, 6, {5, 1}, 2},
              {MR_K_RSQRT, 7, {6}, 2},
              {MR_K_MULTIPLY, 8, {3, 7}, 2}},
     .row = {[2] = true, [5] = true, [6] = true, [7] = true},
     .out = 8},
};

static double
now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct job {
    mr_block_code c;
    mr_block_launch l;
    mr_block_room room;
    const mr_block_ready *ready; /* in the room */
    void *scratch;
    int round;
} job;

static void
unit(void *ctx, int64_t i)
{
    job *j = ctx;

    mr__block_run_ready(j->ready, &j->l, j->scratch, j->round, i, i + 1);
}

static double
once(job *j, bool threads)
{
    double t = now();

    j->ready = mr__block_make_ready(&j->c, &j->l, &j->room);
    for (j->round = 0; j->round < j->ready->plan.n_rounds; j->round++) {
        if (threads)
            mr__pool_loop(j->ready->plan.n_units, unit, j);
        else
            mr__block_run_ready(j->ready, &j->l, j->scratch, j->round, 0,
                                j->ready->plan.n_units);
        mr__block_finish_ready(j->ready, &j->l, j->scratch, j->round);
    }
    return now() - t;
}

static void
io(mr_block_io *x, const program *g, float *data)
{
    x->data = data;
    x->stride[0] = g->columns ? 4 : g->n * 4;
    x->stride[1] = g->columns ? g->rows * 4 : 4;
}

static void
bench(const program *g)
{
    int64_t count = g->rows * g->n, bytes;
    float *memory[3];
    uint8_t dtype[MAX_REG], row[MAX_REG];
    mr_const consts[MAX_REG];
    mr_code_out out = {(uint16_t)g->out, g->row[g->out]};
    job j = {.c = {.n_in = (uint16_t)g->n_in,
                   .n_const = (uint16_t)g->n_const,
                   .n_inst = (uint16_t)g->n_inst,
                   .n_out = 1,
                   .n_phases = 1,
                   .n_reg = (uint16_t)(g->n_in + g->n_const + g->n_inst),
                   .reg_dtype = dtype,
                   .reg_row = row,
                   .consts = consts,
                   .inst = g->inst,
                   .out = &out}};

    for (int i = 0; i < 3; i++) {
        memory[i] = aligned_alloc(4096, (size_t)count * 4);
        for (int64_t e = 0; e < count; e++)
            memory[i][e] = (float)(e % 1000) * 0.004F - 2.0F;
    }
    for (int i = 0; i < MAX_REG; i++) {
        mr_const v = {.c128 = {(double)g->value[i], 0}};

        dtype[i] = MR_FLOAT32;
        row[i] = g->row[i];
        if (i >= g->n_in && i < g->n_in + g->n_const)
            mr__const_cast(&v, MR_FLOAT64, &consts[i - g->n_in], MR_FLOAT32);
    }
    for (int i = 0; i < g->n_inst; i++) {
        if (g->inst[i].k == MR_R_ARGMAX)
            dtype[g->inst[i].dst] = MR_UINT32;
    }
    j.l.n_kept = 1;
    j.l.dim[0] = g->rows;
    j.l.n_red = g->row[g->out] || g->n > 1;
    j.l.dim[1] = g->n;
    for (int i = 0; i < g->n_in; i++)
        io(&j.l.in[i], g, memory[i]);
    io(&j.l.out[0], g, memory[2]);
    if (g->row[g->out])
        j.l.out[0].stride[0] = 4;
    mr__block_normalise(&j.c, &j.l);
    j.scratch = aligned_alloc(
        64, mr__block_plan(&j.c, &j.l).scratch_bytes / 64 * 64 + 64);
    bytes = count * 4 * (g->n_in + !g->row[g->out]);
    for (int threads = 0; threads < 2; threads++) {
        double best = 1e9, worst = 0;

        for (int i = 0; i < 15; i++) {
            double t = once(&j, threads == 1);

            best = t < best ? t : best;
            worst = t > worst ? t : worst;
        }
        printf("%-26s %2d threads %8.1f us %7.2f GB/s  spread %.2f  "
               "units %lld of %lld ns\n",
               g->name, threads ? mr__pool_threads() : 1, best * 1e6,
               (double)bytes / best * 1e-9, worst / best,
               (long long)j.ready->plan.n_units,
               (long long)j.ready->plan.unit_cost);
    }
    free(j.scratch);
    for (int i = 0; i < 3; i++)
        free(memory[i]);
}

static void
ceiling(size_t bytes)
{
    char *a = aligned_alloc(4096, bytes), *b = aligned_alloc(4096, bytes);
    double best = 1e9;

    memset(a, 1, bytes);
    memset(b, 2, bytes);
    for (int i = 0; i < 15; i++) {
        double t = now();

        memcpy(a, b, bytes);
        t = now() - t;
        best = t < best ? t : best;
    }
    printf("memcpy %zu MiB, 1 thread %.2f GB/s\n", bytes >> 20,
           2 * (double)bytes / best * 1e-9);
    free(a);
    free(b);
}

/* A call on 16 values: plan and run. */
static void
small(void)
{
    float a[16] = {0}, b[16] = {0}, o[16];
    uint8_t dtype[3] = {MR_FLOAT32, MR_FLOAT32, MR_FLOAT32}, row[3] = {0};
    mr_inst in = {MR_K_ADD, 2, {0, 1}, 0};
    mr_code_out out = {2, false};
    job j = {.c = {.n_in = 2,
                   .n_inst = 1,
                   .n_out = 1,
                   .n_reg = 3,
                   .n_phases = 1,
                   .reg_dtype = dtype,
                   .reg_row = row,
                   .inst = &in,
                   .out = &out}};
    double t;

    j.l.n_kept = 1;
    j.l.dim[0] = 16;
    j.l.in[0] = (mr_block_io){.data = a, .stride = {4}};
    j.l.in[1] = (mr_block_io){.data = b, .stride = {4}};
    j.l.out[0] = (mr_block_io){.data = o, .stride = {4}};
    once(&j, false);
    t = now();
    for (int i = 0; i < 1000000; i++) {
        mr_block_room room;

        mr__block_run_ready(mr__block_make_ready(&j.c, &j.l, &room), &j.l, NULL,
                            0, 0, 1);
    }
    printf("add of 16 values, plan and run: %.1f ns\n", (now() - t) * 1e3);
}

int
main(void)
{
    printf("tier %s\n", mr__cpu_tier());
    ceiling(4 << 20);
    ceiling(128 << 20);
    small();
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++)
        bench(&programs[i]);
    mr__pool_stop();
    return 0;
}
