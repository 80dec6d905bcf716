/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.h -- scores and weights of attention as public operators: what
 * float64 and the rules of attention are made of.  Results are owned as any
 * (rules.h), NULL passes through.
 *
 * The rules' ones read the node's mr_attention_params, and its inputs q, k, v,
 * mask, sinks; they compute in float32.
 */
#ifndef MR_OPS_ATTENTION_H
#define MR_OPS_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/op.h"
#include "marram/types.h"

/* softmax(scale q k^T + mask), with a last column of sinks where there are
 * such; mask and sinks as the operator has them, or MR_NONE. */
mr_array *mr__scores_weights(mr_array *q, mr_array *k, double scale,
                             mr_array *mask, bool causal, mr_array *sinks);
/* Without the column of sinks. */
mr_array *mr__scores_of_keys(mr_array *p, const mr_array *k);
/* x (B, Hq, Lq, D) times y (B, Hkv, Lk, D), transposed. */
mr_array *mr__scores_times_keys(mr_array *x, mr_array *y);
/* Weights (B, Hq, Lq, Lk) times y (B, Hkv, Lk, D). */
mr_array *mr__scores_times_values(mr_array *p, mr_array *y);
/* Weights, transposed, times x (B, Hq, Lq, D): (B, Hkv, Lk, D). */
mr_array *mr__scores_times_queries(mr_array *p, mr_array *x, const mr_array *k);

/* In float32. */
mr_array *mr__scores_widened(mr_array *x);
/* The weights of a rule's node, in slot 0; those of its sinks, a column. */
mr_array *mr__scores_rule_weights(const mr_rule *r);
mr_array *mr__scores_rule_sinks(const mr_rule *r);
/* Slopes of scores that a mask dropped are zero. */
mr_array *mr__scores_unmasked(const mr_rule *r, mr_array *s);

/* The inputs of a batch of N as those of one node, (N * B, ...): the first
 * three and the last n_tail all of them, mask and sinks one for all where they
 * can be.  B, or -1 after an error. */
int64_t mr__scores_batch(const mr_batch *b, int n_tail, mr_array **in);

#endif
