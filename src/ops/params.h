/* SPDX-License-Identifier: Apache-2.0
 *
 * params.h -- the parameters of the operators that have any: all of ops/ that
 * devices and files know.
 *
 * Below, "inputs" gives the order of a node's inputs, "output" its shape and
 * dtype.  Unless said otherwise the output has the dtype of input 0.  What is
 * said of kernels holds for every device.  Operators that fuse (elementwise,
 * reductions) have no kernel and stand here only where they have parameters;
 * a view has a kernel only where "copies" is said: it is asked when the layout
 * of the input allows no view, and copies the elements in row-major order.
 *
 * Index arrays have any integer dtype; negative entries count from the end; an
 * entry out of [-n, n) is MR_E_INDEX, and then nothing may be read or written
 * out of bounds.
 */
#ifndef MR_OPS_PARAMS_H
#define MR_OPS_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "marram/types.h"

/* ---- casts, creation ----------------------------------------------------- */

/* cast: input x; output x's shape, dtype.  Elementwise (MR_K_CAST). */
typedef struct mr_cast_params {
    mr_dtype dtype;
} mr_cast_params;

/* arange (also linspace): no input; output (n), dtype.
 * exact: entry i is istart + i * istep, wrapping, an integer; else it is
 * fstart + i * fstep computed in double, then converted to dtype as MR_K_CAST
 * does; entry n - 1 is `last` when `last` is not NaN (and not exact). */
typedef struct mr_arange_params {
    mr_dtype dtype;
    int64_t n;
    bool exact;
    int64_t istart, istep;
    double fstart, fstep, last;
} mr_arange_params;

/* random_bits: input key, uint32 (batch..., 2); output (batch..., shape...),
 * uint8, uint16 or uint32 by width 1, 2 or 4 (bytes).  Each key gives its own
 * stream (Threefry-2x32, random.c says how words are laid out). */
typedef struct mr_random_bits_params {
    mr_ints shape;
    int64_t width;
} mr_random_bits_params;

/* ---- shapes -------------------------------------------------------------- */

/* reshape (view, copies): one entry of shape may be -1. */
typedef struct mr_reshape_params {
    mr_ints shape;
} mr_reshape_params;

/* flatten (view, copies): axes start..end become one. */
typedef struct mr_flatten_params {
    int32_t start, end;
} mr_flatten_params;

/* unflatten (view): axis becomes the axes of shape, one of which may be -1. */
typedef struct mr_unflatten_params {
    int32_t axis;
    mr_ints shape;
} mr_unflatten_params;

/* transpose (view): output axis k is input axis axes[k]. */
typedef struct mr_transpose_params {
    mr_ints axes;
} mr_transpose_params;

/* broadcast_to (view): shape is the output's.  implicit: made by a front door
 * to line operands up, not asked for. */
typedef struct mr_broadcast_params {
    mr_ints shape;
    bool implicit;
} mr_broadcast_params;

/* expand_dims (view): axes are those of the output that are new;
 * squeeze (view): axes are those of the input that go. */
typedef struct mr_axes_params {
    uint32_t axes;
} mr_axes_params;

/* diagonal (view): axes axis1 and axis2 go, the diagonal comes last. */
typedef struct mr_diagonal_params {
    int64_t offset;
    int32_t axis1, axis2;
} mr_diagonal_params;

/* split_piece (view): piece `index` of `sections` equal pieces of axis. */
typedef struct mr_split_params {
    int32_t axis;
    int64_t index, sections;
} mr_split_params;

/* concatenate: n inputs of one dtype that agree but for axis. */
typedef struct mr_axis_params {
    int32_t axis;
} mr_axis_params;

/* pad_constant: inputs x, value (0-d, x's dtype); low[k] and high[k] (>= 0)
 * entries of value before and after axis k. */
typedef struct mr_pad_params {
    mr_ints low, high;
} mr_pad_params;

/* view: input x; output x's bytes as dtype: the last axis times
 * size(x) / size(dtype).  Kernel: copies the bytes of a row-major input. */
typedef struct mr_view_params {
    mr_dtype dtype;
} mr_view_params;

/* contiguous (view when x is row-major, else copies), stop_gradient (view):
 * no parameters. */

/* ---- indexing ------------------------------------------------------------ */

/* index_slice (view): input x.  index_slice_update: inputs x, update (of the
 * slice's shape, x's dtype); output x with
 * update written to the slice.  One entry an axis, as Python's slice():
 * negative starts and stops count from the end, all are clamped,
 * MR_INT_NONE is "left out"; strides are neither 0 nor INT64_MIN. */
typedef struct mr_slice_params {
    mr_ints start, stop, stride;
} mr_slice_params;

