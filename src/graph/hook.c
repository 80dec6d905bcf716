/* SPDX-License-Identifier: Apache-2.0
 *
 * hook.c -- the one call that goes from the graph's floor up to eval/.
 *
 * Set by: eval/.  Called by: transform/, when a trace has ended.
 */
#include "graph/node.h"

void (*mr__graph_detach_hook)(mr_array *const *nodes, size_t n);
