/* SPDX-License-Identifier: Apache-2.0
 *
 * depends.c -- arrays that are evaluated after others.
 *
 * The operator is a view of its first input; the others are read by nobody,
 * but the planner places them before it, and on one stream what is placed
 * before runs before.  checkpoint.c holds a second run back with it until the
 * cotangents are there.
 * Called by: users, checkpoint.c.  Calls: graph/.
 */
#include "transform/custom.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "marram/scope.h"
#include "marram/tree.h"
#include "transform/traced.h"

enum { ID_DEPENDS = 370 };

static mr_code
depends_infer(const mr_op_call *c, mr_aval *out)
{
    mr__aval_like(out, c->in[0]);
    return MR_OK;
}

static mr_array *
depends_vjp(const mr_rule *r, int i)
{
    return i == 0 ? r->cotangent[0] : MR_NONE;
}

static mr_array *
depends_jvp(const mr_rule *r, int i)
{
    return i == 0 ? r->tangent[0] : MR_NONE;
}

static mr_array *depends_vmap(const mr_batch *b);

static bool
depends_view(const mr_node *n, const mr_layout *in, mr_layout *out)
{
    (void)n;
    *out = *in;
    return true;
}

static const mr_op op_depends = {
    .id = ID_DEPENDS,
    .version = 1,
    .n_in = -1,
    .flags = MR_FLAG_LINEAR,
    .name = "depends",
    .fuse = {MR_FUSE_VIEW, 0},
    .infer = depends_infer,
    .vjp = depends_vjp,
    .jvp = depends_jvp,
    .vmap = depends_vmap,
    .view = depends_view,
};

mr_array *
mr__depends(mr_array *x, mr_array *const *on, int n)
{
    mr_array **in = mr__alloc_array((size_t)n + 1, sizeof *in), *y;

    if (!in)
        return NULL;
    in[0] = x;
    if (n > 0)
        memcpy(in + 1, on, (size_t)n * sizeof *in);
    y = mr__node_new(&op_depends, NULL, n + 1, in);
    mr__dealloc(in);
    return y;
}

static mr_array *
depends_vmap(const mr_batch *b)
{
    mr_array *x = mr__batch_in(b, 0);

    return x ? mr__depends(x, b->in + 1, b->n_in - 1) : NULL;
}

mr_tree *
mr_depends(const mr_tree *inputs, const mr_tree *dependencies)
{
    mr_leaves x = {0}, on = {0};
    mr_tree *t = NULL;
    mr_scope s = mr_scope_begin();
    bool ok;

    if (s.token == 0)
        return NULL;
    ok = mr__leaves_of(&x, inputs, "inputs") == MR_OK &&
         mr__leaves_of(&on, dependencies, "dependencies") == MR_OK;
    for (int i = 0; ok && i < x.n; i++) {
        x.v[i] = mr__depends(x.v[i], on.v, on.n);
        ok = x.v[i] != NULL;
    }
    if (ok)
        t = mr_tree_like(inputs, x.v, x.n);
    mr__leaves_free(&x);
    mr__leaves_free(&on);
    t = mr_scope_return_tree(s, t);
    mr_scope_end(s);
    return t;
}
