/* SPDX-License-Identifier: Apache-2.0
 *
 * fft_plan.c -- plans of Fourier transforms, and the cache that keeps them.
 *
 * Roots of unity are computed in double from the nearest eighth of the circle,
 * with the rounding error of the angle put back, so they are exact to the last
 * place of either type and have the circle's symmetries.
 *
 * The cache is one list, newest first, under one leaf lock; plans are made and
 * freed outside of it.  It is bounded by count and bytes.  A plan in use
 * outlives its place there.
 * Called by: fft.c, fft_line.c.
 */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/integers.h"
#include "base/lock.h"
#include "cpu/fft.h"
#include "marram/compile.h"

enum {
    MAX_PLANS = 128,
    LINE_MIN_FACTOR = 8,
    ROW_MAX = 4096 /* numbers of a row, which is to stay in cache */
};
#define MAX_BYTES ((int64_t)128 << 20)

/* ---- roots of unity
 * --------------------------------------------------------- */

/* pi / 4 in two doubles. */
#define EIGHTH      0x1.921fb54442d18p-1
#define EIGHTH_REST 0x1.1a62633145c07p-55

/* exp(-2 pi i k / n), 0 <= k < n. */
static void
root_of(int64_t k, int64_t n, double *re, double *im)
{
    int64_t octant = 8 * k / n, r = 8 * k - octant * n;
    double t, rest, angle, error, s, c, s0, c0;

    if (octant & 1)
        r = n - r;
    t = (double)r / (double)n;
    rest = fma(-t, (double)n, (double)r) / (double)n;
    angle = t * EIGHTH;
    error = fma(t, EIGHTH, -angle) + t * EIGHTH_REST + rest * EIGHTH;
    s0 = sin(angle);
    c0 = cos(angle);
    s = s0 + error * c0;
    c = c0 - error * s0;
    if ((octant + 1) & 2) { /* octants 1, 2, 5, 6 */
        double swap = s;

        s = c;
        c = swap;
    }
    *re = octant >= 2 && octant <= 5 ? -c : c;
    *im = octant >= 4 ? s : -s;
}

/* Pair i of a table in its type. */
static void
pair_set(void *table, bool is_double, int64_t i, double re, double im)
{
    if (is_double) {
        ((double *)table)[2 * i] = re;
        ((double *)table)[2 * i + 1] = im;
    } else {
        ((float *)table)[2 * i] = (float)re;
        ((float *)table)[2 * i + 1] = (float)im;
    }
}

static void
root_set(void *table, bool is_double, int64_t i, int64_t k, int64_t n)
{
    double re, im;

    root_of(k, n, &re, &im);
    pair_set(table, is_double, i, re, im);
}

/* ---- factors
 * ---------------------------------------------------------------- */

/* Radices in order; what is left is 1, or has a prime that is too large. Powers
 * of two go in as few passes as there can be, up to 16 at a time and alike. */
static int64_t
radices(int64_t n, int32_t *radix, int *count)
{
    int twos = 0, i = 0;

    while (n % 2 == 0) {
        n /= 2;
        twos++;
    }
    for (int left = (twos + 3) / 4; left > 0; left--) {
        int some = (twos - 1) / left + 1;

        radix[i++] = 1 << some;
        twos -= some;
    }
    for (int32_t r = 3; r <= MR_FFT_MAX_RADIX; r += 2)
        for (; n % r == 0; n /= r)
            radix[i++] = r;
    *count = i;
    return n;
}

bool
mr__fft_is_rough(int64_t n)
{
    int32_t radix[MR_FFT_MAX_PASSES];
    int count;

    return radices(n, radix, &count) != 1;
}

int64_t
mr__fft_bluestein_length(int64_t n)
{
    static const int64_t heads[] = {8, 9, 10, 12, 15};
    int64_t best = INT64_MAX;

    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        int64_t m = heads[i];

        while (m < 2 * n - 1)
            m *= 2;
        best = m < best ? m : best;
    }
    return best;
}

int64_t
mr__fft_panel_blocks(int64_t n)
{
    return mr__fft_is_rough(n) ? mr__fft_bluestein_length(n) : n;
}