/* The slice of an axis of size n: the first entry, how many there are. */
static inline void
mr__slice_axis(const mr_slice_params *p, int axis, int64_t n, int64_t *first,
               int64_t *count)
{
    int64_t a = p->start.v[axis], b = p->stop.v[axis], s = p->stride.v[axis];
    int64_t low = s > 0 ? 0 : -1, high = s > 0 ? n : n - 1;

    if (a == MR_INT_NONE)
        a = s > 0 ? low : high;
    else {
        a = a < 0 ? a + n : a;
        a = a < low ? low : a > high ? high : a;
    }
    if (b == MR_INT_NONE)
        b = s > 0 ? high : low;
    else {
        b = b < 0 ? b + n : b;
        b = b < low ? low : b > high ? high : b;
    }
    *first = a;
    if (s > 0)
        *count = b > a ? (b - a - 1) / s + 1 : 0;
    else
        *count = a > b ? (a - b - 1) / -s + 1 : 0;
}

/* index_gather: inputs x, then one index array for each entry of axes, all of
 * one shape I (the front door broadcast them).  output I + sizes: entry [i...,
 * s...] is x at s, with index_k[i] added on axis axes[k].  sizes has one entry
 * an axis of x; an index i on an axis of size n must leave room: 0 <= i <= n -
 * size after the end-relative entry was resolved. */
typedef struct mr_gather_params {
    mr_ints axes, sizes;
} mr_gather_params;

/* index_scatter: inputs x, then the index arrays (one shape I), last the
 * updates, I + sizes, x's dtype; output x with the updates combined in
 * row-major order of the updates: of equal places the last set wins. */
typedef enum mr_scatter_mode {
    MR_SCATTER_SET = 0,
    MR_SCATTER_ADD = 1,
    MR_SCATTER_MULTIPLY = 2,
    MR_SCATTER_MAXIMUM = 3, /* NaN wins */
    MR_SCATTER_MINIMUM = 4
} mr_scatter_mode;

typedef struct mr_scatter_params {
    mr_ints axes;
    int64_t mode; /* mr_scatter_mode */
} mr_scatter_params;

/* take_along_axis (mr_axis_params): inputs x, index, equal but for axis;
 * output index's shape: x[..., index[..., j, ...], ...]. */

/* put_along_axis: inputs x, index, values (index's shape, x's dtype); output
 * x with the values combined as scatter does. */
typedef struct mr_put_params {
    int32_t axis;
    int64_t mode; /* mr_scatter_mode: SET or ADD */
} mr_put_params;

/* mask_places: input mask (batch..., n), bool; output (batch..., size), dtype
 * int32 or int64: where each row is True, in order, then `fill`; cut when there
 * are more. */
typedef struct mr_mask_places_params {
    int64_t size, fill;
    mr_dtype dtype;
} mr_mask_places_params;

/* mask_compress: inputs x (batch..., n, inner...), mask (batch..., n), bool;
 * output (batch..., size, inner...): the entries where the mask is True, in
 * order, then zeros; cut when there are more.
 * repeat_places: input counts (batch..., n), int64; output (batch..., size),
 * int64: each place of a row as often as its count says, then n - 1; cut when
 * there are more.  A negative count is MR_E_VALUE.
 * repeat_entries: inputs x (batch..., n, inner...), counts (batch..., n);
 * output (batch..., size, inner...): the entries at these places. */
typedef struct mr_mask_size_params {
    int64_t size;
} mr_mask_size_params;

/* mask_expand: inputs values (batch..., m, inner...), mask (batch..., n),
 * bool; output (batch..., n, inner...): value k where the mask is True for the
 * k-th time, zeros elsewhere and where there are no values left; exact: that is
 * MR_E_STATE. */
typedef struct mr_mask_expand_params {
    bool exact;
} mr_mask_expand_params;

/* ---- products, rows ------------------------------------------------------ */

/* matmul: inputs a (..., m, k), b (..., k, n), one inexact dtype, both of at
 * least 2 axes; batch axes broadcast (aligned at the right); no parameters.
 * k == 0 gives zeros.  Halves accumulate in float32. */

/* softmax (mr_axis_params): input x, real inexact, at least 1 axis: over the
 * axis; halves are computed in float32 and rounded once.  A row of -inf gives
 * NaN. */

/* layer_norm, rms_norm: inputs x (..., n), real inexact; then weight (n) if
 * has_weight, then bias (n) if has_bias (layer_norm alone), x's dtype.  Over
 * the last axis: (x - mean) * rsqrt(variance + eps) * weight + bias, with the
 * mean of squared differences as variance; x * rsqrt(mean(x^2) + eps) *
 * weight.  Halves are computed in float32 and rounded once at the end. */
typedef struct mr_norm_params {
    double eps;
    bool has_weight, has_bias;
} mr_norm_params;

