/* SPDX-License-Identifier: Apache-2.0
 *
 * blocks.c -- block programs over the pool, and the row operators that are
 * written as such.
 *
 * softmax, layer_norm and rms_norm are small programs of the same scalar
 * operations and reductions as fused groups: one definition of the
 * arithmetic, one order of reductions, and the interpreter keeps a row in
 * cache between its passes.  Halves are widened first and rounded last.  Rows
 * of one block of points have a kernel that does the same in registers. Called
 * by: device.c, eval/ through the device's table.  Calls: kernels/program.h.
 */
#include "cpu/blocks.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cpu/cpu.h"
#include "cpu/index.h"
#include "cpu/softmax_columns.h"
#include "kernels/ready.h"
#include "kernels/source.h"
#include "ops/params.h"

/* ---- running
 * ------------------------------------------------------------------ */

typedef struct units {
    const mr_block_ready *ready;
    const mr_block_launch *launch;
    void *scratch;
    int round;
    _Atomic unsigned met; /* what the units met (ready.h); read after all of
                             them, so relaxed */
} units;

static void
units_run(void *ctx, int64_t begin, int64_t end)
{
    units *u = ctx;

    unsigned met = mr__block_run_ready(u->ready, u->launch, u->scratch,
                                       u->round, begin, end);

    if (met != 0)
        atomic_fetch_or_explicit(&u->met, met, memory_order_relaxed);
}

/* Operands that a launch goes over, not those that are met again and again. */
static void
launch_over(const mr_block_code *c, const mr_block_launch *l, mr_over *over)
{
    for (int i = 0; i < c->n_in; i++)
        if (l->in[i].stride[0] != 0)
            mr__over_add(over, l->in[i].data);
    for (int i = 0; i < c->n_out; i++)
        if (!c->out[i].per_row)
            mr__over_add(over, l->out[i].data);
}

static unsigned
units_all(const mr_block_ready *ready, const mr_block_launch *launch,
          void *scratch)
{
    units u = {ready, launch, scratch, 0, 0};
    mr_over over = {.n = 0};
    unsigned met = 0;

    if (ready->plan.n_units == 0)
        return 0;
    launch_over(ready->code, launch, &over);
    for (; u.round < ready->plan.n_rounds; u.round++) {
        mr__cpu_for_over(&over, ready->plan.n_units,
                         mr__cpu_grain((double)ready->plan.unit_cost),
                         units_run, &u);
        met |= mr__block_finish_ready(ready, launch, scratch, u.round);
    }
    return met | atomic_load_explicit(&u.met, memory_order_relaxed);
}

static char *
aligned(char *memory)
{
    return memory + (-(uintptr_t)memory & 63);
}

/* Says which index of which gather or put is out of range. */
static mr_code
bad_index(const mr_block_code *code, const mr_block_launch *launch)
{
    int64_t index;

    for (int i = 0; i < code->n_in; i++)
        if ((code->source[i].kind == MR_FROM_GATHER ||
             code->source[i].kind == MR_FROM_PUT) &&
            mr__block_bad_index(code, launch, i, &index))
            return mr__index_fail(index, code->source[i].axis, launch->in[i].n);
    return MR_E_INDEX; /* somebody writes into the indices meanwhile */
}

/* The careful program uses a few more registers for each mean. */
static bool
careful_fits(const mr_block_code *code)
{
    int n = code->n_reg;

    for (int i = 0; i < code->n_inst; i++)
        n += MR_K_IS_REDUCTION(code->inst[i].k) ? 11 : 1;
    return n <= MR_LOW_REGS;
}

static mr_code
run_careful(const mr_block_code *code, const mr_block_launch *launch)
{
    mr_block_room *room = mr__alloc(sizeof *room);
    const mr_block_ready *ready;
    unsigned met = 0;
    char *memory;

    if (room == NULL)
        return MR_E_MEMORY;
    ready = mr__block_make_careful(code, launch, room);
    memory = mr__alloc(ready->plan.scratch_bytes + 64);
    if (memory != NULL)
        met = units_all(ready, launch, aligned(memory));
    mr__dealloc(room);
    if (memory == NULL)
        return MR_E_MEMORY;
    mr__dealloc(memory);
    return met & MR_RAN_BAD_INDEX ? bad_index(code, launch) : MR_OK;
}