/* Work of a panel of length n, in a unit of its own. */
static double
panel_cost(int64_t n)
{
    static const double by_radix[17] = {0.0, 0.0, 1.0, 1.5, 1.3, 2.2,
                                        0.0, 3.2, 1.8, 0.0, 0.0, [16] = 2.4};
    int32_t radix[MR_FFT_MAX_PASSES];
    double cost = 1.0;
    int count;

    if (radices(n, radix, &count) != 1) {
        int64_t m = mr__fft_bluestein_length(n);

        return 2.0 * panel_cost(m) + 3.0 * (double)m;
    }
    for (int i = 0; i < count; i++)
        cost += radix[i] <= 8 || radix[i] == 16 ? by_radix[radix[i]]
                                                : 0.6 * radix[i];
    return cost * (double)n;
}

/* As with the smaller panels, so that the choice is one for both types. */
enum { COST_LANES = 8 };

/* `count` transforms of length n, as panels. */
static double
step_cost(int64_t n, int64_t count)
{
    int64_t panels = (count - 1) / COST_LANES + 1;

    return (double)panels * (panel_cost(n) + (double)n);
}

void
mr__fft_split(int64_t n, int64_t *n1, int64_t *n2)
{
    double best = panel_cost(n), bluestein;

    *n1 = 1;
    *n2 = n;
    for (int64_t d = LINE_MIN_FACTOR; d <= n / d; d++)
        if (n % d == 0) {
            double cost = step_cost(d, n / d) + step_cost(n / d, d);

            if (cost <= best) {
                best = cost;
                *n1 = d;
                *n2 = n / d;
            }
        }
    /* Large primes: a convolution of lines when no split into panels does
     * better. */
    if (n < 256 || !mr__fft_is_rough(n))
        return;
    bluestein = 2.0 * (double)mr__fft_bluestein_length(n) / COST_LANES;
    bluestein *= 3.0 + 0.6 * log2((double)n);
    if (bluestein < best)
        *n1 = 0;
}

bool
mr__fft_is_row(int64_t n, bool is_double)
{
    int64_t lanes = is_double ? 8 : 16;

    return n % (lanes * lanes) == 0 && n <= ROW_MAX &&
           !mr__fft_is_rough(n / lanes);
}

/* ---- making
 * ----------------------------------------------------------------- */

/* Tables in one block: the first call counts, the second hands out. */
typedef struct tables {
    char *at;
    size_t bytes;
} tables;

static void *
table_new(tables *t, int64_t pairs, bool is_double)
{
    size_t bytes = (size_t)pairs * (is_double ? 16 : 8);
    void *p = t->at ? t->at + t->bytes : NULL;

    t->bytes += mr__whole_lines(bytes);
    return p;
}

/* Allocations of a plan, which lives as long as the cache likes. */
static int64_t
plan_blocks(const mr_fft_plan *p)
{
    return p->pass ? 3 : 2;
}

static void
plan_free(mr_fft_plan *p)
{
    if (p->made)
        mr__alloc_cached(-plan_blocks(p));
    mr__fft_plan_release(p->inner);
    mr__fft_plan_release(p->first);
    mr__fft_plan_release(p->second);
    mr__dealloc(p->memory);
    mr__dealloc(p->pass);
    mr__dealloc(p);
}

void
mr__fft_plan_release(mr_fft_plan *p)
{
    /* acq_rel: the last one sees what every other holder did */
    if (p && atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) == 1)
        plan_free(p);
}

static void
pass_tables(mr_fft_plan *p, mr_fft_pass *f, tables *t)
{
    int64_t r = f->radix, i = 0;
    void *w = table_new(t, f->m * (r - 1), p->is_double);
    void *root = r % 2 ? table_new(t, r, p->is_double) : NULL;

    if (!t->at)
        return;
    f->w = w;
    f->root = root;
    for (int64_t q = 0; q < f->m; q++)
        for (int64_t k = 1; k < r; k++)
            root_set(w, p->is_double, i++, q * k, f->m * r);
    for (int64_t k = 0; root && k < r; k++) {
        double re, im;

        root_of(k, r, &re, &im);
        pair_set(root, p->is_double, k, re, -im);
    }
}

