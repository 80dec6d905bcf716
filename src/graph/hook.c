/* SPDX-License-Identifier: Apache-2.0
 *
 * hook.c -- the calls that go from the graph's floor up to eval/.
 *
 * Set by: eval/.  Called by: transform/, when a trace has ended; read.c, for
 * arrays that lie on a device.
 */
#include "graph/node.h"

void (*mr__graph_detach_hook)(mr_array *const *nodes, size_t n);
mr_code (*mr__graph_host_hook)(mr_array *x, bool writable);
const char *(*mr__graph_host_data_hook)(const mr_buffer *b);
