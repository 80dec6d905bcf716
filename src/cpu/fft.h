/* SPDX-License-Identifier: Apache-2.0
 *
 * fft.h -- what the files of the Fourier transforms share: plans, panels,
 * single long lines.
 *
 * Inside cpu/ alone.  kernels/fft.h says what a panel is.
 */
#ifndef MR_CPU_FFT_H
#define MR_CPU_FFT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/fft.h"
#include "marram/types.h"

/* ---- plans ---------------------------------------------------------------
 * What is worked out once for a length: factors and tables.  Immutable, shared
 * by threads, in a bounded cache. */
typedef enum mr_fft_kind {
    MR_FFT_PANEL, /* a transform of a panel's lanes */
    MR_FFT_LINE,  /* of one long line: over two panels' plans */
    MR_FFT_REAL   /* exp(-2 pi i k / n), k <= n / 4: `roots` alone */
} mr_fft_kind;

typedef struct mr_fft_plan {
    mr_fft_kind kind;
    bool is_double;
    int64_t n;

    /* Panels: passes, or (inner != NULL) Bluestein's algorithm: x times chirp,
     * a convolution by transforms of length inner->n, times chirp.  Lines by
     * Bluestein's algorithm have the same fields. */
    int n_pass;
    mr_fft_pass *pass;
    struct mr_fft_plan *inner;
    void *chirp;    /* n pairs: exp(-pi i j^2 / n) */
    void *spectrum; /* inner->n pairs: transform of the conjugate chirp */

    /* Lines: n = n1 * n2.  Number (j1, j2) is at j1 * n2 + j2; transforms over
     * j1, twiddles, transforms over j2.  n1 == 1: one panel of one lane. */
    bool row; /* n1 is the number of lanes: one line at a time, in cache */
    int64_t n1, n2;
    struct mr_fft_plan *first, *second;
    void *fine;   /* n1 blocks: exp(-2 pi i k l / n), lane l; of a row: that
                     with l + c for each V columns from c on */
    void *coarse; /* n1 pairs for each V columns from j on: exp(-2 pi i k j / n)
                   */
    void *roots;

    /* the cache's */
    bool made; /* whole, and not counted as alive */
    atomic_int refs;
    struct mr_fft_plan *newer, *older; /* under its lock */
    int64_t bytes;
    void *memory; /* of the tables */
} mr_fft_plan;

/* Counted; NULL with MR_E_MEMORY set.  From any thread, under no lock. */
mr_fft_plan *mr__fft_plan(mr_fft_kind kind, int64_t n, bool is_double);
void mr__fft_plan_release(mr_fft_plan *p);
/* Blocks that each of two buffers needs in mr__fft_panel. */
int64_t mr__fft_panel_blocks(int64_t n);
/* The length that Bluestein's algorithm convolves with. */
int64_t mr__fft_bluestein_length(int64_t n);
/* Does a prime factor ask for it? */
bool mr__fft_is_rough(int64_t n);
/* Does a line go as a matrix of as many rows as there are lanes? */
bool mr__fft_is_row(int64_t n, bool is_double);
/* The two factors of a line's plan: n1 <= n2; n1 == 1: one panel does it; 0:
 * Bluestein's algorithm does. */
void mr__fft_split(int64_t n, int64_t *n1, int64_t *n2);

/* ---- panels --------------------------------------------------------------
 * The transform of the panel at x (which may be a); a and b are scratch.
 * Returns where the result is: x, a or b. */
void *mr__fft_panel(const mr_fft_plan *p, void *x, void *a, void *b);

/* The same from lines in memory (NULL: of what lies at x) to lines in memory,
 * times scale (NULL: returns where the result is, as above). */
typedef struct mr_fft_ends {
    const mr_fft_lines *from, *to;
    double scale;
} mr_fft_ends;

void *mr__fft_panel_ends(const mr_fft_plan *p, const mr_fft_ends *e, void *x,
                         void *a, void *b);

/* ---- lines ---------------------------------------------------------------
 * One long line.  shared: threads share the work; else all on this one. */
typedef struct mr_fft_line {
    const mr_fft_plan *plan;
    mr_fft_lines from, to; /* one lane each; may be the same memory */
    double scale;
    bool shared;
    char *memory; /* mr__fft_line_bytes */
} mr_fft_line;

size_t mr__fft_line_bytes(int64_t n, bool is_double, bool shared);
void mr__fft_line_run(const mr_fft_line *l);
/* The same for a plan with `row`. */
void mr__fft_row_run(const mr_fft_plan *p, const mr_fft_lines *from,
                     const mr_fft_lines *to, double scale, char *memory);

/* ---- scratch of a parallel loop -------------------------------------------
 * As many pieces of memory as threads may want at once. */
typedef struct mr_fft_slots {
    char *memory;
    size_t bytes; /* of a piece, a multiple of 64 */
    int n;
    atomic_int taken[64];
} mr_fft_slots;

size_t mr__fft_slots_bytes(size_t bytes);
void mr__fft_slots_init(mr_fft_slots *s, char *memory, size_t bytes);
char *mr__fft_slot_take(mr_fft_slots *s, int *which);
void mr__fft_slot_drop(mr_fft_slots *s, int which);

#endif
