/* SPDX-License-Identifier: Apache-2.0
 *
 * scatter.h -- what scatter.c, scatter_halves.c and put.c share: runs of
 * elements combined into an output, and scatters point by point.
 */
#ifndef MR_CPU_SCATTER_H
#define MR_CPU_SCATTER_H

#include <stddef.h>
#include <stdint.h>

#include "cpu/cpu.h"
#include "kernels/resolve.h"
#include "kernels/source.h"
#include "ops/params.h"

/* Points that are looked at together. */
enum { MR_SCATTER_CHUNK = 256 };

/* How one run of elements is combined into the output. */
typedef struct mr_combine {
    mr_scatter_mode mode;
    mr_map_fn *map; /* NULL: set */
    mr_dtype dtype;
    int64_t item;
    int row; /* of the tables of moves */
} mr_combine;

mr_combine mr__combine_of(int64_t mode, mr_dtype t);

/* n elements, strides in elements. */
void mr__combine_run(const mr_combine *c, char *to, int64_t to_stride,
                     const char *from, int64_t from_stride, int64_t n);

/* Points and the places where their updates go. */
typedef struct mr_scatter {
    mr_combine how;
    const int64_t *offset; /* of each point in the output */
    int64_t count, n_owners;
    char *to;
    const char *from;
    mr_walk points; /* of the index shape: the updates' offsets */
    mr_walk slice;  /* without its last dim: output, updates */
    int64_t run, to_stride, from_stride; /* the last dim */
    int64_t n_runs;
    /* halves: the output as floats, or lists of the points of a place */
    float *wide;
    struct mr_scatter_lists *lists;
} mr_scatter;

/* Points of [i, i + MR_SCATTER_CHUNK) whose places are the owner's: how many.
 */
int64_t mr__scatter_note(const mr_scatter *s, mr_owner owner, int64_t i,
                         int64_t *mine);

/* A slice of the updates, from `from` on, into that of the output at `to`. */
void mr__scatter_point(const mr_scatter *s, int64_t to, int64_t from);

/* Owners among whom so many updates are dealt out. */
int64_t mr__scatter_owners(int64_t updates);

/* All of them, by their owners. */
void mr__scatter_points(mr_scatter *s);

/* Runs of the output and of the updates are brought near. */
void mr__scatter_near(const char *to, const char *from, int64_t bytes);

/* Some points of one element of the updates, `step` apart, and those that come
 * after them. */
typedef struct mr_scatter_elements {
    const int64_t *now, *next;
    int64_t n, n_next, step;
} mr_scatter_elements;

/* ---- halves that are added (scatter_halves.c) -------------------------------
 */

/* Which way they go: rounded each time (as all else that is scattered), in a
 * copy of the output as floats, or place by place. */
typedef enum mr_scatter_way {
    MR_SCATTER_PLAIN,
    MR_SCATTER_WIDE,
    MR_SCATTER_LISTS
} mr_scatter_way;

/* That of `count` points with `updates` numbers in all, whose slices do not
 * overlap. */
mr_scatter_way mr__scatter_way(mr_scatter_mode mode, const mr_kernel_view *out,
                               int64_t count, int64_t updates);

/* Bytes of room that it needs. */
size_t mr__scatter_room(mr_scatter_way way, const mr_kernel_view *out,
                        int64_t count, int64_t n_owners);

/* The points go to their places, with that room; the output has what was there.
 */
void mr__scatter_run(mr_scatter *s, const mr_kernel_view *out,
                     mr_scatter_way way, void *room);

/* Everything of an owner, where s->wide or s->lists is set; of single elements
 * of wide ones, those of `e`. */
void mr__scatter_halves(const mr_scatter *s, mr_owner its, int64_t owner);
void mr__scatter_widen(const mr_scatter *s, const mr_scatter_elements *e);

#endif
