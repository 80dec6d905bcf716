/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu.h -- what the files of the CPU device share: the rows of its kernel
 * table, parallel ranges, walks over strided operands, boxes of elements.
 */
#ifndef MR_CPU_CPU_H
#define MR_CPU_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "array/dtype.h"
#include "eval/device.h"
#include "marram/types.h"

/* The CPU, and what registers it; called once, by eval at its start. */
extern const mr_device_table mr__cpu_device;
mr_code mr__cpu_register(void);

/* The row of an operator, or NULL. */
const mr_kernel *mr__cpu_kernel(uint16_t op);

/* loop.c: an operator over a batch. */
mr_code mr__cpu_loop(const mr_kernel_args *a);
size_t mr__cpu_loop_workspace(const mr_kernel_args *a);
double mr__cpu_loop_cost(const mr_kernel_args *a);

/* ---- parallel ranges ----------------------------------------------------- */

typedef void mr_cpu_body(void *ctx, int64_t begin, int64_t end);

/* body over [0, n) in pieces of `grain`, on any of the pool's threads. */
void mr__cpu_for(int64_t n, int64_t grain, mr_cpu_body *body, void *ctx);
/* The same; `turned`: each thread goes through its pieces the other way round.
 */
void mr__cpu_for_turned(int64_t n, int64_t grain, bool turned,
                        mr_cpu_body *body, void *ctx);

/* The grain of a loop whose item costs `ns` nanoseconds: pieces of about 40
 * microseconds. */
int64_t mr__cpu_grain(double ns);

/* The same over operands, by where each begins: items of the range lie in their
 * order there.  Begins with the pieces that the last such loop over any of them
 * ended with (over.c). */
#define MR_OVER_MAX 6
typedef struct mr_over {
    const void *at[MR_OVER_MAX];
    int n;
} mr_over;

void mr__over_add(mr_over *o, const void *memory); /* the first few count */
void mr__cpu_for_over(const mr_over *o, int64_t n, int64_t grain,
                      mr_cpu_body *body, void *ctx);

/* body for each of n units that may differ in length, over n_slots threads at
 * most, with a piece of the workspace for each of these. */
void mr__cpu_units(int n_slots, int64_t n, char *workspace, size_t slot_bytes,
                   void (*body)(const void *ctx, int64_t unit, char *slot),
                   const void *ctx);

/* ---- walks --------------------------------------------------------------- */

/* Points of a loop nest in row-major order, with the offset (in elements) of
 * each operand.  Plain data; each piece of a parallel range has its own. */
#define MR_WALK_MAX 4
typedef struct mr_walk {
    int32_t ndim;
    int n;
    int64_t dim[MR_MAX_NDIM];
    int64_t stride[MR_WALK_MAX][MR_MAX_NDIM];
    int64_t at[MR_MAX_NDIM];
    int64_t offset[MR_WALK_MAX];
} mr_walk;

/* Over dims [0, ndim) without those of `skip` (a bit each). */
void mr__walk_init(mr_walk *w, int32_t ndim, const int64_t *dim, uint32_t skip);
/* One more operand, by the strides of all ndim dims. */
void mr__walk_add(mr_walk *w, int32_t ndim, const int64_t *stride,
                  uint32_t skip);
/* Merges neighbouring dims; after the last mr__walk_add. */
void mr__walk_merge(mr_walk *w);
int64_t mr__walk_size(const mr_walk *w);
void mr__walk_seek(mr_walk *w, int64_t index);
void mr__walk_next(mr_walk *w);

/* ---- boxes --------------------------------------------------------------- */

/* Elements to copy: strides in elements, any sign. */
typedef struct mr_box {
    int32_t ndim;
    int64_t dim[MR_MAX_NDIM];
    int64_t to_stride[MR_MAX_NDIM], from_stride[MR_MAX_NDIM];
    void *to;
    const void *from;
    int64_t item; /* bytes of an element: 1, 2, 4, 8, 16 */
} mr_box;

/* In parallel; the memories do not overlap. */
void mr__cpu_copy_box(const mr_box *b);
/* All of a view, row-major, to `to`. */
void mr__cpu_copy_view(void *to, const mr_kernel_view *from);
/* n elements of `item` bytes, all equal to the one at `value`. */
void mr__cpu_fill(void *to, int64_t n, const void *value, int64_t item);

/* ---- rows of the table (each in the file of its name) -------------------- */

