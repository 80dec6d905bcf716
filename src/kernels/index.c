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
splat(mr_dtype t, char *to, const void *one, int64_t n)
{
    mr__copy_in(mr__elem_size(t), to, one, 1, 0, n, 0);
}

static char *
reg_at(mr_index_room *room, int i)
{
    return room->bytes + i * room->reg;
}

/* Does input i not lie one point after the other? */
static bool
is_apart(const mr_index_code *c, const mr_index_line *line, int i)
{
    return line->stride[i] != (int64_t)mr__elem_size((mr_dtype)c->dtype[i]);
}

void
mr__index_begin(const mr_index_code *c, const mr_index_line *line,
                mr_index_room *room)
{
    int n = c->n_in + c->n_const + c->n_inst;
    int64_t widest = 1;

    for (int i = 0; i < n; i++) {
        int64_t size = (int64_t)mr__elem_size((mr_dtype)c->dtype[i]);

        widest = size > widest ? size : widest;
    }
    room->reg = line->fn != NULL ? 4 * MR_INDEX_REG : MR_INDEX_REG;
    room->points = room->reg / (line->fn != NULL ? 8 : widest);
    for (int i = 0; i < c->n_in; i++)
        if (line->stride[i] == 0)
            splat((mr_dtype)c->dtype[i], reg_at(room, i), line->in[i],
                  line->fn != NULL ? room->points : MR_SPLAT_N);
    for (int i = 0; i < c->n_const && line->fn == NULL; i++)
        splat((mr_dtype)c->dtype[c->n_in + i], reg_at(room, c->n_in + i),
              c->consts[i].bytes, MR_SPLAT_N);
}

/* Inputs of n points from the k-th on. */
static void
inputs(const mr_index_code *c, const mr_index_line *line, int64_t k, int64_t n,
       mr_index_room *room, const void **at, int64_t *step)
{
    for (int i = 0; i < c->n_in; i++) {
        size_t size = mr__elem_size((mr_dtype)c->dtype[i]);
        int64_t stride = line->stride[i];
        const char *from = line->in[i] + k * stride;

        step[i] = stride != 0;
        at[i] = is_apart(c, line, i) ? reg_at(room, i) : from;
        if (is_apart(c, line, i) && stride != 0)
            mr__copy_in(size, reg_at(room, i), from, 1, 0, n, stride);
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

/* The result stands behind the copies. */
static const char *
native(const mr_index_code *c, mr_native_fn *fn, const void *const *at,
       int64_t n, mr_index_room *room)
{
    const char *in[MR_INDEX_MAX_IN + MR_INDEX_MAX_CONST];
    int64_t row[MR_INDEX_MAX_IN + MR_INDEX_MAX_CONST] = {0}, out_row = 0;
    char *to = room->bytes + sizeof room->bytes - room->reg;
    mr_native_call call = {.in = in,
                           .in_row = row,
                           .out = &to,
                           .out_row = &out_row,
                           .rows = 1,
                           .n = n};

    for (int i = 0; i < c->n_in; i++)
        in[i] = at[i];
    for (int i = 0; i < c->n_const; i++)
        in[c->n_in + i] = (const char *)c->consts[i].bytes;
    fn(&call);
    return to;
}

/* Instruction by instruction. */
static const char *
interpret(const mr_index_code *c, const void **at, int64_t *step, int64_t n,
          mr_index_room *room)
{
    const mr_tier *tier = mr__tier();
    char *to = NULL;

    for (int i = 0; i < c->n_const; i++) {
        at[c->n_in + i] = reg_at(room, c->n_in + i);
        step[c->n_in + i] = 0;
    }
    for (int i = 0; i < c->n_inst; i++) {
        const mr_inst *in = &c->inst[i];
        const void *args[3];
        int64_t steps[3];
        int n_arg = mr__k_operands((mr_k)in->k);
        uint8_t from = c->dtype[in->arg[n_arg - 1]], as = c->dtype[in->dst];

        to = reg_at(room, in->dst);
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

const char *
mr__index_compute(const mr_index_code *c, const mr_index_line *line, int64_t k,
                  int64_t n, mr_index_room *room)
{
    const void *at[MR_INDEX_MAX_REG];
    int64_t step[MR_INDEX_MAX_REG];

    assert(n <= room->points && c->n_inst > 0);
    inputs(c, line, k, n, room, at, step);
    return line->fn == NULL ? interpret(c, at, step, n, room)
                            : native(c, line->fn, at, n, room);
}