/* attention: inputs q (B, Hq, Lq, D), k (B, Hkv, Lkv, D), v (B, Hkv, Lkv, Dv),
 * Hq a multiple of Hkv, float32 or a half, one dtype; then mask (bool or
 * floating, not float64), four axes of that size or 1, if has_mask; then sinks
 * (1 or B, Hq) if has_sinks; output (B, Hq, Lq, Dv): softmax(scale q k^T +
 * mask) v, in float32, rounded once.  Of a bool mask True keeps; causal: query
 * i sees keys up to i + Lkv - Lq.  What is dropped scores the lowest finite
 * number.  A sink is a logit that joins its head's rows without a value. */
typedef struct mr_attention_params {
    double scale;
    bool causal, has_mask, has_sinks;
} mr_attention_params;

/* attention_back: the inputs of attention, then what comes back to its output,
 * then that output, both like it.  Outputs: what comes back to q, k and v, like
 * these, and to the sinks, float32 (B, Hq), 0 without sinks; with `lead` their
 * first axis is cut into these and the rest. */
typedef struct mr_attention_back_params {
    mr_attention_params of;
    mr_ints lead;
} mr_attention_back_params;

/* ---- order, scans -------------------------------------------------------- */

/* sort, argsort (output uint32), mr_axis_params: ascending, stable, NaN last;
 * complex: by real, then imaginary part. */

/* partition_places: input x, real; output uint32: the
 * places along axis such that a stable sort's kth is the kth, what is smaller
 * comes before it, what is larger behind, each in order of place.  tail: from
 * the kth on alone.  0 <= kth < n. */
typedef struct mr_partition_params {
    int32_t axis;
    int64_t kth;
    bool tail;
} mr_partition_params;

/* scan: input x; output x's shape and dtype: running combination along axis.
 * exclusive: entry i combines the entries before it and the first is the
 * neutral value (0, 1, lowest or -inf, highest or inf, -inf).  Halves carry
 * float32, rounded at each output.  NaN goes through from where it occurs. */
typedef enum mr_scan_mode {
    MR_SCAN_SUM = 0,
    MR_SCAN_PROD = 1,
    MR_SCAN_MAX = 2,
    MR_SCAN_MIN = 3,
    MR_SCAN_LOGADDEXP = 4 /* real inexact alone */
} mr_scan_mode;

typedef struct mr_scan_params {
    int32_t axis;
    int64_t mode; /* mr_scan_mode */
    bool reverse, inclusive;
} mr_scan_params;

/* is_among: inputs x, others (not empty), of one dtype, not complex; output
 * bool, x's shape.  NaN is among none. */

/* searchsorted: inputs sorted (n), values (any shape, the same dtype); output
 * values' shape, uint32: how many of sorted are < (right: <=) the value; a
 * NaN is larger than all numbers and equal to NaN. */
typedef struct mr_searchsorted_params {
    bool right;
} mr_searchsorted_params;

/* ---- Fourier transforms -------------------------------------------------- */

/* A transform of length n is scaled by 1 (MR_FFT_UNSCALED), 1 / sqrt n or
 * 1 / n.  n == MR_INT_NONE: the axis as it is; else it is cropped or filled
 * with zeros first.
 * fft_c2c: complex; over one axis of length n, or (n left out) over several,
 * a bit each; inverse: exp(+2 pi i j k / n).  fft_r2c: real, output complex of
 * n / 2 + 1 along the axis.  fft_c2r: complex, of which n / 2 + 1 count (the
 * imaginary parts of number 0 and, n even, n / 2 do not), output n reals along
 * the axis: the inverse of a transform that continues with the conjugates; n
 * left out: 2 (m - 1) for m numbers. */
typedef enum mr_fft_scale {
    MR_FFT_UNSCALED = 0,
    MR_FFT_ORTHO = 1,
    MR_FFT_MEAN = 2
} mr_fft_scale;

typedef struct mr_fft_params {
    uint32_t axes;
    int64_t n;
    int64_t scale; /* mr_fft_scale */
    bool inverse;  /* fft_c2c alone */
} mr_fft_params;

/* frames (view): input (..., n); output (..., count, size) with count = (n -
 * size) / hop + 1 (0 when n < size): frame f is x[f hop : f hop + size].
 * overlap_add: input (..., count, size), output (..., length): entries start
 * ... of the signal to which frame f is added from f hop on, in the order of
 * the frames.  nonzero: a real entry of absolute value below 1e-11 is
 * MR_E_VALUE. */
typedef struct mr_frames_params {
    int64_t size, hop;
} mr_frames_params;

typedef struct mr_overlap_params {
    int64_t hop, start, length;
    bool nonzero;
} mr_overlap_params;

/* ---- convolution --------------------------------------------------------- */

