/* SPDX-License-Identifier: Apache-2.0
 *
 * fft.c -- Fourier transforms along axes of arrays.
 *
 * Two ways, by shape alone.  *Panels*: as many lines as a vector has lanes at
 * a time (kernels/fft.h), for short lines and for axes whose lines lie side by
 * side.  *Lines*: one after the other, each as a matrix (fft_line.c), for long
 * ones; few or very long ones share the threads, many are a thread's each.
 *
 * Real transforms of an even length go through the complex one of half the
 * length; odd ones through the complex one of the same length.  Several axes:
 * the last from input to output, the others in place.
 * Called by: device.c.  Calls: fft_line.c, fft_plan.c, the tier's kernels.
 */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"
#include "cpu/fft.h"
#include "ops/params.h"

enum {
    BLOCK = MR_FFT_BLOCK_BYTES,
    LINE_MIN = 64,         /* shorter ones are never matrices */
    ROWS_MAX = 1024,       /* longer rows are lines */
    COLUMNS_MAX = 1 << 16, /* longer columns are lines */
    SHARED_MIN = 1 << 14,  /* the least length of lines that threads share */
    SHARED_ALWAYS = 1 << 17
};

typedef enum fft_kind { C2C, R2C, C2R } fft_kind;

/* The transform along one axis. */
typedef struct fft_job {
    fft_kind kind;
    bool is_double, inverse, even, panels, shared;
    size_t item;                /* of a real */
    int64_t n;                  /* length of the transform */
    int64_t core;               /* of the complex one beneath it */
    int64_t from_n, to_n;       /* numbers along the axis (from_n <= n) */
    int64_t from_step, to_step; /* in numbers of either side */
    double scale;
    char *from, *to;
    mr_walk walk; /* over lines: operand 0 from, 1 to */
    int64_t n_lines, inner, lanes;
    const mr_fft_tier *t;
    mr_fft_plan *plan, *real;
    size_t scratch; /* of a thread (panels, own lines), or of all */
    mr_fft_slots slots;
    char *memory;
} fft_job;

/* ---- what is to do
 * -------------------------------------------------------- */

static fft_kind
kind_of(const mr_kernel_args *a)
{
    if (!mr__dtype_is_complex(a->in[0].dtype))
        return R2C;
    return mr__dtype_is_complex(a->out[0].dtype) ? C2C : C2R;
}

static size_t
pairs_bytes(const fft_job *j, int64_t n)
{
    return ((size_t)n * 2 * j->item + 63) & ~(size_t)63;
}

/* Panels, or lines? */
static void
job_way(fft_job *j, int32_t ndim, const int64_t *dim, int32_t axis)
{
    int64_t n1, n2, few = j->lanes / 2;

    j->inner = 1;
    for (int32_t k = axis + 1; k < ndim; k++)
        j->inner *= dim[k];
    j->panels = true;
    if (j->core >= LINE_MIN) {
        bool columns = j->inner >= few && j->core <= COLUMNS_MAX;

        mr__fft_split(j->core, &n1, &n2);
        if (n1 != 1 && !columns)
            j->panels = j->core <= ROWS_MAX && j->n_lines >= few;
    }
    j->shared =
        !j->panels && (j->core >= SHARED_ALWAYS ||
                       (j->core >= SHARED_MIN && j->n_lines < j->lanes));
}

/* Bytes beside those of the line's transform: the numbers that it reads. */
static size_t
line_extra(const fft_job *j)
{
    return j->kind == C2R ? pairs_bytes(j, j->core + 1) : 0;
}

static void
job_scratch(fft_job *j)
{
    int64_t blocks = mr__fft_panel_blocks(j->core);

    if (j->panels) {
        blocks = blocks > j->core + 1 ? blocks : j->core + 1;
        j->scratch = (size_t)blocks * 2 * BLOCK;
    } else {
        j->scratch = mr__fft_line_bytes(j->core, j->is_double, j->shared) +
                     line_extra(j);
    }
}