/* Does a program with a mean write over an input?  It cannot be run again. */
static bool
mean_in_place(const mr_block_code *code, const mr_block_launch *launch)
{
    bool mean = false;

    for (int i = 0; i < code->n_inst; i++)
        mean |= code->inst[i].k == MR_R_MEAN;
    for (int o = 0; mean && o < code->n_out; o++)
        for (int i = 0; i < code->n_in; i++)
            if (launch->out[o].data == launch->in[i].data)
                return true;
    return false;
}

/* A copy between layouts is a box, and copy.c knows in which order to go over
 * it; false: this is none. */
static bool
run_copy(const mr_block_ready *ready, const mr_block_launch *l)
{
    const mr_block_code *c = ready->code;
    mr_box b = {.ndim = l->n_kept, .to = l->out[0].data, .from = l->in[0].data};

    if (c->n_inst != 1 || c->n_in != 1 || c->n_out != 1 || l->n_red != 0 ||
        c->source != NULL || c->inst[0].k != MR_K_COPY ||
        c->out[0].reg != c->inst[0].dst || !mr__block_is_lowered(ready) ||
        b.to == b.from)
        return false;
    b.item = mr__dtype_size((mr_dtype)c->reg_dtype[0]);
    for (int k = 0; k < l->n_kept; k++) {
        if (l->in[0].stride[k] % b.item != 0)
            return false;
        b.dim[k] = l->dim[k];
        b.from_stride[k] = l->in[0].stride[k] / b.item;
        b.to_stride[k] = l->out[0].stride[k] / b.item;
    }
    mr__cpu_copy_box(&b);
    return true;
}

/* A mean whose sum overflows is rare: only then the work is done again. */
static mr_code
run(const mr_block_ready *ready, const mr_block_launch *launch, void *scratch)
{
    const mr_block_code *code = ready->code;
    unsigned met;

    if (mean_in_place(code, launch) && careful_fits(code))
        return run_careful(code, launch);
    if (run_copy(ready, launch))
        return MR_OK;
    met = units_all(ready, launch, scratch);
    /* outputs that read no bad index have to be right all the same */
    if ((met & MR_RAN_BEYOND) && careful_fits(code))
        return run_careful(code, launch);
    return met & MR_RAN_BAD_INDEX ? bad_index(code, launch) : MR_OK;
}

/* Short rows are split only where they lie side by side: most plans end here.
 */
static bool
may_split(const mr_block_code *code, const mr_block_launch *l)
{
    int kept = l->n_kept - 1, point = l->n_kept + l->n_red - 1;
    int64_t points = 1;

    if (l->n_red == 0)
        return false;
    for (int i = l->n_kept; i < l->n_kept + l->n_red; i++)
        points *= l->dim[i];
    if (points > 3 * MR_RED_BLOCK)
        return true;
    if (points < MR_SPLIT_POINTS || kept < 0)
        return false;
    for (int i = 0; i < code->n_in; i++)
        if (llabs(l->in[i].stride[kept]) < llabs(l->in[i].stride[point]))
            return true;
    return false;
}

size_t
mr__cpu_block_workspace(const mr_block_code *code,
                        const mr_block_launch *launch)
{
    if (!may_split(code, launch))
        return 0;
    return mr__block_plan(code, launch).scratch_bytes;
}

mr_code
mr__cpu_run_block(const mr_block_code *code, const mr_block_launch *launch,
                  void *workspace)
{
    mr_block_room room;
    const mr_block_ready *ready = mr__block_make_ready(code, launch, &room);
    size_t bytes = ready->plan.scratch_bytes;
    char *memory = NULL;
    mr_code rc;

    if (bytes > 0 && workspace == NULL) {
        memory = mr__alloc(bytes + 64);
        if (!memory)
            return MR_E_MEMORY;
    }
    if (memory != NULL)
        workspace = aligned(memory);
    rc = run(ready, launch, workspace);
    mr__dealloc(memory);
    return rc;
}

const void *
mr__cpu_block_ready(const mr_block_code *code, const mr_block_launch *launch,
                    mr_arena *arena, size_t *workspace)
{
    mr_block_room room;
    const mr_block_ready *ready = mr__block_make_ready(code, launch, &room);

    *workspace = ready->plan.scratch_bytes;
    return mr__block_keep_ready(ready, launch, arena);
}

