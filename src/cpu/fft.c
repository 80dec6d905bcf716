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

#include "base/integers.h"
#include "base/pool.h"
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
    mr_fft_slots *slots;
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
    return mr__whole_lines((size_t)n * 2 * j->item);
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
            j->panels =
                j->core <= ROWS_MAX && j->n_lines >= few &&
                (j->kind != C2C || !mr__fft_is_row(j->core, j->is_double));
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
    bool untangled = j->kind == R2C && j->even;
    mr_fft_ends e = {from, untangled ? NULL : to, j->scale};
    void *x = a, *y;

    if (j->kind == C2R) {
        e.from = NULL;
        t->load(a, j->even ? j->core + 1 : j->core, from);
        if (j->even)
            t->tangle(b, a, j->real->roots, j->core);
        else
            t->mirror(a, j->core);
        x = j->even ? b : a;
    }
    x = mr__fft_panel_ends(j->plan, &e, x, a, b);
    if (untangled) {
        y = x == a ? b : a;
        t->untangle(y, x, j->real->roots, j->core);
        t->store(to, to->n, y, j->scale);
    }
}

/* Panels [begin, end), with scratch of one's own. */
static void
panels_work(const fft_job *j, int64_t begin, int64_t end, char *a)
{
    mr_fft_lines from = lines_from(j), to = lines_to(j);
    int64_t run, per_run = panels_in_run(j, &run);
    mr_walk w = j->walk;

    for (int64_t u = begin; u < end; u++) {
        int64_t at = u % per_run * j->lanes, left = run - at;

        lines_point(j, &w, u / per_run * run + at,
                    left < j->lanes ? left : j->lanes, &from, &to);
        panel_do(j, &from, &to, a, a + j->scratch / 2);
    }
}

static void
panels_piece(void *ctx, int64_t begin, int64_t end)
{
    const fft_job *j = ctx;
    int which;
    char *a = mr__fft_slot_take(j->slots, &which);

    panels_work(j, begin, end, a);
    mr__fft_slot_drop(j->slots, which);
}

static int64_t
panels_count(const fft_job *j)
{
    int64_t run, per_run = panels_in_run(j, &run);

    return j->n_lines / run * per_run;
}

