/* SPDX-License-Identifier: Apache-2.0
 *
 * stft.c -- frames of signals, and their transforms there and back.
 *
 * Two operators: frames is a view of a signal in which frames overlap, and
 * overlap_add adds frames up where they do.  Each is the other's adjoint.
 * Called by: the generated doors, transforms.  Calls: marram/ops.h.
 */
#include <string.h>

#include "array/dtype.h"
#include "base/error.h"
#include "gen/build.h"
#include "gen/ids.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "ops/door.h"
#include "ops/params.h"
#include "ops/rules.h"

/* x with `before` and `after` zeros, or less as many entries, along the last
 * axis. */
static mr_array *
extended(mr_array *x, int64_t before, int64_t after)
{
    int64_t pairs[2 * MR_MAX_NDIM] = {0};
    int32_t last;

    if (x == NULL)
        return NULL;
    last = x->ndim - 1;
    if (before < 0 || after < 0)
        x = mr__slice_one(x, last, before < 0 ? -before : 0,
                          x->dim[last] + (after < 0 ? after : 0), 1);
    if (before <= 0 && after <= 0)
        return x;
    pairs[2 * last] = before > 0 ? before : 0;
    pairs[2 * last + 1] = after > 0 ? after : 0;
    return mr_pad(x, (mr_ints){pairs, 2 * (int64_t)(last + 1)}, "constant",
                  MR_NONE);
}

/* ---- frames
 * --------------------------------------------------------------------- */

static mr_array *
frames_node(mr_array *x, mr_frames_params p)
{
    return x == NULL ? NULL : mr__node_new(&mr__op_frames, &p, 1, &x);
}

static mr_array *
overlap_node(mr_array *x, mr_overlap_params p)
{
    return x == NULL ? NULL : mr__node_new(&mr__op_overlap_add, &p, 1, &x);
}

static mr_code
frames_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_frames_params *p = c->params;
    int32_t k = c->in[0]->ndim - 1;
    int64_t n = c->in[0]->dim[k];

    mr__aval_like(out, c->in[0]);
    if (out->ndim == MR_MAX_NDIM)
        return mr__fail(MR_E_VALUE, "frames of an array of %d axes: needs less",
                        MR_MAX_NDIM);
    out->ndim++;
    out->dim[k] = n < p->size ? 0 : (n - p->size) / p->hop + 1;
    out->dim[k + 1] = p->size;
    return mr__check_shape(out->ndim, out->dim);
}

static bool
frames_view(const mr_node *n, const mr_layout *in, mr_layout *out)
{
    const mr_frames_params *p = mr__params(n);
    int32_t k = in->ndim - 1;

    *out = *in;
    out->ndim = n->ndim;
    out->dim[k] = n->dim[k];
    out->dim[k + 1] = n->dim[k + 1];
    out->stride[k] = p->hop * in->stride[k];
    out->stride[k + 1] = in->stride[k];
    return true;
}

static mr_array *
frames_vjp(const mr_rule *r, int i)
{
    const mr_frames_params *p = mr__params(r->node);
    const mr_array *x = r->primal[i];

    return overlap_node(
        r->cotangent[0],
        (mr_overlap_params){.hop = p->hop, .length = x->dim[x->ndim - 1]});
}

static mr_array *
linear_jvp(const mr_rule *r, int i)
{
    return mr__again(r, r->tangent[i]);
}

static mr_array *
frames_vmap(const mr_batch *b)
{
    return frames_node(b->in[0],
                       *(const mr_frames_params *)mr__params(b->node));
}

static const mr_field frames_fields[] = {
    MR_FIELD(1, DIM, mr_frames_params, size),
    MR_FIELD(2, INT, mr_frames_params, hop),
};

const mr_op mr__op_frames = {
    .id = MR_OP_FRAMES,
    .version = 1,
    .n_in = 1,
    .name = "frames",
    .flags = MR_FLAG_LINEAR,
    MR__PARAMS(mr_frames_params, frames_fields),
    .fuse = {MR_FUSE_VIEW, 0},
    .infer = frames_infer,
    .vjp = frames_vjp,
    .jvp = linear_jvp,
    .vmap = frames_vmap,
    .view = frames_view,
};

/* ---- overlap_add
 * ---------------------------------------------------------------- */

static mr_code
overlap_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_overlap_params *p = c->params;

    mr__aval_like(out, c->in[0]);
    out->ndim--;
    out->dim[out->ndim - 1] = p->length;
    return mr__check_shape(out->ndim, out->dim);
}

static mr_array *
overlap_vjp(const mr_rule *r, int i)
{
    const mr_overlap_params *p = mr__params(r->node);
    const mr_array *x = r->primal[i];
    int64_t count = x->dim[x->ndim - 2], size = x->dim[x->ndim - 1];
    int64_t total = (count - 1) * p->hop + size;

    if (x->size == 0)
        return mr__zeros_like(x);
    return frames_node(
        extended(r->cotangent[0], p->start, total - p->start - p->length),
        (mr_frames_params){size, p->hop});
}