/* Along `axis` of the input `in` (data may be NULL: sizes alone). */
static void
job_init(fft_job *j, const mr_kernel_args *a, const mr_kernel_view *in,
         int32_t axis)
{
    const mr_fft_params *p = a->params;
    const mr_kernel_view *out = &a->out[0];
    uint32_t skip = 1U << axis;

    *j = (fft_job){.kind = kind_of(a), .inverse = p->inverse};
    j->is_double = in->dtype == MR_COMPLEX128 || in->dtype == MR_FLOAT64;
    j->item = j->is_double ? 8 : 4;
    j->lanes = j->is_double ? 8 : 16;
    j->n = out->dim[axis];
    if (j->kind == R2C)
        j->n = p->n == MR_INT_NONE ? in->dim[axis] : p->n;
    j->even = j->kind != C2C && j->n % 2 == 0;
    j->core = j->even ? j->n / 2 : j->n;
    j->from_n = j->kind == C2R ? j->n / 2 + 1 : j->n;
    if (j->from_n > in->dim[axis])
        j->from_n = in->dim[axis];
    j->to_n = out->dim[axis];
    j->from_step = in->stride[axis];
    j->to_step = out->stride[axis];
    j->scale = p->scale == MR_FFT_UNSCALED ? 1.0
               : p->scale == MR_FFT_ORTHO  ? 1.0 / sqrt((double)j->n)
                                           : 1.0 / (double)j->n;
    j->from = in->data;
    j->to = out->data;
    mr__walk_init(&j->walk, in->ndim, in->dim, skip);
    mr__walk_add(&j->walk, in->ndim, in->stride, skip);
    mr__walk_add(&j->walk, in->ndim, out->stride, skip);
    mr__walk_merge(&j->walk);
    j->n_lines = mr__walk_size(&j->walk);
    job_way(j, in->ndim, in->dim, axis);
    job_scratch(j);
}

/* The axes of the node from the last to the first, each once. */
static int32_t
axis_next(uint32_t *axes)
{
    int32_t axis = 31 - __builtin_clz(*axes);

    *axes &= ~(1U << axis);
    return axis;
}

static size_t
job_bytes(const fft_job *j)
{
    return j->shared ? j->scratch : mr__fft_slots_bytes(j->scratch);
}

size_t
mr__cpu_fft_workspace(const mr_kernel_args *a)
{
    uint32_t axes = ((const mr_fft_params *)a->params)->axes;
    mr_kernel_view in = a->in[0];
    size_t most = 0;

    if (a->out[0].size == 0)
        return 0;
    while (axes) {
        size_t bytes;
        fft_job j;

        job_init(&j, a, &in, axis_next(&axes));
        bytes = job_bytes(&j);
        most = bytes > most ? bytes : most;
        in = a->out[0];
    }
    return most;
}

double
mr__cpu_fft_cost(const mr_kernel_args *a)
{
    uint32_t axes = ((const mr_fft_params *)a->params)->axes;
    double n = (double)(a->in[0].size > a->out[0].size ? a->in[0].size
                                                       : a->out[0].size);

    return 1000.0 + 4.0 * n * (double)__builtin_popcount(axes);
}

/* ---- lines in memory
 * ------------------------------------------------------ */

/* Reals of a number on either side. */
static int64_t
from_reals(const fft_job *j)
{
    return j->kind == R2C ? 1 : 2;
}

static int64_t
to_reals(const fft_job *j)
{
    return j->kind == C2R ? 1 : 2;
}

/* As the complex transform of length core sees them.  (C2R: as they are.) */
static mr_fft_lines
lines_from(const fft_job *j)
{
    int64_t step = j->from_step * from_reals(j);
    mr_fft_lines f = {.step = step, .im = 1, .n = j->from_n};

    if (j->kind == C2C) {
        f.swap = j->inverse;
    } else if (j->kind == R2C && j->even) {
        f.step = 2 * step;
        f.im = step;
        f.n = j->from_n / 2;
        f.half = j->from_n % 2 != 0;
    } else if (j->kind == R2C) {
        f.im = MR_FFT_NO_IM;
    }
    return f;
}