/* conv_general: inputs x (N, spatial..., C), w (O, kernel..., C / groups), one
 * real inexact dtype, 1 to 3 spatial axes; output (N, out..., O).
 * Cross-correlation (flip: the kernel reversed on all spatial axes) of x, with
 * input_dilation - 1 zeros between its entries and then low/high zeros around
 * it (negative: cropped).  Group g of the O / groups outputs sees the g-th
 * C / groups channels.  Halves accumulate in float32. */
typedef struct mr_conv_params {
    mr_ints stride, low, high, kernel_dilation, input_dilation;
    int64_t groups;
    bool flip;
} mr_conv_params;

/* conv_weight: inputs x (N, spatial..., C) and g (N, out..., O), float32 or
 * halves; output (O, kernel..., C / groups), float32: what comes back to the
 * weights of conv_general when g comes back to its output.  input_dilation
 * is 1. */
typedef struct mr_conv_weight_params {
    mr_conv_params of;
    mr_ints kernel;
} mr_conv_weight_params;

/* ---- quantisation ---------------------------------------------------------
 * Packed w is uint32 (..., rows, K * bits / 32): the codes of a row are one
 * little-endian stream of bits.  scales (and biases) are (..., rows, K /
 * group): of a float type for MR_QUANT_AFFINE, bytes for the others.
 *
 * quantize: input w, float16, bfloat16 or float32; outputs packed, scales,
 * biases.  quantize_float: the other modes, with global_scale (one float32) as
 * input 1 when has_global; outputs packed, scales.
 * dequantize: inputs packed, scales, then biases (affine) or global_scale
 * (has_global); output dtype, which in affine mode is the scales'.
 * quantize_round: as quantize_float, output w rounded to the format; ties_even:
 * ties of 4-bit elements go to the even one, not to the lower code.
 * quantized_matmul: inputs x (..., M, inner), packed, scales, biases (affine);
 * output (..., M, outer), x's dtype; leading axes broadcast.  gather_qmm: the
 * same, then two index arrays of one shape I, which pick matrices of the
 * flattened leading axes; output I + (M, outer). */
typedef enum mr_quant_mode {
    MR_QUANT_AFFINE = 0,
    MR_QUANT_MXFP4 = 1,
    MR_QUANT_MXFP8 = 2,
    MR_QUANT_NVFP4 = 3
} mr_quant_mode;

typedef struct mr_quant_params {
    int64_t group, bits, mode; /* mr_quant_mode */
    bool transpose;            /* products: of w, as it is packed */
    bool has_global;
    bool ties_even; /* quantize_round */
    mr_dtype dtype; /* dequantize */
} mr_quant_params;

/* to_fp8: input real inexact, output uint8.  from_fp8 (mr_cast_params): input
 * uint8, output dtype.  E4M3. */

/* ---- linear algebra -------------------------------------------------------
 *
 * Inputs are matrices in the last two axes, all of float32 or float64
 * (eigh, eigvalsh, svd, svdvals, eig, eigvals, solve, inv also complex64 and
 * complex128); leading axes are a batch, the same for all inputs.  Factors
 * keep LAPACK's signs and order.  A matrix that cannot be worked on is
 * MR_E_VALUE, with its place in the batch; NaN and infinities give NaN. */

/* cholesky: the factor, upper or lower; eigh, eigvalsh, solve_triangular:
 * upper says which triangle is read.
 * eigh: outputs w (..., n) real, ascending, v (..., n, n); eigvalsh: w.
 * solve_triangular: inputs a (..., n, n), b (..., n, k). */
typedef struct mr_triangle_params {
    bool upper;
} mr_triangle_params;

/* solve: inputs a (..., n, n), b (..., n, k); no parameters. */

/* inv.  unchecked: NaN for a singular matrix. */
typedef struct mr_inverse_params {
    bool unchecked;
} mr_inverse_params;

/* det: output (...).  slogdet: outputs sign (...), log|det| (...).  cofactor:
 * d det / d x, also of singular matrices.  lu_packed: outputs L and U in one
 * (..., m, n), pivots (..., min(m, n)) and, for each row of the input, the row
 * of L that it became (..., m), both uint32.  qr: outputs q (..., m, k),
 * r (..., k, n), k = min(m, n).  pinv: inputs a (..., m, n) and perhaps rtol
 * (..., 1, 1), output (..., n, m).  svdvals: output
 * (..., k).  eig: outputs w (..., n), v (..., n, n), complex; eigvals: w.
 * No parameters. */

/* svd: outputs u (..., m, m or k), s (..., k) real, vt (..., n or k, n). */
typedef struct mr_svd_params {
    bool full;
} mr_svd_params;

/* hadamard_transform: input x, float32 or float64, the last axis m * 2^j with
 * m in 1, 12, 20, 28; times scale, NaN: 1 / sqrt(size). */
typedef struct mr_hadamard_params {
    double scale;
    bool transposed; /* the transposed map */
} mr_hadamard_params;

#endif
