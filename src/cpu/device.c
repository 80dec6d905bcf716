/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c -- the CPU's device table: host memory, block programs, a kernel
 * for every operator that neither fuses nor is a view.
 *
 * Called by: eval's start (mr__cpu_register).  Calls: everything here.
 */
#include "cpu/blocks.h"
#include "cpu/cpu.h"
#include "cpu/quant.h"
#include "gen/ids.h"

/* Bit i: input i must be row-major. */
enum { INPUT_0 = 1, INPUT_1 = 2 };

/* Nanoseconds on one thread of what moves memory by index, not in order. */
static double
indexed_cost(const mr_kernel_args *a)
{
    bool over = a->out[0].data == a->in[0].data;
    int64_t n = over ? 0 : a->out[0].size;

    for (int i = over; i < a->n_in; i++)
        n = a->in[i].size > n ? a->in[i].size : n;
    return 200.0 + 4.0 * (double)n;
}

/* Row operators: a few passes and an exponential. */
static double
rows_cost(const mr_kernel_args *a)
{
    return 500.0 + 1.0 * (double)a->out[0].size;
}

/* The rows of linalg.c. */
#define LINALG(op_)                                                            \
    {                                                                          \
        .op = (op_), .run = mr__cpu_linalg,                                    \
        .workspace = mr__cpu_linalg_workspace, .cost = mr__cpu_linalg_cost,    \
        .refuses = true                                                        \
    }

