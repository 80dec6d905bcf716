/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_jobs.h -- a product with packed matrices as a list of jobs, and where
 * in the workspace they lie.  Private to quant_product.c and quant_jobs.c.
 */
#ifndef MR_CPU_QUANT_JOBS_H
#define MR_CPU_QUANT_JOBS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/product.h"
#include "cpu/quant.h"

enum {
    MR_QUANT_FEW = 8,             /* rows of an item that stay with the words */
    MR_QUANT_RUN = MR_STRIP_ROWS, /* jobs of a run */
    MR_QUANT_BAND_ROWS = 64,      /* columns of the result, each a row of w */
    MR_QUANT_BAND_COLS = 256,     /* the same, each a column of w */
    MR_QUANT_ALIGN = 64           /* bytes of what lies in the workspace */
};

/* A row of the result: rows of x and of the result, the matrix. */
typedef struct mr_quant_job {
    int64_t x, w, out;
} mr_quant_job;

typedef struct mr_quant_jobs {
    const mr_kernel_args *a;
    mr_quant_matrix w; /* the first */
    bool turned;       /* rows of w are columns of the result */
    int64_t m, inner, outer;
    int64_t n_x, n_w; /* matrices */
    mr_walk batch;    /* items: matrices of x (0) and of w (1) */
    int64_t n_items;
    /* the few: rows as floats, rows arranged, jobs and runs in the workspace */
    float *wide, *arranged;
    int64_t arranged_floats;
    mr_quant_job *jobs;
    int64_t n_jobs, *runs, n_runs; /* run i: jobs [runs[i], runs[i + 1]) */
    int64_t n_bands;
    int64_t slice; /* of units beside, where they are asked for (share.h) */
    float *packed; /* rows of long runs, or of all in pairs: run i from float
                      first[i] on */
    int64_t *first;
    /* of each job: its row can be none of the pairs or pieces; relaxed: read
     * after the loop */
    atomic_bool *unfit;
    bool again; /* such rows alone, whatever their number */
} mr_quant_jobs;

/* From the operands; the batch is read apart. */
mr_quant_jobs mr__quant_jobs_read(const mr_kernel_args *a);
void mr__quant_jobs_batch(mr_quant_jobs *p);
/* Matrix i of w. */
mr_quant_matrix mr__quant_jobs_matrix(const mr_quant_jobs *p, int64_t i);

bool mr__quant_x_is_float(const mr_quant_jobs *p);
/* Can the product go in pairs, or in pieces, if its numbers can? */
bool mr__quant_in_pairs(const mr_quant_jobs *p);
bool mr__quant_in_pieces(const mr_quant_jobs *p);
/* Do m rows meet values that are made beside the products? */
bool mr__quant_in_floats(const mr_quant_jobs *p, int64_t m);

/* Lay the memory of n_jobs out from `at` on, 64-byte aligned (NULL: measure
 * only): bytes.  Jobs alone; of the few; in pairs or pieces, of n_w matrices;
 * of more than MR_QUANT_FEW rows of each item as floats. */
size_t mr__quant_jobs_place(mr_quant_jobs *p, char *at, int64_t n_jobs);
size_t mr__quant_few_place(mr_quant_jobs *p, char *at, int64_t n_jobs);
size_t mr__quant_pairs_place(mr_quant_jobs *p, char *at, int64_t n_jobs,
                             int64_t n_w);
size_t mr__quant_pieces_place(mr_quant_jobs *p, char *at, int64_t n_jobs,
                              int64_t n_w);
size_t mr__quant_floats_place(mr_quant_jobs *p, char *at);

#endif