mr_code
mr__cpu_run_ready(const void *ready, void *const *in, void *const *out,
                  void *workspace)
{
    const mr_block_ready *b = ready;
    mr_block_launch l;

    mr__block_ready_launch(b, &l);
    for (int i = 0; i < b->code->n_in; i++)
        l.in[i].data = in[i];
    for (int i = 0; i < b->code->n_out; i++)
        l.out[i].data = out[i];
    return run(b, &l, workspace);
}

/* ---- writing programs
 * ----------------------------------------------------------- */

enum { MAX_REG = 24, MAX_CONST = 2 };

/* A program being written; registers are numbered as they come: inputs,
 * constants, results. */
typedef struct program {
    mr_block_code code;
    uint8_t dtype[MAX_REG], row[MAX_REG];
    uint16_t phase[MAX_REG]; /* of the value in a register */
    mr_const value[MAX_CONST];
    mr_inst inst[MAX_REG];
    mr_code_out out[1];
} program;

static int
program_input(program *p, mr_dtype t)
{
    p->dtype[p->code.n_reg] = (uint8_t)t;
    p->code.n_in++;
    return p->code.n_reg++;
}

/* After all inputs, before all instructions. */
static int
program_number(program *p, mr_dtype t, double x)
{
    mr_const from = {.c128 = {x, 0.0}};

    assert(p->code.n_const < MAX_CONST && p->code.n_inst == 0);
    mr__const_cast(&from, MR_COMPLEX128, &p->value[p->code.n_const], t);
    p->dtype[p->code.n_reg] = (uint8_t)t;
    p->code.n_const++;
    return p->code.n_reg++;
}

/* One value along a row? */
static bool
is_fixed(const program *p, int r)
{
    return p->row[r] ||
           (r >= p->code.n_in && r < p->code.n_in + p->code.n_const);
}

/* One instruction; b < 0: unary.  The result has dtype t. */
static int
program_do(program *p, mr_k k, mr_dtype t, int a, int b)
{
    mr_inst *i = &p->inst[p->code.n_inst++];
    int to = p->code.n_reg++;
    bool reduces = MR_K_IS_REDUCTION(k);
    uint16_t phase = p->phase[a];

    assert(to < MAX_REG);
    if (b >= 0 && p->phase[b] > phase)
        phase = p->phase[b];
    *i = (mr_inst){.k = (uint16_t)k,
                   .dst = (uint16_t)to,
                   .arg = {(uint16_t)a, (uint16_t)(b < 0 ? 0 : b)},
                   .phase = phase};
    p->dtype[to] = (uint8_t)t;
    p->row[to] = reduces || ((p->row[a] || (b >= 0 && p->row[b])) &&
                             is_fixed(p, a) && (b < 0 || is_fixed(p, b)));
    p->phase[to] = (uint16_t)(phase + (reduces ? 1 : 0));
    return to;
}

static int
program_cast(program *p, mr_dtype t, int a)
{
    return p->dtype[a] == t ? a : program_do(p, MR_K_CAST, t, a, -1);
}

/* Where axis k stands when `axis` is the last of n. */
static int32_t
axis_place(int32_t k, int32_t axis, int32_t n)
{
    return k == axis ? n - 1 : k - (k > axis);
}

