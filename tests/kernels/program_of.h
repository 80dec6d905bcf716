/* SPDX-License-Identifier: Apache-2.0
 *
 * program_of.h -- small block programs for the tests of kernels/.
 *
 *   prog p = {0};
 *   int x = prog_in(&p, MR_FLOAT32), m = prog_fold(&p, MR_R_MAX, x, ...);
 *   prog_out(&p, m);
 *   then set p.l (dims, memory) and prog_run(&p, how).
 */
#ifndef MR_TESTS_KERNELS_PROGRAM_OF_H
#define MR_TESTS_KERNELS_PROGRAM_OF_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/program.h"
#include "kernels/tier/tier.h"

#define PROG_MAX 96

typedef struct prog {
    mr_block_launch l;
    uint8_t dtype[PROG_MAX], row[PROG_MAX], phase[PROG_MAX];
    mr_const consts[PROG_MAX];
    mr_inst inst[PROG_MAX];
    mr_code_out out[MR_CODE_MAX_IO];
    const mr_code_source *source; /* of each input, or NULL */
    const mr_index_code *indices; /* and what computes those of gathers */
    uint16_t n_indices;
    int n_in, n_const, n_inst, n_out, n_reg;
} prog;

static inline int
prog_reg(prog *p, mr_dtype d)
{
    p->dtype[p->n_reg] = (uint8_t)d;
    return p->n_reg++;
}

static inline int
prog_in(prog *p, mr_dtype d)
{
    p->n_in++;
    return prog_reg(p, d);
}

static inline int
prog_const(prog *p, mr_dtype d, double v)
{
    mr_const c = {.c128 = {v, 0}};

    mr__const_cast(&c, MR_FLOAT64, &p->consts[p->n_const++], d);
    return prog_reg(p, d);
}

static inline int
prog_op(prog *p, mr_k k, mr_dtype d, int a, int b, int c)
{
    mr_inst *in = &p->inst[p->n_inst++];
    int arg[3] = {a, b, c}, r = prog_reg(p, d);
    bool red = MR_K_IS_REDUCTION(k), row = true, any = false;

    *in = (mr_inst){.k = (uint16_t)k, .dst = (uint16_t)r};
    for (int i = 0; i < mr__k_operands(k); i++) {
        bool is_const = arg[i] >= p->n_in && arg[i] < p->n_in + p->n_const;

        in->arg[i] = (uint16_t)arg[i];
        if (p->phase[arg[i]] > p->phase[r])
            p->phase[r] = p->phase[arg[i]];
        row &= p->row[arg[i]] || is_const;
        any |= p->row[arg[i]];
    }
    in->phase = p->phase[r];
    p->phase[r] = (uint8_t)(p->phase[r] + red);
    p->row[r] = red || (row && any);
    return r;
}

static inline void
prog_out(prog *p, int r)
{
    p->out[p->n_out++] = (mr_code_out){(uint16_t)r, p->row[r]};
}

typedef enum prog_how { ALL_AT_ONCE, UNIT_BY_UNIT, BACKWARDS } prog_how;

static inline int64_t
prog_run(const prog *p, prog_how how)
{
    mr_block_code c = {.n_in = (uint16_t)p->n_in,
                       .n_const = (uint16_t)p->n_const,
                       .n_inst = (uint16_t)p->n_inst,
                       .n_out = (uint16_t)p->n_out,
                       .n_reg = (uint16_t)p->n_reg,
                       .n_phases = 1,
                       .reg_dtype = p->dtype,
                       .reg_row = p->row,
                       .consts = p->consts,
                       .inst = p->inst,
                       .out = p->out,
                       .source = p->source,
                       .indices = p->indices,
                       .n_indices = p->n_indices};
    mr_block_launch l = p->l;
    mr_block_plan plan;
    void *scratch;

    mr__block_normalise(&c, &l);
    plan = mr__block_plan(&c, &l);
    scratch = aligned_alloc(64, plan.scratch_bytes / 64 * 64 + 64);
    for (int round = 0; round < plan.n_rounds; round++) {
        if (how == ALL_AT_ONCE)
            mr__block_run(&c, &l, scratch, round, 0, plan.n_units);
        for (int64_t u = 0; how != ALL_AT_ONCE && u < plan.n_units; u++) {
            int64_t at = how == BACKWARDS ? plan.n_units - 1 - u : u;

            mr__block_run(&c, &l, scratch, round, at, at + 1);
        }
        mr__block_finish(&c, &l, scratch, round);
    }
    free(scratch);
    return plan.n_units;
}

/* Row-major contiguous strides over all dims of the launch, or the kept ones.
 */
static inline void
prog_contiguous(const prog *p, mr_block_io *io, void *data, size_t size,
                bool kept_only)
{
    int n = p->l.n_kept + (kept_only ? 0 : p->l.n_red);
    int64_t s = (int64_t)size;

    io->data = data;
    for (int i = n - 1; i >= 0; i--) {
        io->stride[i] = s;
        s *= p->l.dim[i];
    }
}

static inline uint64_t
prog_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15U);

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

/* In [-1, 1). */
static inline double
prog_uniform(uint64_t *state)
{
    return (double)(int64_t)prog_random(state) * 0x1p-63;
}

static inline size_t
prog_size(mr_dtype d)
{
    static const uint8_t size[MR_N_DTYPES] = {1, 1, 2, 4, 8, 1, 2, 4,
                                              8, 2, 2, 4, 8, 8, 16};

    return size[d];
}

/* Calls f for each tier that this machine has. */
static inline void
each_tier(void (*f)(const mr_tier *t))
{
    for (int id = 0; id < MR_N_TIERS; id++) {
        const mr_tier *t = mr__tier_by_id(id);

        if (t != NULL)
            f(t);
    }
}

#endif
