/* SPDX-License-Identifier: Apache-2.0
 *
 * code.c -- a group's block program.
 *
 * Registers are numbered inputs first, then constants, then members in
 * topological order; bridges and aliases share their input's register.  Loop
 * dims are the kept axes of the space, then the reduced ones, in logical
 * order.
 *
 * Called by: blocks.c, compile/.  Calls: kernels/program.h's data alone.
 */
#include <string.h>

#include "base/error.h"
#include "eval/fuse.h"

typedef struct builder {
    mr_arena *arena;
    mr_fuse_group *g;
    mr_block_group *b;
    const mr_array *const_x[MR_CODE_MAX_REG]; /* arrays seen as constants */
    mr_const consts[MR_CODE_MAX_REG];
    uint8_t const_dtype[MR_CODE_MAX_REG];
    mr_inst inst[MR_FUSE_MAX_MEMBERS + 1];
    mr_fuse_node *member[MR_FUSE_MAX_MEMBERS]; /* of each instruction */
    uint8_t dtype[MR_CODE_MAX_REG];
    uint8_t row[MR_CODE_MAX_REG];
    uint8_t phase[MR_CODE_MAX_REG];
    int n_in, n_const, n_inst, n_phases;
    bool rows; /* the program has rows (a reduction) */
    bool sources, failed;
    mr_code_source source[MR_CODE_MAX_IO];
    int n_indices;
    mr_index_code indices[MR_FUSE_MAX_GATHERS];
} builder;

/* ---- operands -------------------------------------------------------------
 */

static bool
is_member(const builder *bu, const mr_fuse_node *n)
{
    return n != NULL && n->group == bu->g && n != bu->g->product;
}

static int
const_find(const builder *bu, const mr_array *x)
{
    for (int i = 0; i < bu->n_const; i++)
        if (bu->const_x[i] == x)
            return i;
    return -1;
}

static int
in_find(const builder *bu, const mr_array *x)
{
    for (int i = 0; i < bu->n_in; i++)
        if (bu->b->in[i].x == x && bu->source[i].kind == MR_FROM_MEMORY)
            return i;
    return -1;
}

static void
add_const(builder *bu, const mr_array *x, const void *bits)
{
    int i = bu->n_const++;

    memset(&bu->consts[i], 0, sizeof bu->consts[i]);
    memcpy(&bu->consts[i], bits, (size_t)mr__dtype_size((mr_dtype)x->dtype));
    bu->const_x[i] = x;
    bu->const_dtype[i] = x->dtype;
}

static void
add_in(builder *bu, const mr_block_operand *o, mr_code_source source)
{
    bu->b->in[bu->n_in] = *o;
    bu->source[bu->n_in] = source;
    bu->dtype[bu->n_in] = o->x->dtype;
    bu->row[bu->n_in] = o->row;
    bu->n_in++;
}

static void *
keep(mr_arena *a, const void *p, size_t bytes)
{
    void *to = mr__arena_alloc(a, bytes ? bytes : 1);

    if (to != NULL && bytes != 0)
        memcpy(to, p, bytes);
    return to;
}

/* The registers of an index that is computed, and the nodes and arrays that
 * they are of. */
typedef struct index_builder {
    mr_index_code *c;
    const mr_array *x[MR_INDEX_MAX_REG];
} index_builder;

static int
index_find(const index_builder *ib, const mr_array *x)
{
    int n = ib->c->n_in + ib->c->n_const + ib->c->n_inst;

    while (--n >= 0 && ib->x[n] != x)
        ;
    return n;
}

/* Is the array made by a member that computes an index? */
static bool
is_index(const builder *bu, const mr_fuse_node *n)
{
    return is_member(bu, n) && n->role == MR_ROLE_INDEX;
}

/* What the index is computed from, in the order of the members: inputs first,
 * then constants. */
