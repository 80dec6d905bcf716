/* SPDX-License-Identifier: Apache-2.0
 *
 * custom.h -- one call of a function with rules of its own.
 *
 * A call is a tuple node that forwards (MR_FLAG_FORWARDS).  Its inputs are
 *   holder, arguments, captured arrays, values
 * where the values are what the function made of the arguments, and its
 * results are views of the values.  A walk that has a rule for the call does
 * not look at the values; one without follows them as if there were no call.
 * The holder is an array whose buffer is the mr_custom_call: whoever drops the
 * last node, its closures' destructors run on a user's thread.
 */
#ifndef MR_TRANSFORM_CUSTOM_H
#define MR_TRANSFORM_CUSTOM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/vec.h"
#include "graph/context.h"
#include "graph/node.h"
#include "graph/op.h"
#include "marram/transform.h"
#include "marram/types.h"

/* What a closure made by mr_custom_function or mr_checkpoint is: references. */
typedef struct mr_custom {
    bool checkpoint;
    mr_closure *f, *vjp, *jvp, *vmap;
    const char *(*name)(void *ctx, const mr_array *x);
} mr_custom;

typedef struct mr_custom_call {
    mr_custom rules; /* references; of a batched call: which there are */
    int n_args, n_captured, n_out;
    mr_tree *in, *out;   /* the structures, over leaves without meaning */
    mr_array **captured; /* as the function finds them; the last n_keys are
                            the random keys that it drew */
    int n_keys;
    /* A call over a batch: the call of one entry, and which of the arguments
     * and captured arrays have the batch in front. */
    mr_array *entry;
    bool *batched;
    int64_t size;
} mr_custom_call;

typedef struct mr_call_params {
    int64_t n_args, n_captured, n_out;
} mr_call_params;

extern const mr_op mr__op_call;

const mr_custom_call *mr__call_of(const mr_array *holder);
/* The holder of a call (takes c, also when it fails), owned as results are. */
mr_array *mr__call_holder(mr_custom_call *c);
void mr__call_free(mr_custom_call *c);
/* The tuple node; `in` is arguments, captured, values. */
mr_array *mr__call_node(mr_array *holder, const mr_custom_call *c,
                        mr_array *const *in);
/* The rules present in `from`, with references of their own. */
void mr__custom_retain(mr_custom *to, const mr_custom *from);
void mr__custom_release(mr_custom *c);

/* ---- capture.c: what a function found, not made ---------------------------
 */
typedef struct mr_capture {
    mr_made made;
    mr_key_source keys; /* first of the source's fields: see capture.c */
    mr_key_source *outer_keys;
    mr_vec drawn; /* borrowed keys: recorded, or to be played again */
    size_t next;
    bool play;
} mr_capture;

/* Between begin and end what is made on this thread is known, and, when
 * `drawn` is not NULL, keys are recorded (play: taken from it again). */
void mr__capture_begin(mr_capture *c, bool record_keys);
void mr__capture_play(mr_capture *c, mr_array *const *key, int n);
mr_code mr__capture_end(mr_capture *c);
void mr__capture_free(mr_capture *c);
/* The traced arrays that `value` depends on, that were not made meanwhile, and
 * that are no `stop`: appended to found, borrowed. */
mr_code mr__capture_find(mr_capture *c, mr_array *const *stop, int n_stop,
                         mr_array *const *value, int n, mr_vec *found);
/* `value` with `to` in the place of `from`: what was made meanwhile and
 * depends on those is made again.  Results are owned as results are. */
mr_code mr__capture_replace(mr_capture *c, mr_array *const *from,
                            mr_array *const *to, int n_from, mr_array **value,
                            int n);

/* ---- checkpoint.c ---------------------------------------------------------
 */
/* Makes *list the n_args + n_captured cotangents. */
mr_code mr__checkpoint_vjp(const mr_rule *r, mr_array **list);

/* depends.c */
mr_array *mr__depends(mr_array *x, mr_array *const *on, int n);

#endif