static mr_fft_lines
lines_to(const fft_job *j)
{
    int64_t step = j->to_step * to_reals(j);
    mr_fft_lines f = {.step = step, .im = 1, .n = j->to_n};

    if (j->kind == C2C) {
        f.swap = j->inverse;
    } else if (j->kind == C2R && j->even) {
        f.step = 2 * step;
        f.im = step;
        f.n = j->core;
        f.swap = true;
    } else if (j->kind == C2R) {
        f.im = MR_FFT_NO_IM;
    }
    return f;
}

/* Lines [first, first + count) as lanes. */
static void
lines_point(const fft_job *j, mr_walk *w, int64_t first, int64_t count,
            mr_fft_lines *from, mr_fft_lines *to)
{
    int64_t in = from_reals(j) * (int64_t)j->item;
    int64_t out = to_reals(j) * (int64_t)j->item;

    from->n_lanes = to->n_lanes = (int32_t)count;
    mr__walk_seek(w, first);
    for (int64_t l = 0; l < count; l++) {
        from->line[l] = j->from + w->offset[0] * in;
        to->line[l] = j->to + w->offset[1] * out;
        mr__walk_next(w);
    }
}

/* ---- panels
 * ------------------------------------------------------------------ */

/* Groups of lanes start anew at each run of columns, where runs are long. */
static int64_t
panels_in_run(const fft_job *j, int64_t *run)
{
    *run = j->inner >= j->lanes / 2 ? j->inner : j->n_lines;
    return (*run - 1) / j->lanes + 1;
}

static void
panel_do(const fft_job *j, const mr_fft_lines *from, const mr_fft_lines *to,
         char *a, char *b)
{
    const mr_fft_tier *t = j->t;
    int64_t n = to->n;
    void *x = a;

    if (j->kind == C2R) {
        t->load(a, j->even ? j->core + 1 : j->core, from);
        if (j->even)
            t->tangle(b, a, j->real->roots, j->core);
        else
            t->mirror(a, j->core);
        x = j->even ? b : a;
    } else {
        t->load(a, j->core, from);
    }
    x = mr__fft_panel(j->plan, x, a, b);
    if (j->kind == R2C && j->even) {
        void *y = x == a ? b : a;

        t->untangle(y, x, j->real->roots, j->core);
        x = y;
    }
    t->store(to, n, x, j->scale);
}

static void
panels_piece(void *ctx, int64_t begin, int64_t end)
{
    fft_job *j = ctx;
    mr_fft_lines from = lines_from(j), to = lines_to(j);
    int64_t run, per_run = panels_in_run(j, &run);
    mr_walk w = j->walk;
    int which;
    char *a = mr__fft_slot_take(&j->slots, &which);

    for (int64_t u = begin; u < end; u++) {
        int64_t at = u % per_run * j->lanes, left = run - at;

        lines_point(j, &w, u / per_run * run + at,
                    left < j->lanes ? left : j->lanes, &from, &to);
        panel_do(j, &from, &to, a, a + j->scratch / 2);
    }
    mr__fft_slot_drop(&j->slots, which);
}

static void
panels_run(fft_job *j)
{
    int64_t run, per_run = panels_in_run(j, &run);
    double ns = (double)mr__fft_panel_blocks(j->core) *
                (10.0 + 3.0 * log2((double)(j->core + 1)));

    mr__cpu_for(j->n_lines / run * per_run, mr__cpu_grain(ns), panels_piece, j);
}

/* ---- lines
 * ------------------------------------------------------------------- */

typedef struct line_step {
    const fft_job *j;
    char *z; /* where C2R puts what the line's transform reads */
    const mr_fft_lines *from, *to;
} line_step;

static void
tangle_piece(void *ctx, int64_t begin, int64_t end)
{
    const line_step *s = ctx;
    const fft_job *j = s->j;

    j->t->line_tangle(s->z, s->from->line[0], s->from->step, s->from->n,
                      j->real->roots, j->core, begin, end);
}