static void
panels_run(fft_job *j)
{
    double ns = (double)mr__fft_panel_blocks(j->core) *
                (10.0 + 3.0 * log2((double)(j->core + 1)));

    mr__cpu_for(panels_count(j), mr__cpu_grain(ns), panels_piece, j);
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
lines_work(const fft_job *j, int64_t begin, int64_t end, char *memory)
{
    int64_t in = from_reals(j) * (int64_t)j->item;
    int64_t out = to_reals(j) * (int64_t)j->item;
    mr_fft_lines from = lines_from(j), to = lines_to(j);
    mr_walk w = j->walk;

    from.n_lanes = to.n_lanes = 1;
    mr__walk_seek(&w, begin);
    for (int64_t i = begin; i < end; i++, mr__walk_next(&w)) {
        from.line[0] = j->from + w.offset[0] * in;
        to.line[0] = j->to + w.offset[1] * out;
        if (j->kind == C2C && j->plan->row)
            mr__fft_row_run(j->plan, &from, &to, j->scale, memory);
        else
            line_do(j, &from, &to, memory);
    }
}

static void
lines_piece(void *ctx, int64_t begin, int64_t end)
{
    const fft_job *j = ctx;
    int which;
    char *memory = mr__fft_slot_take(j->slots, &which);

    lines_work(j, begin, end, memory);
    mr__fft_slot_drop(j->slots, which);
}

static void
lines_run(fft_job *j)
{
    double n = (double)j->core;

    if (j->shared)
        lines_work(j, 0, j->n_lines, j->memory);
    else
        mr__cpu_for(j->n_lines, mr__cpu_grain(n * (1.0 + 0.2 * log2(n))),
                    lines_piece, j);
}

/* ---- one axis
 * ---------------------------------------------------------------- */

/* Tables and plans; job_drop in any case. */
static mr_code
job_ready(fft_job *j)
{
    j->t = mr__fft_tier(j->is_double);
    j->plan = mr__fft_plan(j->panels ? MR_FFT_PANEL : MR_FFT_LINE, j->core,
                           j->is_double);
    if (j->even)
        j->real = mr__fft_plan(MR_FFT_REAL, j->n, j->is_double);
    return j->plan && (!j->even || j->real) ? MR_OK : MR_E_MEMORY;
}

static void
job_drop(fft_job *j)
{
    mr__fft_plan_release(j->plan);
    mr__fft_plan_release(j->real);
}

static mr_code
job_run(fft_job *j, char *workspace)
{
    mr_code rc = job_ready(j);
    mr_fft_slots slots;

    if (rc == MR_OK) {
        j->memory = workspace;
        j->slots = &slots;
        if (!j->shared)
            mr__fft_slots_init(&slots, workspace, j->scratch);
        if (j->panels)
            panels_run(j);
        else
            lines_run(j);
    }
    job_drop(j);
    return rc;
}

/* ---- images ----------------------------------------------------------------
 * Several axes of many arrays that fit the second-level cache: a thread
 * transforms all axes of one while it is there.  Axis by axis, 16 of 256 x 256
 * went to memory and back for each. */

enum { IMAGE_BYTES = 640 << 10, IMAGE_AXES = 4 };

typedef struct images {
    fft_job job[IMAGE_AXES]; /* of the first one, axis by axis */
    int n_jobs;
    mr_walk walk; /* over images: operand 0 from, 1 to */
    int64_t count, from_item, to_item;
    size_t scratch;
    mr_fft_slots *slots;
} images;

/* The axes from `first` on. */
static mr_kernel_view
view_inner(const mr_kernel_view *v, int32_t first)
{
    mr_kernel_view inner = *v;

    inner.ndim -= first;
    inner.dim += first;
    inner.stride += first;
    inner.size = 1;
    for (int32_t k = 0; k < inner.ndim; k++)
        inner.size *= inner.dim[k];
    return inner;
}

/* An axis of one image goes the way it would go in all of them, in panels that
 * are as full: whoever shares the images, results are the same. */
static bool
image_job(fft_job *j, const mr_kernel_args *all, const mr_kernel_view *all_in,
          const mr_kernel_args *one, const mr_kernel_view *one_in, int32_t axis,
          int32_t first)
{
    fft_job whole;

    job_init(&whole, all, all_in, axis);
    job_init(j, one, one_in, axis - first);
    return !whole.shared && !j->shared && j->panels == whole.panels &&
           (j->n_lines % j->lanes == 0 || j->n_lines >= 4 * j->lanes);
}

/* False where axis by axis is better. */
static bool
images_plan(images *m, const mr_kernel_args *a)
{
    uint32_t axes = ((const mr_fft_params *)a->params)->axes;
    int32_t first = __builtin_ctz(axes);
    mr_kernel_view all = a->in[0], from = view_inner(&a->in[0], first);
    mr_kernel_view to = view_inner(&a->out[0], first), in = from;
    mr_kernel_args one = *a;

    m->n_jobs = 0;
    m->scratch = 0;
    m->from_item = mr__dtype_size(from.dtype);
    m->to_item = mr__dtype_size(to.dtype);
    if (__builtin_popcount(axes) < 2 || __builtin_popcount(axes) > IMAGE_AXES ||
        to.size * m->to_item > IMAGE_BYTES)
        return false;
    mr__walk_init(&m->walk, first, a->in[0].dim, 0);
    mr__walk_add(&m->walk, first, a->in[0].stride, 0);
    mr__walk_add(&m->walk, first, a->out[0].stride, 0);
    m->count = mr__walk_size(&m->walk);
    one.in = &from;
    one.out = &to;
    while (axes) {
        fft_job *j = &m->job[m->n_jobs++];

        if (!image_job(j, a, &all, &one, &in, axis_next(&axes), first))
            return false;
        m->scratch = j->scratch > m->scratch ? j->scratch : m->scratch;
        all = a->out[0];
        in = to;
    }
    return m->count > 1;
}

static void
images_piece(void *ctx, int64_t begin, int64_t end)
{
    images *m = ctx;
    mr_walk w = m->walk;
    int which;
    char *memory = mr__fft_slot_take(m->slots, &which);

    mr__walk_seek(&w, begin);
    for (int64_t i = begin; i < end; i++, mr__walk_next(&w))
        for (int k = 0; k < m->n_jobs; k++) {
            fft_job j = m->job[k];

            j.from +=
                k == 0 ? w.offset[0] * m->from_item : w.offset[1] * m->to_item;
            j.to += w.offset[1] * m->to_item;
            if (j.panels)
                panels_work(&j, 0, panels_count(&j), memory);
            else
                lines_work(&j, 0, j.n_lines, memory);
        }
    mr__fft_slot_drop(m->slots, which);
}

static mr_code
images_run(images *m, char *workspace)
{
    mr_code rc = MR_OK;
    mr_fft_slots slots;

    for (int k = 0; k < m->n_jobs && rc == MR_OK; k++)
        rc = job_ready(&m->job[k]);
    if (rc == MR_OK) {
        m->slots = &slots;
        mr__fft_slots_init(&slots, workspace, m->scratch);
        mr__cpu_for(m->count, 1, images_piece, m);
    }
    for (int k = 0; k < m->n_jobs; k++)
        job_drop(&m->job[k]);
    return rc;
}

/* ---- the rows of the table
 * --------------------------------------------------- */

static bool
images_pay(const images *m)
{
    int threads = mr__pool_threads();

    return m->count % threads == 0 || m->count >= 8 * threads;
}

mr_code
mr__cpu_fft(const mr_kernel_args *a)
{
    uint32_t axes = ((const mr_fft_params *)a->params)->axes;
    mr_kernel_view in = a->in[0];
    images m;

    if (a->out[0].size == 0)
        return MR_OK;
    if (images_plan(&m, a) && images_pay(&m))
        return images_run(&m, a->workspace);
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
