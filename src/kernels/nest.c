/* SPDX-License-Identifier: Apache-2.0
 *
 * nest.c -- the loop nest of a launch in its simplest form.
 *
 * Fewer and longer dims make everything after cheaper.  Kept dims may change
 * their order (each row is computed by itself); reduced dims may not, because
 * the order of the points decides the bits of a reduction.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/program.h"

/* All operands of a launch in one row, and how many dims each has. */
typedef struct operands {
    mr_block_io *io[2 * MR_CODE_MAX_IO];
    bool kept_only[2 * MR_CODE_MAX_IO];
    int n;
} operands;

static void
operands_of(operands *o, const mr_block_code *c, mr_block_launch *l)
{
    o->n = 0;
    for (int i = 0; i < c->n_out; i++) {
        o->kept_only[o->n] = c->out[i].per_row;
        o->io[o->n++] = &l->out[i];
    }
    for (int i = 0; i < c->n_in; i++) {
        o->kept_only[o->n] = false;
        o->io[o->n++] = &l->in[i];
    }
}

static void
dim_drop(operands *o, mr_block_launch *l, int d)
{
    int n = l->n_kept + l->n_red;

    for (int i = d; i + 1 < n; i++) {
        l->dim[i] = l->dim[i + 1];
        for (int j = 0; j < o->n; j++)
            o->io[j]->stride[i] = o->io[j]->stride[i + 1];
    }
    if (d < l->n_kept)
        l->n_kept--;
    else
        l->n_red--;
}

static void
dim_swap(operands *o, mr_block_launch *l, int a, int b)
{
    int64_t t = l->dim[a];

    l->dim[a] = l->dim[b];
    l->dim[b] = t;
    for (int j = 0; j < o->n; j++) {
        t = o->io[j]->stride[a];
        o->io[j]->stride[a] = o->io[j]->stride[b];
        o->io[j]->stride[b] = t;
    }
}

/* Should kept dim a stand outside of dim b?  The first output decides for
 * elementwise programs, all operands together otherwise and at ties. */
static bool
dim_outside(const operands *o, bool elementwise, int a, int b)
{
    int64_t x = 0, y = 0;

    if (elementwise && o->n > 0) {
        x = llabs(o->io[0]->stride[a]);
        y = llabs(o->io[0]->stride[b]);
        if (x != y)
            return x > y;
    }
    for (int j = 0; j < o->n; j++) {
        x += llabs(o->io[j]->stride[a]);
        y += llabs(o->io[j]->stride[b]);
    }
    return x > y;
}

static bool
dims_join(const operands *o, const mr_block_launch *l, int a)
{
    bool red = a >= l->n_kept;

    for (int j = 0; j < o->n; j++) {
        if (red && o->kept_only[j])
            continue;
        if (o->io[j]->stride[a] != o->io[j]->stride[a + 1] * l->dim[a + 1])
            return false;
    }
    return true;
}

void
mr__block_normalise(const mr_block_code *c, mr_block_launch *l)
{
    operands o;
    bool elementwise = l->n_red == 0;

    operands_of(&o, c, l);
    for (int d = l->n_kept + l->n_red - 1; d >= 0; d--) {
        if (l->dim[d] == 1)
            dim_drop(&o, l, d);
    }
    for (int i = 1; i < l->n_kept; i++) {
        for (int j = i; j > 0 && dim_outside(&o, elementwise, j, j - 1); j--)
            dim_swap(&o, l, j, j - 1);
    }
    for (int d = l->n_kept + l->n_red - 2; d >= 0; d--) {
        if (d == l->n_kept - 1 || !dims_join(&o, l, d))
            continue;
        l->dim[d + 1] *= l->dim[d];
        dim_drop(&o, l, d);
    }
}

void
mr__block_merge_rows(const mr_block_code *c, mr_block_launch *l)
{
    operands o;

    operands_of(&o, c, l);
    for (int d = l->n_kept - 2; d >= 0 && l->n_kept > 2; d--) {
        if (l->dim[d] == 1)
            dim_drop(&o, l, d);
    }
    for (int d = l->n_kept - 3; d >= 0; d--) {
        if (!dims_join(&o, l, d))
            continue;
        l->dim[d + 1] *= l->dim[d];
        dim_drop(&o, l, d);
    }
}