/* j^2 mod 2n, j = 0, 1, ... */
static void
chirp_fill(mr_fft_plan *p)
{
    int64_t square = 0;

    for (int64_t j = 0; j < p->n; j++) {
        root_set(p->chirp, p->is_double, j, square, 2 * p->n);
        square += 2 * j + 1;
        square -= square >= 2 * p->n ? 2 * p->n : 0;
        square -= square >= 2 * p->n ? 2 * p->n : 0;
    }
}

/* The conjugate chirp at j and, the other way round, at m - j. */
static void
conjugates_fill(mr_fft_plan *p, int64_t m)
{
    for (int64_t j = 0; j < p->n; j++) {
        double re, im;

        if (p->is_double) {
            re = ((const double *)p->chirp)[2 * j];
            im = ((const double *)p->chirp)[2 * j + 1];
        } else {
            re = (double)((const float *)p->chirp)[2 * j];
            im = (double)((const float *)p->chirp)[2 * j + 1];
        }
        pair_set(p->spectrum, p->is_double, j, re, -im);
        if (j > 0)
            pair_set(p->spectrum, p->is_double, m - j, re, -im);
    }
}

/* The conjugate chirp, both ways round, divided by the length, transformed:
 * as one line, with the kernels that will use it. */
static mr_code
spectrum_fill(mr_fft_plan *p)
{
    int64_t m = p->inner->n;
    size_t item = p->is_double ? 16 : 8, bytes;
    mr_fft_plan *line = mr__fft_plan(MR_FFT_LINE, m, p->is_double);
    mr_fft_line run = {.plan = line, .scale = 1.0 / (double)m};
    char *memory;

    if (!line)
        return MR_E_MEMORY;
    bytes = mr__fft_line_bytes(m, p->is_double, false);
    memory = mr__alloc(bytes + 64);
    if (memory) {
        memset(p->spectrum, 0, (size_t)m * item);
        conjugates_fill(p, m);
        run.from = (mr_fft_lines){
            .line = {p->spectrum}, .n_lanes = 1, .step = 2, .im = 1, .n = m};
        run.to = run.from;
        run.memory = memory + (64 - (uintptr_t)memory % 64) % 64;
        mr__fft_line_run(&run);
    }
    mr__dealloc(memory);
    mr__fft_plan_release(line);
    return memory ? MR_OK : MR_E_MEMORY;
}

static void
bluestein_tables(mr_fft_plan *p, tables *t)
{
    p->chirp = table_new(t, p->n, p->is_double);
    p->spectrum = table_new(t, p->inner->n, p->is_double);
    if (t->at)
        chirp_fill(p);
}

static void
row_tables(mr_fft_plan *p, tables *t)
{
    int64_t lanes = p->n1;

    p->fine = table_new(t, p->n, p->is_double);
    if (!t->at)
        return;
    for (int64_t j = 0; j < p->n2; j++)
        for (int64_t k = 0; k < lanes; k++) {
            int64_t at = (j / lanes * lanes + k) * 2 * lanes + j % lanes;
            double re, im;

            root_of(j * k, p->n, &re, &im);
            if (p->is_double) {
                ((double *)p->fine)[at] = re;
                ((double *)p->fine)[at + lanes] = im;
            } else {
                ((float *)p->fine)[at] = (float)re;
                ((float *)p->fine)[at + lanes] = (float)im;
            }
        }
}

static void
split_tables(mr_fft_plan *p, tables *t)
{
    int64_t lanes = p->is_double ? 8 : 16;
    int64_t groups = (p->n2 - 1) / lanes + 1;

    p->fine = table_new(t, p->n1 * lanes, p->is_double);
    p->coarse = table_new(t, p->n1 * groups, p->is_double);
    if (!t->at)
        return;
    for (int64_t k = 0; k < p->n1; k++)
        for (int64_t l = 0; l < lanes; l++) {
            double re, im;

            root_of(l < p->n2 ? k * l : 0, p->n, &re, &im);
            if (p->is_double) {
                ((double *)p->fine)[2 * k * lanes + l] = re;
                ((double *)p->fine)[(2 * k + 1) * lanes + l] = im;
            } else {
                ((float *)p->fine)[2 * k * lanes + l] = (float)re;
                ((float *)p->fine)[(2 * k + 1) * lanes + l] = (float)im;
            }
        }
    for (int64_t g = 0; g < groups; g++)
        for (int64_t k = 0; k < p->n1; k++)
            root_set(p->coarse, p->is_double, g * p->n1 + k, k * g * lanes,
                     p->n);
}