static const mr_kernel kernels[] = {
    {.op = MR_OP_RESHAPE, .run = mr__cpu_copy},
    {.op = MR_OP_FLATTEN, .run = mr__cpu_copy},
    {.op = MR_OP_CONTIGUOUS, .run = mr__cpu_copy},
    {.op = MR_OP_VIEW, .contiguous = INPUT_0, .run = mr__cpu_view},
    {.op = MR_OP_CONCATENATE, .run = mr__cpu_concatenate},
    {.op = MR_OP_PAD_CONSTANT, .run = mr__cpu_pad},
    {.op = MR_OP_INDEX_SLICE_UPDATE, .run = mr__cpu_slice_update, .over = 1},
    {.op = MR_OP_ARANGE, .run = mr__cpu_arange},
    {.op = MR_OP_RANDOM_BITS, .run = mr__cpu_random_bits},
    {.op = MR_OP_INDEX_GATHER,
     .refuses = true,
     .run = mr__cpu_gather,
     .workspace = mr__cpu_gather_workspace,
     .cost = indexed_cost},
    {.op = MR_OP_INDEX_SCATTER,
     .refuses = true,
     .run = mr__cpu_scatter,
     .workspace = mr__cpu_scatter_workspace,
     .cost = indexed_cost,
     .over = 1},
    {.op = MR_OP_TAKE_ALONG_AXIS,
     .refuses = true,
     .run = mr__cpu_take_along_axis,
     .cost = indexed_cost},
    {.op = MR_OP_PUT_ALONG_AXIS,
     .refuses = true,
     .run = mr__cpu_put_along_axis,
     .workspace = mr__cpu_put_along_axis_workspace,
     .cost = indexed_cost,
     .over = 1},
    {.op = MR_OP_MATMUL,
     .run = mr__cpu_matmul,
     .workspace = mr__cpu_matmul_workspace,
     .cost = mr__cpu_matmul_cost,
     .epilogue = true},
    {.op = MR_OP_CONV_GENERAL,
     .contiguous = MR_KERNEL_ALL_CONTIGUOUS,
     .run = mr__cpu_conv,
     .workspace = mr__cpu_conv_workspace,
     .cost = mr__cpu_conv_cost,
     .epilogue = true},
    {.op = MR_OP_CONV_WEIGHT,
     .contiguous = MR_KERNEL_ALL_CONTIGUOUS,
     .run = mr__cpu_conv_weight,
     .workspace = mr__cpu_conv_weight_workspace,
     .cost = mr__cpu_conv_weight_cost},
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
    {.op = MR_OP_ATTENTION,
     .run = mr__cpu_attention,
     .workspace = mr__cpu_attention_workspace,
     .cost = mr__cpu_attention_cost},
    {.op = MR_OP_ATTENTION_BACK,
     .run = mr__cpu_attention_back,
     .workspace = mr__cpu_attention_back_workspace,
     .cost = mr__cpu_attention_back_cost},
    {.op = MR_OP_SORT,
     .run = mr__cpu_sort,
     .workspace = mr__cpu_sort_workspace,
     .cost = mr__cpu_sort_cost},
    {.op = MR_OP_ARGSORT,
     .run = mr__cpu_argsort,
     .workspace = mr__cpu_argsort_workspace,
     .cost = mr__cpu_sort_cost},
    {.op = MR_OP_PARTITION_PLACES,
     .run = mr__cpu_partition_places,
     .workspace = mr__cpu_partition_workspace,
     .cost = mr__cpu_partition_cost},
    {.op = MR_OP_SEARCHSORTED, .run = mr__cpu_searchsorted},
    {.op = MR_OP_IS_AMONG,
     .contiguous = MR_KERNEL_ALL_CONTIGUOUS,
     .run = mr__cpu_is_among,
     .cost = indexed_cost},
    {.op = MR_OP_SCAN,
     .contiguous = INPUT_0,
     .run = mr__cpu_scan,
     .workspace = mr__cpu_scan_workspace},
    {.op = MR_OP_MASK_PLACES,
     .refuses = true,
     .contiguous = INPUT_0,
     .run = mr__cpu_mask_places,
     .workspace = mr__cpu_compact_workspace,
     .cost = mr__cpu_compact_cost},
    {.op = MR_OP_MASK_COMPRESS,
     .refuses = true,
     .contiguous = INPUT_1,
     .run = mr__cpu_mask_compress,
     .workspace = mr__cpu_compact_workspace,
     .cost = mr__cpu_compact_cost},
    {.op = MR_OP_MASK_EXPAND,
     .refuses = true,
     .contiguous = INPUT_1,
     .run = mr__cpu_mask_expand,
     .workspace = mr__cpu_compact_workspace,
     .cost = mr__cpu_compact_cost},
    {.op = MR_OP_REPEAT_PLACES,
     .refuses = true,
     .contiguous = INPUT_0,
     .run = mr__cpu_repeat_places,
     .workspace = mr__cpu_compact_workspace,
     .cost = mr__cpu_compact_cost},
    {.op = MR_OP_REPEAT_ENTRIES,
     .refuses = true,
     .contiguous = INPUT_1,
     .run = mr__cpu_repeat_entries,
     .workspace = mr__cpu_compact_workspace,
     .cost = mr__cpu_compact_cost},
    {.op = MR_OP_QUANTIZE,
     .contiguous = MR_KERNEL_ALL_CONTIGUOUS,
     .run = mr__cpu_quantize},
    {.op = MR_OP_QUANTIZE_FLOAT,
     .contiguous = MR_KERNEL_ALL_CONTIGUOUS,
     .run = mr__cpu_quantize_float},
    {.op = MR_OP_QUANTIZE_ROUND,
     .contiguous = MR_KERNEL_ALL_CONTIGUOUS,
     .run = mr__cpu_quantize_round},
    {.op = MR_OP_DEQUANTIZE,
     .contiguous = MR_KERNEL_ALL_CONTIGUOUS,
     .run = mr__cpu_dequantize},
    {.op = MR_OP_TO_FP8, .contiguous = INPUT_0, .run = mr__cpu_to_fp8},
    {.op = MR_OP_FROM_FP8, .contiguous = INPUT_0, .run = mr__cpu_from_fp8},
    {.op = MR_OP_QUANTIZED_MATMUL,
     .contiguous = MR_KERNEL_ALL_CONTIGUOUS,
     .run = mr__cpu_quantized_matmul,
     .workspace = mr__cpu_quantized_matmul_workspace,
     .cost = mr__cpu_quantized_matmul_cost,
     .epilogue = true},
    {.op = MR_OP_GATHER_QMM,
     .refuses = true,
     .contiguous = MR_KERNEL_ALL_CONTIGUOUS,
     .run = mr__cpu_gather_qmm,
     .workspace = mr__cpu_gather_qmm_workspace,
     .cost = mr__cpu_quantized_matmul_cost,
     .epilogue = true},
    {.op = MR_OP_FFT_C2C,
     .run = mr__cpu_fft,
     .workspace = mr__cpu_fft_workspace,
     .cost = mr__cpu_fft_cost},
    {.op = MR_OP_FFT_R2C,
     .run = mr__cpu_fft,
     .workspace = mr__cpu_fft_workspace,
     .cost = mr__cpu_fft_cost},
    {.op = MR_OP_FFT_C2R,
     .run = mr__cpu_fft,
     .workspace = mr__cpu_fft_workspace,
     .cost = mr__cpu_fft_cost},
    {.op = MR_OP_OVERLAP_ADD, .refuses = true, .run = mr__cpu_overlap_add},
    {.op = MR_ID_LOOP,
     .refuses = true,
     .contiguous = MR_KERNEL_ALL_CONTIGUOUS,
     .run = mr__cpu_loop,
     .workspace = mr__cpu_loop_workspace,
     .cost = mr__cpu_loop_cost},
    {.op = MR_OP_HADAMARD_TRANSFORM, .run = mr__cpu_hadamard},
    LINALG(MR_OP_SOLVE),
    LINALG(MR_OP_INV),
    LINALG(MR_OP_SOLVE_TRIANGULAR),
    LINALG(MR_OP_DET),
    LINALG(MR_OP_SLOGDET),
    LINALG(MR_OP_COFACTOR),
    LINALG(MR_OP_LU_PACKED),
    LINALG(MR_OP_CHOLESKY),
    LINALG(MR_OP_QR),
    LINALG(MR_OP_EIGH),
    LINALG(MR_OP_EIGVALSH),
    LINALG(MR_OP_SVD),
    LINALG(MR_OP_SVDVALS),
    LINALG(MR_OP_PINV),
    LINALG(MR_OP_EIG),
    LINALG(MR_OP_EIGVALS),
    {0},
};

const mr_kernel *
mr__cpu_kernel(uint16_t op)
{
    for (const mr_kernel *k = kernels; k->run != NULL; k++)
        if (k->op == op)
            return k;
    return NULL;
}

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
    .block_ready = mr__cpu_block_ready,
    .run_ready = mr__cpu_run_ready,
    .fuses = mr__k_supports,
    .block_workspace = mr__cpu_block_workspace,
    .run_block = mr__cpu_run_block,
};

mr_code
mr__cpu_register(void)
{
    return mr__device_register(&mr__cpu_device);
}