/* A sum that must not vanish is no condition on its tangents. */
static mr_array *
overlap_jvp(const mr_rule *r, int i)
{
    mr_overlap_params p = *(const mr_overlap_params *)mr__params(r->node);

    p.nonzero = false;
    return overlap_node(r->tangent[i], p);
}

static mr_array *
overlap_vmap(const mr_batch *b)
{
    return overlap_node(b->in[0],
                        *(const mr_overlap_params *)mr__params(b->node));
}

static const mr_field overlap_fields[] = {
    MR_FIELD(1, INT, mr_overlap_params, hop),
    MR_FIELD(2, INT, mr_overlap_params, start),
    MR_FIELD(3, DIM, mr_overlap_params, length),
    MR_FIELD(4, BOOL, mr_overlap_params, nonzero),
};

const mr_op mr__op_overlap_add = {
    .id = MR_OP_OVERLAP_ADD,
    .version = 1,
    .n_in = 1,
    .name = "overlap_add",
    .flags = MR_FLAG_LINEAR,
    MR__PARAMS(mr_overlap_params, overlap_fields),
    .infer = overlap_infer,
    .vjp = overlap_vjp,
    .jvp = overlap_jvp,
    .vmap = overlap_vmap,
};

/* ---- the short-time transform
 * ---------------------------------------------------------- */

/* The dtype of frames: that of the signal, halves and integers as float32. */
static mr_array *
as_signal(mr_array *x)
{
    mr_dtype t = (mr_dtype)x->dtype;
    bool keeps = t == MR_FLOAT64 || t == MR_COMPLEX128 || t == MR_COMPLEX64;

    return mr__cast(x, keeps ? t : MR_FLOAT32);
}

static bool
sizes_resolve(int64_t n_fft, int64_t *hop, int64_t *win)
{
    if (n_fft < 1) {
        mr__fail(MR_E_VALUE, "n_fft is %lld: needs 1 or more",
                 (long long)n_fft);
        return false;
    }
    if (*hop == MR_INT_NONE)
        *hop = n_fft < 4 ? 1 : n_fft / 4;
    if (*hop < 1) {
        mr__fail(MR_E_VALUE, "hop_length is %lld: needs 1 or more",
                 (long long)*hop);
        return false;
    }
    if (*win != MR_INT_NONE && (*win < 1 || *win > n_fft)) {
        mr__fail(MR_E_VALUE, "win_length is %lld: needs 1 to n_fft, %lld",
                 (long long)*win, (long long)n_fft);
        return false;
    }
    return true;
}

/* The window of n_fft entries in type t, a shorter one in the middle of
 * zeros. */
static mr_array *
window_of(mr_array *window, int64_t win, int64_t n_fft, mr_dtype t)
{
    mr_text shape;
    int64_t n, before;

    if (window == MR_NONE) {
        n = win == MR_INT_NONE ? n_fft : win;
        window = mr_ones(MR_SHAPE(n), t);
    } else {
        if (mr__dtype_is_complex((mr_dtype)window->dtype))
            return mr__fail_null(MR_E_DTYPE, "the window is %s: needs reals",
                                 mr_dtype_name((mr_dtype)window->dtype));
        n = window->ndim == 1 ? window->dim[0] : -1;
        if (n < 1 || n > n_fft || (win != MR_INT_NONE && n != win))
            return mr__fail_null(MR_E_VALUE,
                                 "the window has shape %s: needs (%lld)%s",
                                 mr__shape_of(window, &shape),
                                 (long long)(win == MR_INT_NONE ? n_fft : win),
                                 win == MR_INT_NONE ? " or less" : "");
        window = mr__cast(window, t);
    }
    before = (n_fft - n) / 2;
    return extended(window, before, n_fft - n - before);
}

/* Half of the frequencies, by default where the signal is real. */
static bool
is_onesided(int64_t onesided, bool otherwise)
{
    return onesided == MR_INT_NONE ? otherwise : onesided != 0;
}

/* n_fft / 2 entries more at both ends. */
static mr_array *
centered(mr_array *x, int64_t n_fft, const char *pad_mode)
{
    int64_t pairs[2 * MR_MAX_NDIM] = {0};
    int32_t last = x->ndim - 1;

    pairs[2 * last] = pairs[2 * last + 1] = n_fft / 2;
    return mr_pad(x, (mr_ints){pairs, 2 * (int64_t)x->ndim}, pad_mode, MR_NONE);
}