static void
tables_lay(mr_fft_plan *p, tables *t)
{
    for (int i = 0; i < p->n_pass; i++)
        pass_tables(p, &p->pass[i], t);
    if (p->inner)
        bluestein_tables(p, t);
    if (p->row)
        row_tables(p, t);
    else if (p->kind == MR_FFT_LINE && p->n1 > 1)
        split_tables(p, t);
    if (p->kind == MR_FFT_REAL) {
        p->roots = table_new(t, p->n / 4 + 1, p->is_double);
        for (int64_t k = 0; t->at && k <= p->n / 4; k++)
            root_set(p->roots, p->is_double, k, k, p->n);
    }
}

static mr_code
panel_parts(mr_fft_plan *p)
{
    int32_t radix[MR_FFT_MAX_PASSES];
    int64_t m = p->n, s = 1;
    int count;

    if (radices(p->n, radix, &count) != 1) {
        p->inner = mr__fft_plan(MR_FFT_PANEL, mr__fft_bluestein_length(p->n),
                                p->is_double);
        return p->inner ? MR_OK : MR_E_MEMORY;
    }
    p->pass = mr__alloc_zero((size_t)(count + 1) * sizeof *p->pass);
    if (!p->pass)
        return MR_E_MEMORY;
    p->n_pass = count;
    for (int i = 0; i < count; i++) {
        m /= radix[i];
        p->pass[i] = (mr_fft_pass){.radix = radix[i], .m = m, .s = s};
        s *= radix[i];
    }
    return MR_OK;
}

static mr_code
line_parts(mr_fft_plan *p)
{
    mr__fft_split(p->n, &p->n1, &p->n2);
    if (mr__fft_is_row(p->n, p->is_double)) {
        p->row = true;
        p->n1 = p->is_double ? 8 : 16;
        p->n2 = p->n / p->n1;
        p->second = mr__fft_plan(MR_FFT_PANEL, p->n2, p->is_double);
        return p->second ? MR_OK : MR_E_MEMORY;
    }
    if (p->n1 == 0) {
        p->inner = mr__fft_plan(MR_FFT_LINE, mr__fft_bluestein_length(p->n),
                                p->is_double);
        return p->inner ? MR_OK : MR_E_MEMORY;
    }
    p->second = mr__fft_plan(MR_FFT_PANEL, p->n2, p->is_double);
    if (p->n1 > 1)
        p->first = mr__fft_plan(MR_FFT_PANEL, p->n1, p->is_double);
    return p->second && (p->n1 == 1 || p->first) ? MR_OK : MR_E_MEMORY;
}

static mr_fft_plan *
plan_new(mr_fft_kind kind, int64_t n, bool is_double)
{
    mr_fft_plan *p = mr__alloc_zero(sizeof *p);
    mr_code rc = MR_OK;
    tables t = {0};

    if (!p)
        return NULL;
    p->kind = kind;
    p->n = n;
    p->is_double = is_double;
    /* relaxed: no other thread has it yet */
    atomic_store_explicit(&p->refs, 1, memory_order_relaxed);
    if (kind != MR_FFT_REAL)
        rc = kind == MR_FFT_PANEL ? panel_parts(p) : line_parts(p);
    if (rc == MR_OK) {
        tables_lay(p, &t);
        p->bytes = (int64_t)t.bytes;
        p->memory = mr__alloc(t.bytes + 64);
        rc = p->memory ? MR_OK : MR_E_MEMORY;
    }
    if (rc == MR_OK) {
        char *at = p->memory;

        t = (tables){at + (64 - (uintptr_t)at % 64) % 64, 0};
        tables_lay(p, &t);
        if (p->inner)
            rc = spectrum_fill(p);
    }
    if (rc != MR_OK) {
        mr__fft_plan_release(p);
        return NULL;
    }
    p->made = true;
    mr__alloc_cached(plan_blocks(p));
    return p;
}

/* ---- the cache
 * -------------------------------------------------------------- */

