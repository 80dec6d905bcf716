/* SPDX-License-Identifier: Apache-2.0
 *
 * dlpack.c -- tests of tensors given to other libraries and taken from them.
 *
 * The structs are written down here a second time, from DLPack's page:
 * https://dmlc.github.io/dlpack/latest/c_api.html
 */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "support/device.h"
#include "support/device_op.h"
#include "support/mrt.h"

typedef struct tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} tensor;

struct DLManagedTensor {
    tensor t;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
};

struct DLManagedTensorVersioned {
    uint32_t major, minor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    tensor t;
};

typedef struct DLManagedTensorVersioned versioned;
typedef struct DLManagedTensor unversioned;

enum { READ_ONLY = 1, IS_COPIED = 2 };

static mr_array *
counting(int n)
{
    return mr_arange(MR_INTEGER(0), MR_INTEGER(n), MR_INTEGER(1), MR_FLOAT32);
}

/* ---- giving ------------------------------------------------------------- */

static void *
open_later(void *unused)
{
    (void)unused;
    usleep(50000);
    mrt_gate_open(1);
    return NULL;
}

static void
to_dlpack__of_a_pending_array_waits(void **state)
{
    float three[] = {1, 2, 3};
    mr_stream s = mr_stream_new((mr_device){MR_CPU, 0});
    mr_stream old = mr_stream_scope(s);
    mr_array *x = mrt_counted_op(mr_array_from_f32(three, MR_SHAPE(3)),
                                 (mrt_counted){.counter = 1, .gate = 1});
    pthread_t thread;
    versioned *m;

    (void)state;
    mrt_counters_clear();
    mr_stream_scope(old);
    assert_int_equal(mr_async_eval(&x, 1), MR_OK);
    assert_false(mr_array_is_evaluated(x));
    assert_int_equal(pthread_create(&thread, NULL, open_later, NULL), 0);
    m = mr_to_dlpack(x, MR_DLPACK_SHARE);
    assert_non_null(m);
    assert_true(mr_array_is_evaluated(x));
    assert_memory_equal(m->t.data, ((float[]){2, 3, 4}), 12);
    assert_int_equal(mrt_runs(1), 1);
    m->deleter(m);
    pthread_join(thread, NULL);
    mr_stream_free(s);
}

static void
to_dlpack__of_a_lazy_array_evaluates_it(void **state)
{
    mr_array *x = mr_multiply(counting(4), mr_float(2));
    unversioned *m = mr_to_dlpack_unversioned(x, MR_DLPACK_SHARE);

    (void)state;
    assert_non_null(m);
    assert_memory_equal(m->t.data, ((float[]){0, 2, 4, 6}), 16);
    m->deleter(m);
}

static void
to_dlpack__says_what_the_memory_is(void **state)
{
    static const struct {
        mr_dtype dtype;
        uint8_t code, bits;
    } types[] = {
        {MR_BOOL, 6, 8},     {MR_UINT8, 1, 8},      {MR_UINT16, 1, 16},
        {MR_UINT32, 1, 32},  {MR_UINT64, 1, 64},    {MR_INT8, 0, 8},
        {MR_INT16, 0, 16},   {MR_INT32, 0, 32},     {MR_INT64, 0, 64},
        {MR_FLOAT16, 2, 16}, {MR_BFLOAT16, 4, 16},  {MR_FLOAT32, 2, 32},
        {MR_FLOAT64, 2, 64}, {MR_COMPLEX64, 5, 64}, {MR_COMPLEX128, 5, 128},
    };

    (void)state;
    for (size_t i = 0; i < MRT_COUNT(types); i++) {
        mr_array *x = mr_ones(MR_SHAPE(2, 3), types[i].dtype);
        versioned *m = mr_to_dlpack(x, MR_DLPACK_SHARE);

        assert_non_null(m);
        assert_int_equal(m->major, 1);
        assert_int_equal(m->flags, 0);
        assert_int_equal(m->t.device_type, 1);
        assert_int_equal(m->t.code, types[i].code);
        assert_int_equal(m->t.bits, types[i].bits);
        assert_int_equal(m->t.lanes, 1);
        assert_int_equal(m->t.ndim, 2);
        assert_int_equal(m->t.shape[0], 2);
        assert_int_equal(m->t.shape[1], 3);
        assert_int_equal(m->t.strides[0], 3);
        assert_int_equal(m->t.strides[1], 1);
        assert_ptr_equal((char *)m->t.data + m->t.byte_offset,
                         mr_array_data(x));
        mr_dlpack_free(m);
    }
}

