/* SPDX-License-Identifier: Apache-2.0
 *
 * report.h -- a file for each program that is made, when MARRAM_GRAPH names a
 * folder: what `marram graph` shows.
 */
#ifndef MR_COMPILE_REPORT_H
#define MR_COMPILE_REPORT_H

#include "compile/cache.h"

/* Before e is published: it is to be told of, if MARRAM_GRAPH says so. */
void mr__report_begin(mr_cache_entry *e, const char *name);
/* e counts now: its file is written, once whoever calls. */
void mr__report_made(const mr_cache_entry *e);
/* e ends: its file is written anew, if it had one. */
void mr__report_end(mr_cache_entry *e);

#endif
