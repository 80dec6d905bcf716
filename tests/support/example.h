/* SPDX-License-Identifier: Apache-2.0
 *
 * example.h -- runs the programs that tests/reference/programs.py makes: the
 * examples of the reference, and calls of every function with bad arguments.
 */
#ifndef MRT_EXAMPLE_H
#define MRT_EXAMPLE_H

#include <math.h>

#include "support/mrt.h"

/* The example of one function.  An array's is a leaf. */
typedef struct mrt_example {
    const char *name;
    mr_tree *(*run)(void);
    const char *prints;   /* what Python's example prints */
    const char *brackets; /* around several results, "()" or "[]" */
} mrt_example;

/* What is wrong with an argument, and what must then be said. */
typedef struct mrt_bad {
    const char *what; /* the argument as it was given */
    mr_code code;     /* MR_OK: the call may also be good */
    const char *word; /* stands in the message */
} mrt_bad;

/* The calls of one function with bad arguments; run(i) makes the i-th. */
typedef struct mrt_refusal {
    const char *title; /* in front of each message */
    mr_tree *(*run)(int i);
    const mrt_bad *bad;
    int n;
    const mrt_example *good; /* what must work after each */
} mrt_refusal;

/* Called by run(i) before the call: what the inputs hold, which they must still
 * hold after it. */
enum { MRT_MOST_INPUTS = 8 };
void mrt_note_inputs(int n, mr_array *const *x);

/* Programs: a test for each row. */
int mrt_run_examples(const char *family, const mrt_example *rows, int n);
int mrt_run_refusals(const char *family, const mrt_refusal *rows, int n);

#endif
