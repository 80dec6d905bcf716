/* SPDX-License-Identifier: Apache-2.0
 *
 * fft_line.c -- transforms of panels, and of single long lines.
 *
 * A line of n = n1 n2 numbers is a matrix (n1, n2).  Step 1: V columns at a
 * time are a panel; its transform, times twiddles, is turned so that V rows
 * become a panel of step 2.  Step 2: the transform of each such panel, whose
 * numbers are stored V side by side.  Memory is read and written twice, always
 * V numbers in a row.  (Bailey, "FFTs in external or hierarchical memory",
 * 1990.)  A length with a large prime goes through a convolution of a smooth
 * length (Bluestein, 1970).
 *
 * Which thread does a panel does not show in the result.
 * Called by: fft.c, fft_plan.c.  Calls: the tier's kernels.
 */
#include <math.h>
#include <string.h>

#include "base/integers.h"
#include "base/pool.h"
#include "cpu/cpu.h"
#include "cpu/fft.h"

enum { MAX_SLOTS = 64, BLOCK = MR_FFT_BLOCK_BYTES };

/* ---- scratch
 * ----------------------------------------------------------------- */

static int
slots_count(void)
{
    int n = mr__pool_threads();

    return n < MAX_SLOTS ? n : MAX_SLOTS;
}

size_t
mr__fft_slots_bytes(size_t bytes)
{
    return (size_t)slots_count() * mr__whole_lines(bytes);
}

void
mr__fft_slots_init(mr_fft_slots *s, char *memory, size_t bytes)
{
    s->memory = memory;
    s->bytes = mr__whole_lines(bytes);
    s->n = slots_count();
    /* relaxed: the loop that shares it starts afterwards */
    for (int i = 0; i < MAX_SLOTS; i++)
        atomic_store_explicit(&s->taken[i], 0, memory_order_relaxed);
}

/* On a machine with more threads than slots some wait here for others, which
 * compute and never wait. */
char *
mr__fft_slot_take(mr_fft_slots *s, int *which)
{
    for (int i = 0;; i = i + 1 < s->n ? i + 1 : 0) {
        /* acquire pairs with the release of mr__fft_slot_drop */
        if (atomic_exchange_explicit(&s->taken[i], 1, memory_order_acquire) ==
            0) {
            *which = i;
            return s->memory + (size_t)i * s->bytes;
        }
    }
}

void
mr__fft_slot_drop(mr_fft_slots *s, int which)
{
    /* release pairs with the acquire of mr__fft_slot_take */
    atomic_store_explicit(&s->taken[which], 0, memory_order_release);
}

/* ---- panels
 * ------------------------------------------------------------------ */

/* Passes [first, end) of a plan. */
static void *
passes_some(const mr_fft_tier *t, const mr_fft_plan *p, int first, int end,
            void *x, void *a, void *b)
{
    for (int i = first; i < end; i++) {
        void *y = x == a ? b : a;

        t->pass(&p->pass[i], x, y);
        x = y;
    }
    return x;
}

static void *
passes_run(const mr_fft_tier *t, const mr_fft_plan *p, void *x, void *a,
           void *b)
{
    return passes_some(t, p, 0, p->n_pass, x, a, b);
}

void *
mr__fft_panel(const mr_fft_plan *p, void *x, void *a, void *b)
{
    const mr_fft_tier *t = mr__fft_tier(p->is_double);
    int64_t n = p->n, m;
    char *y;

    if (!p->inner)
        return passes_run(t, p, x, a, b);
    m = p->inner->n;
    y = x == a ? b : a;
    t->multiply(y, x, p->chirp, n, 0);
    memset(y + n * BLOCK, 0, (size_t)(m - n) * BLOCK);
    x = passes_run(t, p->inner, y, a, b);
    y = x == a ? b : a;
    t->multiply(y, x, p->spectrum, m, MR_FFT_SWAP_OUT);
    x = passes_run(t, p->inner, y, a, b);
    y = x == a ? b : a;
    t->multiply(y, x, p->chirp, n, MR_FFT_SWAP_IN);
    return y;
}