mr_code mr__cpu_copy(const mr_kernel_args *a);
mr_code mr__cpu_concatenate(const mr_kernel_args *a);
mr_code mr__cpu_pad(const mr_kernel_args *a);
mr_code mr__cpu_slice_update(const mr_kernel_args *a);
mr_code mr__cpu_view(const mr_kernel_args *a);

mr_code mr__cpu_arange(const mr_kernel_args *a);
mr_code mr__cpu_random_bits(const mr_kernel_args *a);

mr_code mr__cpu_gather(const mr_kernel_args *a);
size_t mr__cpu_gather_workspace(const mr_kernel_args *a);
mr_code mr__cpu_take_along_axis(const mr_kernel_args *a);

mr_code mr__cpu_scatter(const mr_kernel_args *a);
size_t mr__cpu_scatter_workspace(const mr_kernel_args *a);
mr_code mr__cpu_put_along_axis(const mr_kernel_args *a);
size_t mr__cpu_put_along_axis_workspace(const mr_kernel_args *a);

mr_code mr__cpu_matmul(const mr_kernel_args *a);
size_t mr__cpu_matmul_workspace(const mr_kernel_args *a);
double mr__cpu_matmul_cost(const mr_kernel_args *a);

mr_code mr__cpu_sort(const mr_kernel_args *a);
mr_code mr__cpu_argsort(const mr_kernel_args *a);
size_t mr__cpu_sort_workspace(const mr_kernel_args *a);
size_t mr__cpu_argsort_workspace(const mr_kernel_args *a);
double mr__cpu_sort_cost(const mr_kernel_args *a);
mr_code mr__cpu_searchsorted(const mr_kernel_args *a);
mr_code mr__cpu_is_among(const mr_kernel_args *a);
mr_code mr__cpu_partition_places(const mr_kernel_args *a);
size_t mr__cpu_partition_workspace(const mr_kernel_args *a);
double mr__cpu_partition_cost(const mr_kernel_args *a);

mr_code mr__cpu_scan(const mr_kernel_args *a);
size_t mr__cpu_scan_workspace(const mr_kernel_args *a);
mr_code mr__cpu_softmax(const mr_kernel_args *a);
size_t mr__cpu_softmax_workspace(const mr_kernel_args *a);
mr_code mr__cpu_layer_norm(const mr_kernel_args *a);
size_t mr__cpu_layer_norm_workspace(const mr_kernel_args *a);
mr_code mr__cpu_rms_norm(const mr_kernel_args *a);
size_t mr__cpu_rms_norm_workspace(const mr_kernel_args *a);

mr_code mr__cpu_attention(const mr_kernel_args *a);
size_t mr__cpu_attention_workspace(const mr_kernel_args *a);
double mr__cpu_attention_cost(const mr_kernel_args *a);
mr_code mr__cpu_attention_back(const mr_kernel_args *a);
size_t mr__cpu_attention_back_workspace(const mr_kernel_args *a);
double mr__cpu_attention_back_cost(const mr_kernel_args *a);

mr_code mr__cpu_conv(const mr_kernel_args *a);
size_t mr__cpu_conv_workspace(const mr_kernel_args *a);
double mr__cpu_conv_cost(const mr_kernel_args *a);
mr_code mr__cpu_conv_weight(const mr_kernel_args *a);
size_t mr__cpu_conv_weight_workspace(const mr_kernel_args *a);
double mr__cpu_conv_weight_cost(const mr_kernel_args *a);

mr_code mr__cpu_mask_places(const mr_kernel_args *a);
mr_code mr__cpu_mask_compress(const mr_kernel_args *a);
mr_code mr__cpu_mask_expand(const mr_kernel_args *a);
mr_code mr__cpu_repeat_places(const mr_kernel_args *a);
mr_code mr__cpu_repeat_entries(const mr_kernel_args *a);
size_t mr__cpu_compact_workspace(const mr_kernel_args *a);
double mr__cpu_compact_cost(const mr_kernel_args *a);
mr_code mr__cpu_fft(const mr_kernel_args *a);
size_t mr__cpu_fft_workspace(const mr_kernel_args *a);
double mr__cpu_fft_cost(const mr_kernel_args *a);
mr_code mr__cpu_overlap_add(const mr_kernel_args *a);
/* linalg.c: one row for all factorizations and systems */
mr_code mr__cpu_linalg(const mr_kernel_args *a);
size_t mr__cpu_linalg_workspace(const mr_kernel_args *a);
double mr__cpu_linalg_cost(const mr_kernel_args *a);
mr_code mr__cpu_hadamard(const mr_kernel_args *a);

#endif