static void
to_dlpack__views_have_their_strides(void **state)
{
    mr_array *x = mr_reshape(counting(6), MR_SHAPE(2, 3));
    versioned *m;

    (void)state;
    assert_int_equal(mr_eval(x), MR_OK);
    m = mr_to_dlpack(mr_transpose(x, MR_INTS_NONE), MR_DLPACK_SHARE);
    assert_non_null(m);
    assert_int_equal(m->t.shape[0], 3);
    assert_int_equal(m->t.strides[0], 1);
    assert_int_equal(m->t.strides[1], 3);
    assert_ptr_equal(m->t.data, mr_array_data(x));
    m->deleter(m);
    m = mr_to_dlpack(mr_float(7), MR_DLPACK_SHARE);
    assert_non_null(m);
    assert_int_equal(m->t.ndim, 0);
    assert_true(*(float *)m->t.data == 7.0F);
    m->deleter(m);
}

static void
to_dlpack__outlives_the_array_and_is_written_through(void **state)
{
    mr_scope s = mr_scope_begin();
    mr_array *x = counting(1000);
    versioned *m = mr_to_dlpack(x, MR_DLPACK_SHARE);
    mr_array *y;

    (void)state;
    assert_non_null(m);
    ((float *)m->t.data)[1] = 5;
    y = mr_scope_return(s, mr_sum(x, MR_AXES_ALL, false));
    mr_scope_end(s);
    assert_true(mr_array_item_f64(y) == 999 * 500 + 4);
    assert_true(((float *)m->t.data)[999] == 999.0F);
    m->deleter(m);
}

static void
to_dlpack__a_copy_is_its_own_memory(void **state)
{
    mr_array *x = mr_reshape(counting(6), MR_SHAPE(2, 3));
    versioned *m = mr_to_dlpack(mr_transpose(x, MR_INTS_NONE), MR_DLPACK_COPY);

    (void)state;
    assert_non_null(m);
    assert_int_equal(m->flags, IS_COPIED);
    assert_int_equal(m->t.strides[0], 2);
    assert_memory_equal(m->t.data, ((float[]){0, 3, 1, 4, 2, 5}), 24);
    memset(m->t.data, 0, 24);
    m->deleter(m);
    mrt_assert_f32(x, (float[]){0, 1, 2, 3, 4, 5}, 6);
}

static void
to_dlpack__of_a_device_is_on_the_host(void **state)
{
    mr_stream s;
    mr_array *x;
    versioned *m;

    (void)state;
    mrt_far();
    s = mrt_on(MRT_FAR(0));
    x = mr_add(counting(3), mr_float(1));
    mrt_off(s);
    m = mr_to_dlpack(x, MR_DLPACK_SHARE);
    assert_non_null(m);
    assert_int_equal(m->t.device_type, 1);
    assert_memory_equal(m->t.data, ((float[]){1, 2, 3}), 12);
    m->deleter(m);
    mr_stream_free(s);
}

static void
to_dlpack__passes_the_error_of_the_evaluation_on(void **state)
{
    mr_array *x = mrt_counted_op(
        counting(3), (mrt_counted){.counter = 2, .fail = MR_E_VALUE});

    (void)state;
    mrt_counters_clear();
    assert_null(mr_to_dlpack(x, MR_DLPACK_SHARE));
    mrt_assert_error(MR_E_VALUE, "");
    assert_null(mr_to_dlpack(x, MR_DLPACK_COPY));
    mrt_assert_error(MR_E_VALUE, "");
    assert_null(mr_to_dlpack_unversioned(NULL, MR_DLPACK_SHARE));
    mrt_assert_error(MR_E_NULL, "");
    assert_null(mr_to_dlpack(MR_NONE, MR_DLPACK_SHARE));
    mrt_assert_error(MR_E_NULL, "");
    mr_dlpack_free(NULL);
    mr_dlpack_free_unversioned(NULL);
}

/* ---- taking ------------------------------------------------------------- */

static _Atomic int deleted;

static void
delete_versioned(versioned *m)
{
    assert_ptr_equal(m->manager_ctx, &deleted);
    deleted++;
}

