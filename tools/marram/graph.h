/* SPDX-License-Identifier: Apache-2.0
 *
 * graph.h -- marram graph: runs a program and shows its compiled functions.
 */
#ifndef MARRAM_COMMAND_GRAPH_H
#define MARRAM_COMMAND_GRAPH_H

/* argv[0] is "graph".  What the command ends with. */
int graph_main(int argc, char **argv);

#endif