static void
untangle_piece(void *ctx, int64_t begin, int64_t end)
{
    const line_step *s = ctx;
    const fft_job *j = s->j;

    j->t->line_untangle(s->to->line[0], s->to->step, j->real->roots, j->core,
                        begin, end, 1.0);
}

static void
step_for(line_step *s, int64_t n, mr_cpu_body *body)
{
    if (s->j->shared)
        mr__cpu_for(n, mr__cpu_grain(3.0), body, s);
    else
        body(s, 0, n);
}

static void
line_do(const fft_job *j, const mr_fft_lines *from, const mr_fft_lines *to,
        char *memory)
{
    mr_fft_line l = {.plan = j->plan,
                     .from = *from,
                     .to = *to,
                     .scale = j->scale,
                     .shared = j->shared,
                     .memory = memory + line_extra(j)};
    line_step s = {j, memory, from, to};

    if (j->kind == C2R) {
        if (j->even)
            step_for(&s, j->core / 2 + 1, tangle_piece);
        else
            j->t->line_mirror(memory, from->line[0], from->step, from->n,
                              j->core);
        l.from = (mr_fft_lines){.line = {memory},
                                .n_lanes = 1,
                                .step = 2,
                                .im = 1,
                                .n = j->core,
                                .swap = j->even};
    }
    if (j->kind == R2C && j->even)
        l.to.n = j->core;
    mr__fft_line_run(&l);
    if (j->kind == R2C && j->even)
        step_for(&s, j->core / 2 + 1, untangle_piece);
}

static void
lines_piece(void *ctx, int64_t begin, int64_t end)
{
    fft_job *j = ctx;
    mr_fft_lines from = lines_from(j), to = lines_to(j);
    mr_walk w = j->walk;
    int which;
    char *memory = mr__fft_slot_take(&j->slots, &which);

    for (int64_t i = begin; i < end; i++) {
        lines_point(j, &w, i, 1, &from, &to);
        line_do(j, &from, &to, memory);
    }
    mr__fft_slot_drop(&j->slots, which);
}

static void
lines_run(fft_job *j)
{
    mr_fft_lines from = lines_from(j), to = lines_to(j);
    mr_walk w = j->walk;

    if (!j->shared) {
        mr__cpu_for(j->n_lines,
                    mr__cpu_grain((double)j->core *
                                  (1.0 + 0.2 * log2((double)j->core))),
                    lines_piece, j);
        return;
    }
    for (int64_t i = 0; i < j->n_lines; i++) {
        lines_point(j, &w, i, 1, &from, &to);
        line_do(j, &from, &to, j->memory);
    }
}

/* ---- the rows of the table
 * --------------------------------------------------- */

static mr_code
job_run(fft_job *j, char *workspace)
{
    mr_code rc = MR_OK;

    j->t = mr__fft_tier(j->is_double);
    j->plan = mr__fft_plan(j->panels ? MR_FFT_PANEL : MR_FFT_LINE, j->core,
                           j->is_double);
    if (j->even)
        j->real = mr__fft_plan(MR_FFT_REAL, j->n, j->is_double);
    if (!j->plan || (j->even && !j->real)) {
        rc = MR_E_MEMORY;
    } else {
        j->memory = workspace;
        if (!j->shared)
            mr__fft_slots_init(&j->slots, workspace, j->scratch);
        if (j->panels)
            panels_run(j);
        else
            lines_run(j);
    }
    mr__fft_plan_release(j->plan);
    mr__fft_plan_release(j->real);
    return rc;
}

mr_code
mr__cpu_fft(const mr_kernel_args *a)
{
    uint32_t axes = ((const mr_fft_params *)a->params)->axes;
    mr_kernel_view in = a->in[0];

    if (a->out[0].size == 0)
        return MR_OK;
    while (axes) {
        mr_code rc;
        fft_job j;

        job_init(&j, a, &in, axis_next(&axes));
        rc = job_run(&j, a->workspace);
        if (rc != MR_OK)
            return rc;
        in = a->out[0];
    }
    return MR_OK;
}
