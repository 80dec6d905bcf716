/* SPDX-License-Identifier: Apache-2.0
 *
 * path.h -- in which order the terms of a sum of products are contracted.
 */
#ifndef MR_OPS_PATH_H
#define MR_OPS_PATH_H

#include <stdint.h>

#define MR_PATH_TERMS  64
#define MR_PATH_LABELS 64

/* A bit for each label that a term has. */
typedef struct mr_path {
    int n; /* terms */
    uint64_t term[MR_PATH_TERMS], out;
    double size[MR_PATH_LABELS];
    /* step k contracts terms i < j of those that are left, takes both away and
     * puts the result at the end */
    int step[MR_PATH_TERMS][2];
    int n_steps;
    int naive_labels, labels;  /* of all terms at once; of the largest step */
    double naive_flops, flops; /* the same */
} mr_path;

/* Fills in the steps: the fewest operations for few terms, else greedily. */
void mr__path_find(mr_path *p);
/* All that is known but the steps; for a caller that reports. */
void mr__path_measure(mr_path *p);

#endif