static mr_lock lock = MR_LOCK_INIT(MR_RANK_FFT_PLANS, "fft plans");
/* all guarded by lock */
static mr_fft_plan *newest, *oldest;
static int64_t n_plans, n_bytes;
static uint64_t hits, misses, evictions;

static void
unlink_locked(mr_fft_plan *p)
{
    *(p->newer ? &p->newer->older : &newest) = p->older;
    *(p->older ? &p->older->newer : &oldest) = p->newer;
    n_plans--;
    n_bytes -= p->bytes;
}

static void
link_locked(mr_fft_plan *p)
{
    p->newer = NULL;
    p->older = newest;
    *(newest ? &newest->newer : &oldest) = p;
    newest = p;
    n_plans++;
    n_bytes += p->bytes;
}

/* A new reference to a plan of the list, moved to its front; or NULL. */
static mr_fft_plan *
find_locked(mr_fft_kind kind, int64_t n, bool is_double)
{
    mr_fft_plan *p = newest;

    while (p && (p->n != n || p->kind != kind || p->is_double != is_double))
        p = p->older;
    if (p && p != newest) {
        unlink_locked(p);
        link_locked(p);
    }
    if (p) /* relaxed: the list has a reference */
        atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    return p;
}

/* Plans that left the list, chained by `older`: outside of the lock. */
static void
release_chain(mr_fft_plan *p)
{
    while (p) {
        mr_fft_plan *next = p->older;

        mr__fft_plan_release(p);
        p = next;
    }
}

/* Takes the oldest out until the bounds hold. */
static mr_fft_plan *
trim_locked(int64_t plans, int64_t bytes)
{
    mr_fft_plan *gone = NULL;

    while (oldest && (n_plans > plans || n_bytes > bytes)) {
        mr_fft_plan *p = oldest;

        unlink_locked(p);
        p->older = gone;
        gone = p;
        evictions++;
    }
    return gone;
}

mr_fft_plan *
mr__fft_plan(mr_fft_kind kind, int64_t n, bool is_double)
{
    mr_fft_plan *p, *mine, *gone = NULL;

    mr__lock_take(&lock);
    p = find_locked(kind, n, is_double);
    *(p ? &hits : &misses) += 1;
    mr__lock_drop(&lock);
    if (p)
        return p;
    mine = plan_new(kind, n, is_double);
    if (!mine || mine->bytes > MAX_BYTES)
        return mine;
    mr__lock_take(&lock);
    p = find_locked(kind, n, is_double); /* another thread may have made it */
    if (!p) {
        /* relaxed: given to others by the lock */
        atomic_fetch_add_explicit(&mine->refs, 1, memory_order_relaxed);
        link_locked(mine);
        gone = trim_locked(MAX_PLANS, MAX_BYTES);
    }
    mr__lock_drop(&lock);
    release_chain(gone);
    if (!p)
        return mine;
    mr__fft_plan_release(mine);
    return p;
}

mr_code
mr_fft_cache_info(mr_cache_info *out)
{
    mr_cache_info all = {.size = sizeof all};

    if (!out)
        return mr__fail(MR_E_NULL, "the place for the figures is NULL");
    mr__lock_take(&lock);
    all.hits = hits;
    all.misses = misses;
    all.evictions = evictions;
    all.entries = (uint64_t)n_plans;
    all.bytes = (uint64_t)n_bytes;
    mr__lock_drop(&lock);
    if (out->size > 0 && out->size < sizeof all)
        all.size = out->size;
    memcpy(out, &all, all.size);
    return MR_OK;
}

mr_code
mr_fft_cache_clear(void)
{
    mr_fft_plan *gone;

    mr__lock_take(&lock);
    gone = trim_locked(0, 0);
    mr__lock_drop(&lock);
    release_chain(gone);
    return MR_OK;
}

/* Another thread may have been half way through a change of the list: then the
 * child begins with an empty one, and what the old one held stays. */
static void
fork_child(void)
{
    if (!mr__lock_fork_torn(&lock))
        return;
    newest = oldest = NULL;
    n_plans = n_bytes = 0;
}

__attribute__((constructor)) static void
register_fork(void)
{
    pthread_atfork(NULL, NULL, fork_child);
}