/* Over an axis: inputs are a's, the output the register `out`. */
static void
program_launch(program *p, int out, const mr_kernel_args *a, int32_t axis,
               mr_block_launch *l)
{
    const mr_kernel_view *y = &a->out[0];
    int64_t item = mr__dtype_size(y->dtype);

    p->out[0] = (mr_code_out){(uint16_t)out, false};
    p->code.n_out = 1;
    p->code.n_phases = 1;
    for (int i = 0; i < p->code.n_reg; i++)
        if (p->phase[i] >= p->code.n_phases)
            p->code.n_phases = (uint16_t)(p->phase[i] + 1);
    p->code.reg_dtype = p->dtype;
    p->code.reg_row = p->row;
    p->code.consts = p->value;
    p->code.inst = p->inst;
    p->code.out = p->out;

    memset(l, 0, sizeof *l);
    l->n_kept = y->ndim - 1;
    l->n_red = 1;
    for (int32_t k = 0; k < y->ndim; k++)
        l->dim[axis_place(k, axis, y->ndim)] = y->dim[k];
    for (int i = 0; i < p->code.n_in; i++) {
        const mr_kernel_view *x = &a->in[i];
        int32_t behind = y->ndim - x->ndim; /* weights have the last axis */

        l->in[i].data = x->data;
        for (int32_t k = behind; k < y->ndim; k++)
            l->in[i].stride[axis_place(k, axis, y->ndim)] =
                x->stride[k - behind] * mr__dtype_size(x->dtype);
    }
    l->out[0].data = y->data;
    for (int32_t k = 0; k < y->ndim; k++)
        l->out[0].stride[axis_place(k, axis, y->ndim)] = y->stride[k] * item;
    mr__block_normalise(&p->code, l);
}

/* ---- short rows
 * ------------------------------------------------------------------- */

/* Below this many points a row's own sums cost more than the instructions of
 * a tile of rows. */
#define SHORTEST_ROW 48

/* Rows that the tier's kernels take whole (tier.h, mr_row_fns), instead of the
 * program and with its bits: adjacent points, rows evenly apart. */
typedef struct short_rows {
    const mr_row_fns *fns;
    const mr_norm_rows *norm; /* or softmax */
    const char *in;
    char *out;
    int64_t in_bytes, out_bytes, n, n_rows;
} short_rows;

static bool
short_rows_of(const program *p, const mr_block_launch *l, short_rows *s)
{
    int red = l->n_kept;

    s->fns = &mr__tier()->dtype[p->dtype[0]]->rows;
    if (s->fns->softmax == NULL || l->n_red != 1 || l->n_kept > 1 ||
        l->dim[red] < SHORTEST_ROW || l->dim[red] > MR_RED_BLOCK ||
        l->out[0].stride[red] != mr__dtype_size((mr_dtype)p->dtype[0]))
        return false;
    for (int i = 0; i < p->code.n_in; i++)
        if (l->in[i].stride[red] != mr__dtype_size((mr_dtype)p->dtype[i]))
            return false;
    s->in = l->in[0].data;
    s->out = l->out[0].data;
    s->n = l->dim[red];
    s->n_rows = red > 0 ? l->dim[0] : 1;
    s->in_bytes = red > 0 ? l->in[0].stride[0] : 0;
    s->out_bytes = red > 0 ? l->out[0].stride[0] : 0;
    return true;
}

static void
short_rows_piece(void *ctx, int64_t begin, int64_t end)
{
    const short_rows *s = ctx;
    const char *in = s->in + begin * s->in_bytes;
    char *out = s->out + begin * s->out_bytes;

    if (s->norm != NULL)
        s->fns->norm(out, s->out_bytes, in, s->in_bytes, s->norm, s->n,
                     end - begin);
    else
        s->fns->softmax(out, s->out_bytes, in, s->in_bytes, s->n, end - begin);
}

/* Runs it, or says what workspace it needs (`bytes` is given). */
static mr_code
program_use(program *p, int out, const mr_kernel_args *a, int32_t axis,
            mr_norm_rows *norm, size_t *bytes)
{
    short_rows s = {.norm = norm};
    mr_over over = {.n = 0};
    mr_block_launch l;

    if (a->out[0].size == 0)
        return MR_OK;
    program_launch(p, out, a, axis, &l);
    if (bytes != NULL) {
        if (norm == NULL)
            *bytes = mr__softmax_columns_bytes((mr_dtype)p->dtype[0], &l);
        if (*bytes == 0)
            *bytes = mr__cpu_block_workspace(&p->code, &l);
        return MR_OK;
    }
    if (norm == NULL &&
        mr__softmax_columns((mr_dtype)p->dtype[0], &l, a->workspace))
        return MR_OK;
    if (!short_rows_of(p, &l, &s))
        return mr__cpu_run_block(&p->code, &l, a->workspace);
    if (norm != NULL) {
        const mr_norm_params *n = a->params;

        norm->weight = n->has_weight ? l.in[1].data : NULL;
        norm->bias = n->has_bias ? l.in[1 + n->has_weight].data : NULL;
    }
    mr__over_add(&over, s.in);
    mr__over_add(&over, s.out);
    mr__cpu_for_over(&over, s.n_rows,
                     mr__cpu_grain((norm != NULL ? 0.25 : 0.7) * (double)s.n),
                     short_rows_piece, &s);
    return MR_OK;
}

