/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c -- the CPU's device table: host memory, block programs, a kernel
 * for every operator that neither fuses nor is a view.
 *
 * Called by: eval's start (mr__cpu_register).  Calls: everything here.
 */
#include "cpu/blocks.h"
#include "cpu/cpu.h"
#include "gen/ids.h"

/* Bit i: input i must be row-major. */
enum { INPUT_0 = 1 };

/* Nanoseconds on one thread of what moves memory by index, not in order. */
static double
indexed_cost(const mr_kernel_args *a)
{
    int64_t n = a->out[0].size;

    for (int i = 0; i < a->n_in; i++)
        n = a->in[i].size > n ? a->in[i].size : n;
    return 200.0 + 4.0 * (double)n;
}

/* Row operators: a few passes and an exponential. */
static double
rows_cost(const mr_kernel_args *a)
{
    return 500.0 + 1.0 * (double)a->out[0].size;
}

static const mr_kernel kernels[] = {
    {.op = MR_OP_RESHAPE, .run = mr__cpu_copy},
    {.op = MR_OP_FLATTEN, .run = mr__cpu_copy},
    {.op = MR_OP_CONTIGUOUS, .run = mr__cpu_copy},
    {.op = MR_OP_VIEW, .contiguous = INPUT_0, .run = mr__cpu_view},
    {.op = MR_OP_CONCATENATE, .run = mr__cpu_concatenate},
    {.op = MR_OP_PAD_CONSTANT, .run = mr__cpu_pad},
    {.op = MR_OP_INDEX_SLICE_UPDATE, .run = mr__cpu_slice_update},
    {.op = MR_OP_ARANGE, .run = mr__cpu_arange},
    {.op = MR_OP_RANDOM_BITS, .run = mr__cpu_random_bits},
    {.op = MR_OP_INDEX_GATHER,
     .run = mr__cpu_gather,
     .workspace = mr__cpu_gather_workspace,
     .cost = indexed_cost},
    {.op = MR_OP_INDEX_SCATTER,
     .run = mr__cpu_scatter,
     .workspace = mr__cpu_scatter_workspace,
     .cost = indexed_cost},
    {.op = MR_OP_TAKE_ALONG_AXIS,
     .run = mr__cpu_take_along_axis,
     .cost = indexed_cost},
    {.op = MR_OP_PUT_ALONG_AXIS,
     .run = mr__cpu_put_along_axis,
     .cost = indexed_cost},
    {.op = MR_OP_MATMUL,
     .run = mr__cpu_matmul,
     .workspace = mr__cpu_matmul_workspace,
     .cost = mr__cpu_matmul_cost},
    {.op = MR_OP_CONV_GENERAL,
     .contiguous = MR_KERNEL_ALL_CONTIGUOUS,
     .run = mr__cpu_conv,
     .workspace = mr__cpu_conv_workspace,
     .cost = mr__cpu_conv_cost},
    {.op = MR_OP_SOFTMAX,
     .run = mr__cpu_softmax,
     .workspace = mr__cpu_softmax_workspace,
     .cost = rows_cost},
    {.op = MR_OP_LAYER_NORM,
     .run = mr__cpu_layer_norm,
     .workspace = mr__cpu_layer_norm_workspace,
     .cost = rows_cost},
    {.op = MR_OP_RMS_NORM,
     .run = mr__cpu_rms_norm,
     .workspace = mr__cpu_rms_norm_workspace,
     .cost = rows_cost},
    {.op = MR_OP_SORT,
     .run = mr__cpu_sort,
     .workspace = mr__cpu_sort_workspace,
     .cost = mr__cpu_sort_cost},
    {.op = MR_OP_ARGSORT,
     .run = mr__cpu_argsort,
     .workspace = mr__cpu_sort_workspace,
     .cost = mr__cpu_sort_cost},
    {.op = MR_OP_SEARCHSORTED, .run = mr__cpu_searchsorted},
    {.op = MR_OP_SCAN,
     .contiguous = INPUT_0,
     .run = mr__cpu_scan,
     .workspace = mr__cpu_scan_workspace},
    {0},
};

static mr_memory_pool *
pool(void *self)
{
    (void)self;
    return mr__host_pool();
}

const mr_device_table mr__cpu_device = {
    .size = sizeof(mr_device_table),
    .abi = MR_DEVICE_ABI,
    .build = MR_BUILD_HASH,
    .name = "cpu",
    .device = {MR_CPU, 0},
    .pool = pool,
    .kernels = kernels,
    .fuses = mr__k_supports,
    .block_workspace = mr__cpu_block_workspace,
    .run_block = mr__cpu_run_block,
};

mr_code
mr__cpu_register(void)
{
    return mr__device_register(&mr__cpu_device);
}