static void
delete_unversioned(unversioned *m)
{
    assert_ptr_equal(m->manager_ctx, &deleted);
    deleted++;
}

/* A foreign 2 x 3 float32, columns first, one element into its memory. */
typedef struct foreign {
    float data[8];
    int64_t shape[2], strides[2];
    versioned m;
} foreign;

static foreign *
foreign_new(foreign *f)
{
    *f = (foreign){{9, 0, 3, 1, 4, 2, 5, 9}, {2, 3}, {1, 2}, {.major = 1}};
    f->m.manager_ctx = &deleted;
    f->m.deleter = delete_versioned;
    f->m.t = (tensor){f->data, 1, 0, 2, 2, 32, 1, f->shape, f->strides, 4};
    deleted = 0;
    return f;
}

static void
from_dlpack__reads_strides_and_offset(void **state)
{
    static foreign f; /* the scope of the test outlives it */
    mr_array *x = mr_from_dlpack(&foreign_new(&f)->m);

    (void)state;
    assert_non_null(x);
    assert_ptr_equal(mr_array_data(x), f.data + 1);
    mrt_assert_shape(x, MR_SHAPE(2, 3));
    mrt_assert_f32(x, (float[]){0, 1, 2, 3, 4, 5}, 6);
    assert_false(mr_array_is_read_only(x));
    f.m.t.strides = NULL; /* row-major */
    x = mr_from_dlpack(&f.m);
    mrt_assert_f32(x, (float[]){0, 3, 1, 4, 2, 5}, 6);
}

static void
from_dlpack__deletes_once_with_the_last_view(void **state)
{
    mr_scope s = mr_scope_begin();
    static foreign f; /* the scope of the test outlives it */
    mr_array *x = mr_from_dlpack(&foreign_new(&f)->m);
    mr_array *view = mr_retain(mr_transpose(x, MR_INTS_NONE));
    mr_array *sum = mr_retain(mr_sum(x, MR_AXES_ALL, false));

    (void)state;
    assert_int_equal(mr_eval(view), MR_OK);
    mr_scope_end(s);
    assert_int_equal(deleted, 0); /* sum is still to be computed */
    assert_true(mr_array_item_f64(sum) == 15.0);
    assert_int_equal(deleted, 0);
    mr_release(view);
    mr_stream_sync((mr_stream){0});
    assert_int_equal(deleted, 1);
    mr_release(sum);
    assert_int_equal(deleted, 1);
}

static void
from_dlpack__takes_the_tensor_also_when_it_fails(void **state)
{
    static int64_t bad[] = {2, -3};
    static foreign f; /* the scope of the test outlives it */

    (void)state;
    foreign_new(&f)->m.t.device_type = 2;
    assert_null(mr_from_dlpack(&f.m));
    mrt_assert_error(MR_E_VALUE, "device 2");
    assert_int_equal(deleted, 1);
    foreign_new(&f)->m.major = 2;
    assert_null(mr_from_dlpack(&f.m));
    mrt_assert_error(MR_E_VALUE, "version 2.0");
    assert_int_equal(deleted, 1);
    foreign_new(&f)->m.t.lanes = 4;
    assert_null(mr_from_dlpack(&f.m));
    mrt_assert_error(MR_E_DTYPE, "4 lanes");
    assert_int_equal(deleted, 1);
    foreign_new(&f)->m.t.code = 3;
    assert_null(mr_from_dlpack(&f.m));
    mrt_assert_error(MR_E_DTYPE, "code 3");
    assert_int_equal(deleted, 1);
    foreign_new(&f)->m.t.byte_offset = 2;
    assert_null(mr_from_dlpack(&f.m));
    mrt_assert_error(MR_E_VALUE, "aligned");
    assert_int_equal(deleted, 1);
    foreign_new(&f)->m.t.shape = bad;
    assert_null(mr_from_dlpack(&f.m));
    mrt_assert_error(MR_E_VALUE, "negative");
    assert_int_equal(deleted, 1);
    foreign_new(&f)->m.t.ndim = 33;
    assert_null(mr_from_dlpack(&f.m));
    mrt_assert_error(MR_E_VALUE, "33");
    assert_int_equal(deleted, 1);
    foreign_new(&f)->m.t.data = NULL;
    assert_null(mr_from_dlpack(&f.m));
    mrt_assert_error(MR_E_NULL, "");
    assert_int_equal(deleted, 1);
    assert_null(mr_from_dlpack(NULL));
    mrt_assert_error(MR_E_NULL, "");
    assert_null(mr_from_dlpack_unversioned(NULL));
    mrt_assert_error(MR_E_NULL, "");
}