/* ---- rows of the table
 * ------------------------------------------------------------ */

static mr_code
softmax_use(const mr_kernel_args *a, size_t *bytes)
{
    int32_t axis = ((const mr_axis_params *)a->params)->axis;
    program p = {0};
    mr_dtype t = a->in[0].dtype, wide = mr__accumulate_dtype(t);
    int x = program_cast(&p, wide, program_input(&p, t));
    int top = program_do(&p, MR_R_MAX, wide, x, -1);
    int e = program_do(&p, MR_K_EXP, wide,
                       program_do(&p, MR_K_SUBTRACT, wide, x, top), -1);
    int sum = program_do(&p, MR_R_SUM, wide, e, -1);
    int y = program_do(&p, MR_K_DIVIDE, wide, e, sum);

    return program_use(&p, program_cast(&p, t, y), a, axis, NULL, bytes);
}

mr_code
mr__cpu_softmax(const mr_kernel_args *a)
{
    return softmax_use(a, NULL);
}

size_t
mr__cpu_softmax_workspace(const mr_kernel_args *a)
{
    size_t bytes = 0;

    softmax_use(a, &bytes);
    return bytes;
}

/* Without the mean's care for overflow, which costs time. */
static int
program_mean(program *p, mr_dtype t, int x, int count)
{
    return program_do(p, MR_K_DIVIDE, t, program_do(p, MR_R_SUM, t, x, -1),
                      count);
}

/* Both norms: `centre` takes the mean away first. */
static mr_code
norm_use(const mr_kernel_args *a, bool centre, size_t *bytes)
{
    const mr_norm_params *n = a->params;
    const mr_kernel_view *rows = &a->in[0];
    mr_dtype t = rows->dtype, wide = mr__accumulate_dtype(t);
    int64_t n_row = rows->ndim > 0 ? rows->dim[rows->ndim - 1] : 1;
    program p = {0};
    int x = program_input(&p, t);
    int weight = n->has_weight ? program_input(&p, t) : -1;
    int bias = n->has_bias ? program_input(&p, t) : -1;
    int eps = program_number(&p, wide, n->eps), square, scale;
    int count = program_number(&p, wide, (double)n_row);

    mr_norm_rows short_norm = {
        .eps = &p.value[0], .count = &p.value[1], .centre = centre};

    x = program_cast(&p, wide, x);
    if (centre)
        x = program_do(&p, MR_K_SUBTRACT, wide, x,
                       program_mean(&p, wide, x, count));
    square = program_do(&p, MR_K_MULTIPLY, wide, x, x);
    scale = program_mean(&p, wide, square, count);
    scale = program_do(&p, MR_K_ADD, wide, scale, eps);
    scale = program_do(&p, MR_K_RSQRT, wide, scale, -1);
    x = program_do(&p, MR_K_MULTIPLY, wide, x, scale);
    if (weight >= 0)
        x = program_do(&p, MR_K_MULTIPLY, wide, x,
                       program_cast(&p, wide, weight));
    if (bias >= 0)
        x = program_do(&p, MR_K_ADD, wide, x, program_cast(&p, wide, bias));
    return program_use(&p, program_cast(&p, t, x), a, a->out[0].ndim - 1,
                       &short_norm, bytes);
}

mr_code
mr__cpu_layer_norm(const mr_kernel_args *a)
{
    return norm_use(a, true, NULL);
}

size_t
mr__cpu_layer_norm_workspace(const mr_kernel_args *a)
{
    size_t bytes = 0;

    norm_use(a, true, &bytes);
    return bytes;
}

mr_code
mr__cpu_rms_norm(const mr_kernel_args *a)
{
    return norm_use(a, false, NULL);
}

size_t
mr__cpu_rms_norm_workspace(const mr_kernel_args *a)
{
    size_t bytes = 0;

    norm_use(a, false, &bytes);
    return bytes;
}