static void
index_operands(builder *bu, index_builder *ib, const mr_fuse_node *n,
               const mr_gather_map *map, bool numbers)
{
    mr_index_code *c = ib->c;

    for (int i = 0; i < n->x->n_in; i++) {
        mr_array *x = n->x->in[i];
        const void *bits = mr__fuse_constant(x);

        if (is_index(bu, n->in[i])) {
            index_operands(bu, ib, n->in[i], map, numbers);
            continue;
        }
        if ((bits != NULL) != numbers || index_find(ib, x) >= 0)
            continue;
        ib->x[c->n_in + c->n_const] = x;
        c->dtype[c->n_in + c->n_const] = x->dtype;
        if (numbers) {
            memset(&c->consts[c->n_const], 0, sizeof *c->consts);
            memcpy(&c->consts[c->n_const++], bits,
                   (size_t)mr__dtype_size((mr_dtype)x->dtype));
            continue;
        }
        c->in[c->n_in++] = (uint8_t)bu->n_in;
        add_in(
            bu,
            &(mr_block_operand){.x = x, .node = n->in[i], .axis = map->index},
            (mr_code_source){.kind = MR_FROM_INDEX});
    }
}

/* Its register. */
static uint16_t
index_emit(const builder *bu, index_builder *ib, const mr_fuse_node *n)
{
    mr_index_code *c = ib->c;
    mr_inst in = {.k = (uint16_t)mr__fuse_k(n->x)};
    int at = index_find(ib, n->x);

    if (at >= 0)
        return (uint16_t)at;
    for (int i = 0; i < n->x->n_in; i++)
        in.arg[i] = is_index(bu, n->in[i])
                        ? index_emit(bu, ib, n->in[i])
                        : (uint16_t)index_find(ib, n->x->in[i]);
    at = c->n_in + c->n_const + c->n_inst;
    in.dst = (uint16_t)at;
    c->inst[c->n_inst++] = in;
    c->dtype[at] = n->x->dtype;
    ib->x[at] = n->x;
    return in.dst;
}

/* The inputs that the index of a gather is computed from; which of the code's
 * it is, from 1 on. */
static uint8_t
collect_index(builder *bu, const mr_fuse_node *root, const mr_gather_map *map)
{
    index_builder ib = {.c = &bu->indices[bu->n_indices++]};

    memset(ib.c, 0, sizeof *ib.c);
    index_operands(bu, &ib, root, map, false);
    index_operands(bu, &ib, root, map, true);
    index_emit(bu, &ib, root);
    return (uint8_t)bu->n_indices;
}

/* The indices, then what is read or put through them. */
static void
collect_gather(builder *bu, mr_fuse_node *m)
{
    const mr_gather_map *map = keep(bu->arena, m->gather, sizeof *map);
    bool put = m->role == MR_ROLE_PUT;
    int from = put ? 2 : 0, index = bu->n_in;
    uint8_t computed = 0;

    bu->sources = true;
    if (map == NULL) {
        bu->failed = true;
        return;
    }
    if (m->index != NULL)
        computed = collect_index(bu, m->index, map);
    else
        add_in(bu,
               &(mr_block_operand){
                   .x = m->x->in[1], .node = m->in[1], .axis = map->index},
               (mr_code_source){.kind = MR_FROM_INDEX});
    m->reg = (uint16_t)bu->n_in;
    add_in(bu,
           &(mr_block_operand){.x = m->x->in[from],
                               .node = m->in[from],
                               .row = m->of_row,
                               .axis = map->value,
                               .gather = m->x},
           (mr_code_source){.kind = put ? MR_FROM_PUT : MR_FROM_GATHER,
                            .index = (uint8_t)index,
                            .axis = (uint8_t)map->axis,
                            .adds = m->adds,
                            .computed = computed});
}

/* An operand of rows that lacks axes of the space: which of its own go along
 * which of these. */
static const int8_t *
axes_of_rows(builder *bu, const mr_array *x)
{
    const mr_fuse_group *g = bu->g;
    int8_t map[MR_MAX_NDIM];
    const int8_t *kept;
    int axis = 0;

    for (int i = 0; i < g->ndim; i++) {
        map[i] = -1;
        if ((g->red_axes >> i & 1) || g->dim[i] == 1)
            continue;
        while (x->dim[axis] == 1)
            axis++;
        map[i] = (int8_t)axis++;
    }
    kept = keep(bu->arena, map, (size_t)g->ndim);
    bu->failed |= kept == NULL;
    return kept;
}