static void
from_dlpack__memory_that_may_not_be_written_stays_so(void **state)
{
    static foreign f; /* the scope of the test outlives it */
    mr_array *x, *row;
    versioned *m;

    (void)state;
    foreign_new(&f)->m.flags = READ_ONLY;
    x = mr_from_dlpack(&f.m);
    assert_non_null(x);
    row = mr_transpose(x, MR_INTS_NONE);
    assert_int_equal(mr_eval(row), MR_OK);
    assert_true(mr_array_is_read_only(x));
    assert_true(mr_array_is_read_only(row));
    m = mr_to_dlpack(row, MR_DLPACK_SHARE);
    assert_int_equal(m->flags, READ_ONLY);
    m->deleter(m);
    assert_null(mr_to_dlpack_unversioned(row, MR_DLPACK_SHARE));
    mrt_assert_error(MR_E_VALUE, "copy it");
    m = mr_to_dlpack(row, MR_DLPACK_COPY);
    assert_int_equal(m->flags, IS_COPIED);
    m->deleter(m);
    row = mr_add(x, x); /* memory of ours */
    assert_int_equal(mr_eval(row), MR_OK);
    assert_false(mr_array_is_read_only(row));
}

static void
from_dlpack__of_before_version_1(void **state)
{
    static foreign f; /* the scope of the test outlives it */
    static unversioned old;
    mr_scope s = mr_scope_begin();

    (void)state;
    old = (unversioned){foreign_new(&f)->m.t, &deleted, delete_unversioned};
    mrt_assert_f32(mr_from_dlpack_unversioned(&old),
                   (float[]){0, 1, 2, 3, 4, 5}, 6);
    assert_int_equal(deleted, 0);
    mr_scope_end(s);
    assert_int_equal(deleted, 1);
    old.t.device_type = 2;
    assert_null(mr_from_dlpack_unversioned(&old));
    mrt_assert_error(MR_E_VALUE, "device 2");
    assert_int_equal(deleted, 2);
    old.deleter = NULL; /* memory that lives for ever */
    old.t.device_type = 1;
    assert_non_null(mr_from_dlpack_unversioned(&old));
}

static bool
goes_round(void *arg)
{
    mr_scope s = mr_scope_begin();
    static foreign f; /* the scope of the test outlives it */
    mr_array *x, *y = NULL;
    versioned *m;

    (void)arg;
    x = mr_from_dlpack(&foreign_new(&f)->m);
    m = x ? mr_to_dlpack(x, MR_DLPACK_COPY) : NULL;
    y = m ? mr_from_dlpack(m) : NULL;
    mr_scope_end(s);
    assert_int_equal(deleted, 1);
    return y != NULL;
}

static void
dlpack__survives_each_failing_allocation(void **state)
{
    (void)state;
    assert_true(goes_round(NULL));
    assert_true(mrt_each_failure(goes_round, NULL) > 3);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(to_dlpack__of_a_pending_array_waits),
        mrt_test(to_dlpack__of_a_lazy_array_evaluates_it),
        mrt_test(to_dlpack__says_what_the_memory_is),
        mrt_test(to_dlpack__views_have_their_strides),
        mrt_test(to_dlpack__outlives_the_array_and_is_written_through),
        mrt_test(to_dlpack__a_copy_is_its_own_memory),
        mrt_test(to_dlpack__of_a_device_is_on_the_host),
        mrt_test(to_dlpack__passes_the_error_of_the_evaluation_on),
        mrt_test(from_dlpack__reads_strides_and_offset),
        mrt_test(from_dlpack__deletes_once_with_the_last_view),
        mrt_test(from_dlpack__takes_the_tensor_also_when_it_fails),
        mrt_test(from_dlpack__memory_that_may_not_be_written_stays_so),
        mrt_test(from_dlpack__of_before_version_1),
        mrt_test(dlpack__survives_each_failing_allocation),
    };

    mrt_devices_path();
    return cmocka_run_group_tests_name("io/dlpack", tests, NULL, NULL);
}
