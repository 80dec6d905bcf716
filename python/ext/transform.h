/* SPDX-License-Identifier: Apache-2.0
 *
 * transform.h -- what the files of the transforms share: a Python function on
 * its way through C, and the object of a transformed function.
 */
#ifndef MARRAM_PYTHON_TRANSFORM_H
#define MARRAM_PYTHON_TRANSFORM_H

#include "ext.h"
#include "marram/transform.h"

/* A Python function that runs as a C closure while one call lasts. */
typedef struct ext_function {
    PyObject *fun;
    PyObject *args, *kw;                  /* structures; kw may be NULL */
    PyObject *out;                        /* structure of the result */
    PyObject *(*check)(PyObject *result); /* a new reference, or NULL */
    ext_failure failure;
} ext_function;

void ext_run_end(ext_function *r);
mr_closure *ext_run_closure(ext_function *r);
/* The closure's function, for a call without a transform. */
mr_tree *ext_run_plain(void *ctx, const mr_tree *in);
/* The result of a C transform (taken) as leaves; false with an exception. */
bool ext_run_finish(ext_function *r, mr_tree *t, ext_leaves *l);

typedef enum ext_transform_kind {
    EXT_GRAD,
    EXT_VALUE_AND_GRAD,
    EXT_VMAP,
    EXT_CHECKPOINT
} ext_transform_kind;

typedef struct ext_transform {
    PyObject_HEAD ext_transform_kind kind;
    uint32_t mode; /* mr_grad_mode */
    PyObject *fun;
    PyObject *argnums; /* tuple of ints, or of one axis tree (vmap) */
    PyObject *names;   /* tuple of text, or of one axis tree (vmap) */
} ext_transform;

/* A transformed function; takes argnums and names, also when it fails. */
PyObject *ext_transform_new(ext_transform_kind kind, PyObject *fun,
                            PyObject *argnums, PyObject *names);

PyObject *ext_vmap_call(ext_transform *t, PyObject *args, PyObject *kw);
PyObject *ext_checkpoint_call(ext_transform *t, PyObject *args, PyObject *kw);
/* The axis of each array of a tree, from a prefix of it. */
bool ext_axes_of(PyObject *tree, PyObject *axes, int32_t *out, int *n,
                 const char *what);

/* Functions of the module, by file. */
PyObject *ext_fn_vmap(PyObject *self, PyObject *args, PyObject *kw);
PyObject *ext_fn_vjp(PyObject *self, PyObject *args, PyObject *kw);
PyObject *ext_fn_jvp(PyObject *self, PyObject *args, PyObject *kw);
PyObject *ext_fn_checkpoint(PyObject *self, PyObject *args, PyObject *kw);
PyObject *ext_fn_depends(PyObject *self, PyObject *args, PyObject *kw);
int ext_init_custom(PyObject *module);

#endif