/* Does the member compute, or look at, a value for each row? */
static bool
is_of_rows(const builder *bu, const mr_fuse_node *m)
{
    if (m->role != MR_ROLE_ALIAS)
        return m->role == MR_ROLE_ROW || m->role == MR_ROLE_BRIDGE;
    return m->x->ndim != bu->g->ndim ||
           memcmp(m->x->dim, bu->g->dim,
                  (size_t)m->x->ndim * sizeof *m->x->dim) != 0;
}

/* The keys, in a register of what is made of them. */
static void
collect_draw(builder *bu, mr_fuse_node *m)
{
    bu->sources = true;
    m->reg = (uint16_t)bu->n_in;
    add_in(bu, &(mr_block_operand){.x = m->x->in[0], .node = m->in[0]},
           (mr_code_source){.kind = MR_FROM_DRAW});
    bu->dtype[m->reg] = m->x->dtype;
}

/* Inputs of one member that come from outside. */
static void
collect(builder *bu, mr_fuse_node *m)
{
    bool row = bu->rows && is_of_rows(bu, m);

    if (m->role == MR_ROLE_GATHER || m->role == MR_ROLE_PUT) {
        collect_gather(bu, m);
        return;
    }
    if (m->role == MR_ROLE_INDEX) /* with its gather */
        return;
    if (m->role == MR_ROLE_DRAW) {
        collect_draw(bu, m);
        return;
    }
    for (int i = 0; i < m->x->n_in; i++) {
        mr_array *x = m->x->in[i];
        const void *bits;

        if (is_member(bu, m->in[i]) || in_find(bu, x) >= 0 ||
            const_find(bu, x) >= 0)
            continue;
        bits = mr__fuse_constant(x);
        if (bits != NULL) {
            add_const(bu, x, bits);
            continue;
        }
        add_in(bu,
               &(mr_block_operand){
                   .x = x,
                   .node = m->in[i],
                   .row = row,
                   .axis = x->ndim < bu->g->ndim ? axes_of_rows(bu, x) : NULL},
               (mr_code_source){.kind = MR_FROM_MEMORY});
    }
}

static uint16_t
operand(const builder *bu, const mr_fuse_node *m, int i)
{
    const mr_array *x = m->x->in[i];
    int at;

    if (is_member(bu, m->in[i]))
        return m->in[i]->reg;
    at = in_find(bu, x);
    if (at >= 0)
        return (uint16_t)at;
    return (uint16_t)(bu->n_in + const_find(bu, x));
}

/* ---- instructions -----------------------------------------------------------
 */

static void
emit(builder *bu, mr_fuse_node *m)
{
    const mr_array *x = m->x;
    mr_inst *in = &bu->inst[bu->n_inst];
    int reg = bu->n_in + bu->n_const + bu->n_inst;
    int phase = 0;

    memset(in, 0, sizeof *in);
    in->k = (uint16_t)mr__fuse_k(x);
    in->dst = (uint16_t)reg;
    for (int i = 0; i < x->n_in; i++) {
        in->arg[i] = operand(bu, m, i);
        if (bu->phase[in->arg[i]] > phase)
            phase = bu->phase[in->arg[i]];
    }
    in->phase = (uint16_t)phase;
    if (phase + 1 > bu->n_phases)
        bu->n_phases = phase + 1;
    m->reg = (uint16_t)reg;
    bu->dtype[reg] = x->dtype;
    bu->row[reg] =
        bu->rows && (m->role == MR_ROLE_ROW || m->role == MR_ROLE_REDUCE);
    bu->phase[reg] = (uint8_t)(m->role == MR_ROLE_REDUCE ? phase + 1 : phase);
    bu->member[bu->n_inst++] = m;
}

static void
emit_all(builder *bu)
{
    for (mr_fuse_node *m = bu->g->member; m != NULL; m = m->next_member)
        if (m->role == MR_ROLE_BRIDGE || m->role == MR_ROLE_ALIAS ||
            m->role == MR_ROLE_LOOK)
            m->reg = operand(bu, m, 0);
        else if (m->role != MR_ROLE_GATHER && m->role != MR_ROLE_PUT &&
                 m->role != MR_ROLE_DRAW && m->role != MR_ROLE_INDEX &&
                 m != bu->g->product)
            emit(bu, m);
}