/* The first pass may load and the last one store. */
void *
mr__fft_panel_ends(const mr_fft_plan *p, const mr_fft_ends *e, void *x, void *a,
                   void *b)
{
    const mr_fft_tier *t = mr__fft_tier(p->is_double);
    int first = 0, last = p->inner ? -1 : p->n_pass - 1;

    if (e->from && last > 0 && t->pass_from(&p->pass[0], e->from, a)) {
        x = a;
        first = 1;
    } else if (e->from) {
        x = a;
        t->load(x, p->n, e->from);
    }
    if (last < 0) {
        x = mr__fft_panel(p, x, a, b);
    } else {
        x = passes_some(t, p, first, last, x, a, b);
        if (e->to && t->pass_to(&p->pass[last], x, e->to, e->scale))
            return NULL;
        x = passes_some(t, p, last, p->n_pass, x, a, b);
    }
    if (e->to)
        t->store(e->to, e->to->n, x, e->scale);
    return x;
}

/* ---- lines
 * ------------------------------------------------------------------- */

typedef struct line_job {
    const mr_fft_line *l;
    const mr_fft_plan *p;
    const mr_fft_tier *t;
    int64_t lanes; /* V */
    size_t item;   /* of a real */
    char *turned;  /* the panels of step 2 */
    char *z;       /* Bluestein: inner->n pairs */
    int places;
    const void *by;
    mr_fft_slots slots;
} line_job;

static int64_t
lanes_of(bool is_double)
{
    return is_double ? 8 : 16;
}

static size_t
panels_bytes(int64_t n1, int64_t n2)
{
    int64_t a = mr__fft_panel_blocks(n1), b = mr__fft_panel_blocks(n2);

    return (size_t)(a > b ? a : b) * 2 * BLOCK;
}

/* Two panels, and a dense line. */
static size_t
row_bytes(int64_t n, bool is_double)
{
    return (size_t)(n / lanes_of(is_double)) * 2 * BLOCK +
           (size_t)n * (is_double ? 16 : 8);
}

size_t
mr__fft_line_bytes(int64_t n, bool is_double, bool shared)
{
    int64_t n1, n2;
    size_t bytes;

    if (mr__fft_is_row(n, is_double))
        return row_bytes(n, is_double);
    mr__fft_split(n, &n1, &n2);
    if (n1 == 0) {
        int64_t m = mr__fft_bluestein_length(n);

        bytes = (size_t)m * (is_double ? 16 : 8);
        return mr__whole_lines(bytes) +
               mr__fft_line_bytes(m, is_double, shared);
    }
    bytes = panels_bytes(n1, n2);
    if (n1 == 1)
        return bytes;
    if (shared)
        bytes = mr__fft_slots_bytes(bytes);
    return bytes +
           (size_t)((n1 - 1) / lanes_of(is_double) + 1) * (size_t)n2 * BLOCK;
}

static void
line_for(line_job *j, int64_t n, double ns, mr_cpu_body *body)
{
    if (j->l->shared)
        mr__cpu_for(n, mr__cpu_grain(ns), body, j);
    else
        body(j, 0, n);
}

static void *
real_at(const line_job *j, const void *p, int64_t i)
{
    return (char *)(uintptr_t)p + i * (int64_t)j->item;
}

/* Columns [c, c + V) of the matrix, as far as they are whole. */
static mr_fft_lines
columns_of(const line_job *j, int64_t c)
{
    const mr_fft_lines *from = &j->l->from;
    int64_t n2 = j->p->n2, left = n2 - c;
    mr_fft_lines f = {.step = n2 * from->step,
                      .im = from->im,
                      .n = from->n / n2,
                      .swap = from->swap};

    f.n_lanes = (int32_t)(left < j->lanes ? left : j->lanes);
    for (int32_t l = 0; l < f.n_lanes; l++)
        f.line[l] = real_at(j, from->line[0], (c + l) * from->step);
    return f;
}

