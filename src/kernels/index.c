/* SPDX-License-Identifier: Apache-2.0
 *
 * index.c -- indices of gathers, computed some at a time by the kernels of the
 * tier: as a program of its own would, so with the same bits.
 *
 * Called by: operands.c, source.c.  Calls: copy.h, the tier's tables.
 */
#include "kernels/index.h"

#include <assert.h>
#include <stdbool.h>

#include "kernels/copy.h"
#include "kernels/frame.h"
#include "kernels/lower.h"

static void
splat(mr_dtype t, char *to, const void *one)
{
    mr__copy_in(mr__elem_size(t), to, one, 1, 0, MR_SPLAT_N, 0);
}

void
mr__index_begin(const mr_index_code *c, const mr_index_line *line,
                mr_index_room *room)
{
    for (int i = 0; i < c->n_in; i++)
        if (line->stride[i] == 0)
            splat((mr_dtype)c->dtype[i], room->reg[i], line->in[i]);
    for (int i = 0; i < c->n_const; i++)
        splat((mr_dtype)c->dtype[c->n_in + i], room->reg[c->n_in + i],
              c->consts[i].bytes);
}

/* Inputs of n points from the k-th on, and constants. */
static void
inputs(const mr_index_code *c, const mr_index_line *line, int64_t k, int64_t n,
       mr_index_room *room, const void **at, int64_t *step)
{
    for (int i = 0; i < c->n_in + c->n_const; i++) {
        bool fixed = i >= c->n_in || line->stride[i] == 0;
        int64_t size = (int64_t)mr__elem_size((mr_dtype)c->dtype[i]);
        const char *from = fixed ? NULL : line->in[i] + k * line->stride[i];

        at[i] = room->reg[i];
        step[i] = !fixed;
        if (!fixed && line->stride[i] == size)
            at[i] = from;
        else if (!fixed)
            mr__copy_in((size_t)size, room->reg[i], from, 1, 0, n,
                        line->stride[i]);
    }
}

static void
cast(mr_cast_fn *fn, uint8_t as, char *to, const void *from, int64_t step,
     int64_t n)
{
    mr_const one;

    if (step != 0) {
        fn(to, from, n);
        return;
    }
    fn(one.bytes, from, 1);
    mr__copy_in(mr__elem_size((mr_dtype)as), to, one.bytes, 1, 0, n, 0);
}

const char *
mr__index_compute(const mr_index_code *c, const mr_index_line *line, int64_t k,
                  int64_t n, mr_index_room *room)
{
    const mr_tier *tier = mr__tier();
    const void *at[MR_INDEX_MAX_REG];
    int64_t step[MR_INDEX_MAX_REG];
    char *to = NULL;

    assert(n <= MR_INDEX_RUN && c->n_inst > 0);
    inputs(c, line, k, n, room, at, step);
    for (int i = 0; i < c->n_inst; i++) {
        const mr_inst *in = &c->inst[i];
        const void *args[3];
        int64_t steps[3];
        int n_arg = mr__k_operands((mr_k)in->k);
        uint8_t from = c->dtype[in->arg[n_arg - 1]], as = c->dtype[in->dst];

        to = room->reg[in->dst];
        for (int j = 0; j < n_arg; j++) {
            args[j] = at[in->arg[j]];
            steps[j] = step[in->arg[j]];
        }
        at[in->dst] = to;
        step[in->dst] = 1;
        if (in->k == MR_K_CAST && from != as)
            cast(tier->casts->cast[from][as], as, to, args[0], steps[0], n);
        else
            tier->dtype[from]->map[in->k == MR_K_CAST ? MR_K_COPY : in->k](
                to, args, steps, n);
    }
    return to;
}