mr_array *
mr__build_fft_stft(mr_array *x, int64_t n_fft, int64_t hop_length,
                   int64_t win_length, mr_array *window, bool center,
                   const char *pad_mode, const char *norm, int64_t onesided)
{
    int64_t n;
    bool half;

    if (x->ndim < 1)
        return mr__fail_null(MR_E_VALUE, "a signal of 0 axes: needs 1 or more");
    if (!sizes_resolve(n_fft, &hop_length, &win_length) ||
        mr__pad_mode(pad_mode) == '\0')
        return NULL;
    x = as_signal(x);
    if (x == NULL)
        return NULL;
    half = is_onesided(onesided, !mr__dtype_is_complex((mr_dtype)x->dtype));
    window =
        window_of(window, win_length, n_fft, mr__to_real((mr_dtype)x->dtype));
    x = center ? centered(x, n_fft, pad_mode) : x;
    if (x == NULL || window == NULL)
        return NULL;
    n = x->dim[x->ndim - 1];
    if (n < n_fft)
        return mr__fail_null(MR_E_VALUE,
                             "a signal of %lld entries is shorter than n_fft, "
                             "%lld",
                             (long long)n, (long long)n_fft);
    x = frames_node(x, (mr_frames_params){n_fft, hop_length});
    x = mr_multiply(x, window);
    x = half ? mr_fft_rfft(x, MR_INT_NONE, -1, norm)
             : mr_fft_fft(x, MR_INT_NONE, -1, norm);
    return mr_swapaxes(x, -1, -2);
}

/* Frames of real numbers from their frequencies, (..., frequency, frame). */
static mr_array *
frames_of(mr_array *m, int64_t n_fft, bool half, const char *norm)
{
    m = mr_swapaxes(m, -1, -2);
    if (half)
        return mr_fft_irfft(m, n_fft, -1, norm);
    return mr_real(mr_fft_ifft(m, MR_INT_NONE, -1, norm));
}

/* n_fft, and whether m holds half of the frequencies. */
static bool
frequencies_resolve(const mr_array *m, int64_t *n_fft, int64_t onesided,
                    bool *half)
{
    int64_t have = m->dim[m->ndim - 2];
    int64_t given = *n_fft;

    if (given == MR_INT_NONE) {
        *half = is_onesided(onesided, true);
        *n_fft = *half ? 2 * (have - 1) : have;
    } else {
        *half = is_onesided(onesided, have != given || given < 3);
    }
    if (*n_fft < 1 || have != (*half ? *n_fft / 2 + 1 : *n_fft)) {
        mr__fail(MR_E_VALUE,
                 "%lld frequencies do not fit n_fft %lld: needs n_fft / 2 + 1, "
                 "or n_fft when they are not onesided",
                 (long long)have, (long long)*n_fft);
        return false;
    }
    return true;
}

/* The part [start, start + length) of the signal over the sums of the squared
 * windows there. */
static mr_array *
signal_of(mr_array *frames, mr_array *window, mr_overlap_params p)
{
    int32_t k = frames->ndim - 2;
    mr_array *sums;

    sums = mr__broadcast(mr_square(window), 2, frames->dim + k);
    frames = overlap_node(mr_multiply(frames, window), p);
    p.nonzero = true;
    return mr_divide(frames, overlap_node(sums, p));
}

mr_array *
mr__build_fft_istft(mr_array *m, int64_t n_fft, int64_t hop_length,
                    int64_t win_length, mr_array *window, bool center,
                    const char *norm, int64_t onesided, int64_t length)
{
    int64_t count, total, there, ends;
    bool half;

    if (m->ndim < 2)
        return mr__fail_null(MR_E_VALUE,
                             "a matrix of %d axes: needs frequencies and "
                             "frames",
                             (int)m->ndim);
    if (length != MR_INT_NONE && length < 0)
        return mr__fail_null(MR_E_VALUE, "length is %lld: needs 0 or more",
                             (long long)length);
    if (!frequencies_resolve(m, &n_fft, onesided, &half) ||
        !sizes_resolve(n_fft, &hop_length, &win_length))
        return NULL;
    count = m->dim[m->ndim - 1];
    ends = center ? n_fft / 2 : 0;
    if (count < 1 || __builtin_mul_overflow(count - 1, hop_length, &total) ||
        __builtin_add_overflow(total, n_fft, &total))
        return mr__fail_null(MR_E_VALUE,
                             "%lld frames with hop_length %lld: needs one or "
                             "more, and a length below 2^63",
                             (long long)count, (long long)hop_length);
    m = frames_of(m, n_fft, half, norm);
    if (m == NULL)
        return NULL;
    window = window_of(window, win_length, n_fft, (mr_dtype)m->dtype);
    if (window == NULL)
        return NULL;
    there = total - 2 * ends;
    if (length != MR_INT_NONE)
        there = length < total - ends ? length : total - ends;
    there = there < 0 ? 0 : there;
    m = signal_of(
        m, window,
        (mr_overlap_params){.hop = hop_length, .start = ends, .length = there});
    return length == MR_INT_NONE ? m : extended(m, 0, length - there);
}