/* ---- the result
 * ---------------------------------------------------------------- */

static void
set_loops(builder *bu)
{
    mr_block_group *b = bu->b;
    const mr_fuse_group *g = bu->g;
    uint32_t red = bu->rows ? g->red_axes : 0;

    b->ndim = g->ndim;
    b->n_kept = b->n_red = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < g->ndim; i++)
            if ((int)(red >> i & 1) == pass) {
                b->axis[b->n_kept + b->n_red] = i;
                b->dim[b->n_kept + b->n_red] = g->dim[i];
                if (pass == 0)
                    b->n_kept++;
                else
                    b->n_red++;
            }
    if (bu->rows && b->n_red == 0) { /* the reduced axes all have size 1 */
        b->axis[b->n_kept] = -1;
        b->dim[b->n_kept] = 1;
        b->n_red = 1;
    }
}

static bool
set_code(builder *bu)
{
    mr_block_code *c = &bu->b->code;
    int n_reg = bu->n_in + bu->n_const + bu->n_inst;
    mr_code_out out[MR_CODE_MAX_IO];
    int n_out = 0;

    for (int i = 0; i < bu->n_inst; i++) {
        mr_fuse_node *m = bu->member[i];

        if (!m->visible && m != bu->g->root)
            continue;
        bu->b->out[n_out] = m;
        out[n_out].reg = m->reg;
        out[n_out].per_row = bu->row[m->reg] != 0;
        n_out++;
    }
    c->n_in = (uint16_t)bu->n_in;
    c->n_const = (uint16_t)bu->n_const;
    c->n_inst = (uint16_t)bu->n_inst;
    c->n_out = (uint16_t)n_out;
    c->n_reg = (uint16_t)n_reg;
    c->n_phases = (uint16_t)bu->n_phases;
    c->reg_dtype = keep(bu->arena, bu->dtype, (size_t)n_reg);
    c->reg_row = keep(bu->arena, bu->row, (size_t)n_reg);
    c->consts =
        keep(bu->arena, bu->consts, (size_t)bu->n_const * sizeof *bu->consts);
    c->inst = keep(bu->arena, bu->inst, (size_t)bu->n_inst * sizeof *bu->inst);
    c->out = keep(bu->arena, out, (size_t)n_out * sizeof *out);
    c->source = NULL;
    c->indices = NULL;
    c->n_indices = (uint16_t)bu->n_indices;
    if (bu->n_indices > 0) {
        c->indices = keep(bu->arena, bu->indices,
                          (size_t)bu->n_indices * sizeof *bu->indices);
        if (c->indices == NULL)
            return false;
    }
    if (bu->sources) {
        c->source =
            keep(bu->arena, bu->source, (size_t)bu->n_in * sizeof *bu->source);
        if (c->source == NULL)
            return false;
    }
    return c->reg_dtype != NULL && c->reg_row != NULL && c->consts != NULL &&
           c->inst != NULL && c->out != NULL;
}

mr_block_group *
mr__fuse_code(mr_arena *arena, mr_fuse_group *g)
{
    builder bu;

    bu.arena = arena;
    bu.g = g;
    bu.n_in = bu.n_const = bu.n_inst = bu.n_phases = bu.n_indices = 0;
    bu.rows = g->has_reduction;
    bu.sources = bu.failed = false;
    bu.b = mr__arena_alloc(arena, sizeof *bu.b);
    if (bu.b == NULL)
        return NULL;
    memset(bu.phase, 0, sizeof bu.phase);
    for (mr_fuse_node *m = g->member; m != NULL; m = m->next_member)
        if (m != g->product)
            collect(&bu, m);
    if (bu.failed)
        return NULL;
    memset(bu.row + bu.n_in, 0, (size_t)bu.n_const);
    memcpy(bu.dtype + bu.n_in, bu.const_dtype, (size_t)bu.n_const);
    emit_all(&bu);
    set_loops(&bu);
    bu.b->product = g->product == NULL ? -1 : in_find(&bu, g->product->x);
    return set_code(&bu) ? bu.b : NULL;
}