/* They to a panel, with what is there of another row. */
static void
columns_load(const line_job *j, const mr_fft_lines *columns, char *panel,
             int64_t c)
{
    const mr_fft_lines *from = &j->l->from;
    mr_fft_lines f = *columns;
    int64_t row = f.n, rest = from->n % j->p->n2 - c;

    j->t->load(panel, j->p->n1, &f);
    if (row < j->p->n1 && rest > 0) {
        mr_fft_lines some = f;

        for (int32_t l = 0; l < f.n_lanes; l++)
            some.line[l] = real_at(j, f.line[l], row * f.step);
        some.n = 1;
        some.n_lanes = (int32_t)(rest < f.n_lanes ? rest : f.n_lanes);
        j->t->load(panel + row * BLOCK, 1, &some);
    }
    if (from->half && rest >= 0 && rest < f.n_lanes) {
        size_t at = (size_t)rest * j->item + (from->swap ? BLOCK / 2 : 0);

        memcpy(panel + row * BLOCK + at,
               real_at(j, from->line[0], from->n * from->step), j->item);
    }
}

/* The panel x of rows [r, r + V), transformed; their numbers V side by side in
 * the result. */
static void
rows_store(const mr_fft_plan *p, const mr_fft_lines *to, double scale, void *x,
           int64_t r, char *a, char *b)
{
    int64_t item = p->is_double ? 8 : 4, lanes = lanes_of(p->is_double);
    int64_t n1 = p->n1, left = n1 - r, whole = to->n / n1;
    int64_t rest = to->n % n1 - r;
    mr_fft_lines f = {
        .step = n1 * to->step, .im = to->im, .n = whole, .swap = to->swap};
    mr_fft_ends e = {NULL, &f, scale};
    char *at = (char *)to->line[0] + r * to->step * item;
    const char *panel;

    f.n_lanes = (int32_t)(left < lanes ? left : lanes);
    for (int32_t l = 0; l < f.n_lanes; l++)
        f.line[l] = at + l * to->step * item;
    panel = mr__fft_panel_ends(p->second, &e, x, a, b);
    if (rest > 0) {
        for (int32_t l = 0; l < f.n_lanes; l++)
            f.line[l] = (char *)f.line[l] + whole * f.step * item;
        f.n_lanes = (int32_t)(rest < f.n_lanes ? rest : f.n_lanes);
        mr__fft_tier(p->is_double)->store(&f, 1, panel + whole * BLOCK, scale);
    }
}

static void
columns_piece(void *ctx, int64_t begin, int64_t end)
{
    line_job *j = ctx;
    int which;
    char *a = mr__fft_slot_take(&j->slots, &which);
    char *b = a + j->slots.bytes / 2;

    for (int64_t g = begin; g < end; g++) {
        int64_t c = g * j->lanes, left = j->p->n2 - c;
        mr_fft_lines f = columns_of(j, c);
        mr_fft_ends whole = {&f, NULL, 1.0}, there = {NULL, NULL, 1.0};
        void *y;

        if (f.n < j->p->n1)
            columns_load(j, &f, a, c);
        y = mr__fft_panel_ends(j->p->first, f.n < j->p->n1 ? &there : &whole, a,
                               a, b);
        j->t->turn(j->turned, j->p->n2, c,
                   (int32_t)(left < j->lanes ? left : j->lanes), y, j->p->n1,
                   j->p->fine, real_at(j, j->p->coarse, 2 * g * j->p->n1));
    }
    mr__fft_slot_drop(&j->slots, which);
}

static void
rows_piece(void *ctx, int64_t begin, int64_t end)
{
    line_job *j = ctx;
    int which;
    char *a = mr__fft_slot_take(&j->slots, &which);
    char *b = a + j->slots.bytes / 2;

    for (int64_t g = begin; g < end; g++) {
        void *x = j->turned + g * j->p->n2 * BLOCK;

        rows_store(j->p, &j->l->to, j->l->scale, x, g * j->lanes, a, b);
    }
    mr__fft_slot_drop(&j->slots, which);
}

/* About as many nanoseconds as a panel takes. */
static double
panel_ns(int64_t n)
{
    return (double)mr__fft_panel_blocks(n) * (10.0 + 2.0 * log2((double)n));
}

static void
line_split(line_job *j)
{
    const mr_fft_plan *p = j->p;
    size_t scratch = panels_bytes(p->n1, p->n2);

    mr__fft_slots_init(&j->slots, j->l->memory, scratch);
    if (!j->l->shared)
        j->slots.n = 1;
    j->turned = j->l->memory + (size_t)j->slots.n * j->slots.bytes;
    line_for(j, (p->n2 - 1) / j->lanes + 1, panel_ns(p->n1), columns_piece);
    line_for(j, (p->n1 - 1) / j->lanes + 1, panel_ns(p->n2), rows_piece);
}

