/* SPDX-License-Identifier: Apache-2.0
 *
 * index.h -- a Python index taken apart: what reading and writing share.
 */
#ifndef MARRAM_PYTHON_INDEX_H
#define MARRAM_PYTHON_INDEX_H

#include "ext.h"

#define INDEX_MAX 64

typedef enum index_kind {
    INDEX_NEW,   /* None */
    INDEX_SLICE, /* takes an axis */
    INDEX_INT,   /* takes an axis and drops it */
    INDEX_ARRAY  /* takes an axis: an integer array */
} index_kind;

typedef struct index_item {
    index_kind kind;
    int axis;    /* of the array, for all but INDEX_NEW */
    mr_array *x; /* INDEX_ARRAY: a reference */
} index_item;

/* The items cover all axes; with index arrays among them no item is an
 * INDEX_INT, for ints join the arrays then. */
typedef struct index_plan {
    index_item item[INDEX_MAX];
    int n;
    int n_arrays;
    bool sliced;   /* some axis is cut */
    bool symbolic; /* in a shapeless trace: start and stop as they were given,
                      sizes as handles once index_settle has been called */
    bool apart;    /* a slice, None or ... stands between index arrays: their
                      axes come first in what is selected */
    int64_t start[MR_MAX_NDIM], stop[MR_MAX_NDIM], step[MR_MAX_NDIM];
    int64_t dim[MR_MAX_NDIM]; /* after slicing; 1 for an int */
    int ndim;                 /* of the array */
} index_plan;

/* What a key is besides a plan. */
typedef enum index_form {
    INDEX_ERROR, /* an exception is set */
    INDEX_PLAN,
    INDEX_MASK,   /* a bool array alone: *mask is a reference */
    INDEX_NOTHING /* False: selects nothing */
} index_form;

/* For an array of x's shape.  Free the plan after INDEX_PLAN. */
index_form index_parse(index_plan *p, mr_array *x, PyObject *key,
                       mr_array **mask);
void index_free(index_plan *p);
/* In a shapeless trace: the sizes of x cut along its axes become the plan's. */
bool index_settle(index_plan *p, const char *site, mr_array *x);
/* x cut along its axes as the plan says; a new reference. */
mr_array *index_cut(const index_plan *p, const char *site, mr_array *x);
/* The index arrays and their axes; returns how many. */
int index_arrays(const index_plan *p, mr_array **x, int64_t *axes);
/* The item of the first index array. */
int index_first_array(const index_plan *p);
/* Replaces *x by y: for chains of calls; false when y is NULL. */
bool index_step(mr_array **x, mr_array *y);
/* The rank to which the index arrays broadcast. */
int index_rank(const index_plan *p);
/* The axes of what is selected that are new. */
int index_new_axes(const index_plan *p, int32_t *axes);
/* The axes, of the array that was cut, that ints drop. */
int index_int_axes(const index_plan *p, int32_t *axes);

#endif