/* Dense pairs of a line: where it lies, or put into z. */
static const void *
line_dense(const mr_fft_lines *f, int64_t n, size_t item, char *z)
{
    size_t first = f->swap ? item : 0;

    if (f->step == 2 && f->im == 1 && f->n == n)
        return f->line[0];
    memset(z, 0, (size_t)n * 2 * item);
    for (int64_t k = 0; k < f->n + (f->half ? 1 : 0); k++, z += 2 * item) {
        const char *x = (const char *)f->line[0] + k * f->step * (int64_t)item;

        memcpy(z + first, x, item);
        if (k < f->n && f->im != MR_FFT_NO_IM)
            memcpy(z + item - first, x + f->im * (int64_t)item, item);
    }
    return NULL;
}

void
mr__fft_row_run(const mr_fft_plan *p, const mr_fft_lines *from,
                const mr_fft_lines *to, double scale, char *memory)
{
    const mr_fft_tier *t = mr__fft_tier(p->is_double);
    char *a = memory, *b = a + p->n2 * BLOCK, *z = b + p->n2 * BLOCK;
    const void *x = line_dense(from, p->n, p->is_double ? 8 : 4, z);

    t->row(a, x ? x : z, x && from->swap, p->n2, p->fine);
    rows_store(p, to, scale, a, 0, a, b);
}

static void
line_alone(line_job *j)
{
    size_t half = panels_bytes(1, j->p->n2) / 2;
    char *a = j->l->memory, *b = a + half;
    mr_fft_ends e = {&j->l->from, &j->l->to, j->l->scale};

    mr__fft_panel_ends(j->p->second, &e, a, a, b);
}

static void
chirp_piece(void *ctx, int64_t begin, int64_t end)
{
    line_job *j = ctx;
    int64_t n = end < j->p->n ? end : j->p->n;

    if (begin < n)
        j->t->line_load(j->z, &j->l->from, j->p->chirp, begin, n);
    n = begin > j->p->n ? begin : j->p->n;
    if (n < end)
        memset(real_at(j, j->z, 2 * n), 0, (size_t)(end - n) * 2 * j->item);
}

static void
spectrum_piece(void *ctx, int64_t begin, int64_t end)
{
    line_job *j = ctx;

    j->t->line_multiply(j->z, j->z, j->p->spectrum, begin, end,
                        MR_FFT_SWAP_OUT);
}

static void
result_piece(void *ctx, int64_t begin, int64_t end)
{
    line_job *j = ctx;

    j->t->line_store(&j->l->to, j->z, j->p->chirp, MR_FFT_SWAP_IN, begin, end,
                     j->l->scale);
}

static void
line_bluestein(line_job *j)
{
    int64_t m = j->p->inner->n;
    size_t bytes = mr__whole_lines((size_t)m * 2 * j->item);
    mr_fft_line inner = {
        .plan = j->p->inner, .scale = 1.0, .shared = j->l->shared};

    j->z = j->l->memory;
    inner.memory = j->l->memory + bytes;
    inner.from = (mr_fft_lines){
        .line = {j->z}, .n_lanes = 1, .step = 2, .im = 1, .n = m};
    inner.to = inner.from;
    line_for(j, m, 2.0, chirp_piece);
    mr__fft_line_run(&inner);
    line_for(j, m, 1.0, spectrum_piece);
    mr__fft_line_run(&inner);
    line_for(j, j->l->to.n, 2.0, result_piece);
}

void
mr__fft_line_run(const mr_fft_line *l)
{
    line_job j = {.l = l,
                  .p = l->plan,
                  .t = mr__fft_tier(l->plan->is_double),
                  .lanes = lanes_of(l->plan->is_double),
                  .item = l->plan->is_double ? 8 : 4};

    if (l->plan->row)
        mr__fft_row_run(l->plan, &l->from, &l->to, l->scale, l->memory);
    else if (l->plan->inner)
        line_bluestein(&j);
    else if (l->plan->n1 == 1)
        line_alone(&j);
    else
        line_split(&j);
}
