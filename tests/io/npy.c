/* SPDX-License-Identifier: Apache-2.0
 *
 * npy.c -- tests of npy files.
 *
 * tests/golden/npy holds files that NumPy wrote (make_npy.py says what is in
 * them); broken ones are made here from their headers.
 */
#include "io/support.h"

static mr_array *
golden(const char *name)
{
    char path[512];

    snprintf(path, sizeof path, "%s/tests/golden/npy/%s", MRT_SOURCE_DIR, name);
    return mr_load_npy(path);
}

/* An npy file of one header and some data, into out. */
static size_t
make_npy(uint8_t *out, int version, const char *header, const void *data,
         size_t bytes)
{
    size_t n = strlen(header), at = version == 1 ? 10 : 12;

    memcpy(out, "\x93NUMPY", 6);
    out[6] = (uint8_t)version;
    out[7] = 0;
    for (size_t i = 8; i < at; i++)
        out[i] = (uint8_t)(n >> 8 * (i - 8));
    memcpy(out + at, header, n);
    memcpy(out + at + n, data, bytes);
    return at + n + bytes;
}

static mr_array *
load_made(int version, const char *header, const void *data, size_t bytes)
{
    uint8_t file[4096];

    return mr_load_npy_memory(file,
                              make_npy(file, version, header, data, bytes));
}

static const float three[] = {1, 2, 3};

/* ---- reading --------------------------------------------------------------
 */
static void
npy__every_dtype_in_both_byte_orders(void **state)
{
    const struct {
        const char *name;
        mr_dtype dtype;
    } types[] = {
        {"u1", MR_UINT8},   {"u2", MR_UINT16},  {"u4", MR_UINT32},
        {"u8", MR_UINT64},  {"i1", MR_INT8},    {"i2", MR_INT16},
        {"i4", MR_INT32},   {"i8", MR_INT64},   {"f2", MR_FLOAT16},
        {"f4", MR_FLOAT32}, {"f8", MR_FLOAT64},
    };
    char name[64];

    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        snprintf(name, sizeof name, "little_%s.npy", types[i].name);
        VALUES(golden(name), types[i].dtype, 0, 1, 2, 3, 4, 5);
        snprintf(name, sizeof name, "big_%s.npy", types[i].name);
        if (types[i].name[1] != '1')
            VALUES(golden(name), types[i].dtype, 0, 1, 2, 3, 4, 5);
    }
}

static void
npy__complex_in_both_byte_orders(void **state)
{
    const char *names[] = {"little_c8.npy", "big_c8.npy"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        mr_array *x = good(golden(names[i]));
        mr_c64 v[6];

        assert_int_equal(mr_array_dtype(x), MR_COMPLEX64);
        assert_done(mr_array_copy_out(x, v, sizeof v));
        for (int k = 0; k < 6; k++) {
            assert_true(v[k].re == (float)k);
            assert_true(v[k].im == (float)-k);
        }
    }
}

static void
npy__complex128_in_both_byte_orders(void **state)
{
    const char *names[] = {"little_c16.npy", "big_c16.npy"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        mr_array *x = good(golden(names[i]));
        mr_c128 v[6];

        assert_int_equal(mr_array_dtype(x), MR_COMPLEX128);
        assert_done(mr_array_copy_out(x, v, sizeof v));
        for (int k = 0; k < 6; k++) {
            assert_true(v[k].re == k);
            assert_true(v[k].im == -k);
        }
    }
}

static void
npy__fortran_order_keeps_indices(void **state)
{
    const char *names[] = {"fortran.npy", "fortran_big.npy"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        mr_array *x = good(golden(names[i]));
        int64_t v[24];

        assert_int_equal(mr_array_ndim(x), 3);
        assert_int_equal(mr_array_dim(x, 2), 4);
        assert_done(mr_array_copy_i64(x, v, 24));
        for (int k = 0; k < 24; k++)
            assert_int_equal(v[k], k);
    }
}

static void
npy__odd_shapes_and_versions(void **state)
{
    mr_array *x;

    (void)state;
    VALUES(golden("bool.npy"), MR_BOOL, 0, 1);
    VALUES(golden("zero_d.npy"), MR_FLOAT32, 0);
    assert_int_equal(mr_array_ndim(golden("zero_d.npy")), 0);
    VALUES(golden("version_2.npy"), MR_FLOAT32, 0, 1, 2, 3, 4, 5);
    VALUES(golden("version_3.npy"), MR_FLOAT32, 0, 1, 2, 3, 4, 5);
    x = good(golden("empty.npy"));
    assert_int_equal(mr_array_ndim(x), 3);
    assert_int_equal(mr_array_size(x), 0);
    assert_int_equal(mr_array_dim(x, 2), 3);
}

static void
npy__loose_headers_are_read(void **state)
{
    uint8_t two = 2;
    char padded[3000];

    (void)state;
    VALUES(load_made(1, "{'shape':(3,),'fortran_order':False,'descr':'<f4'}\n",
                     three, sizeof three),
           MR_FLOAT32, 1, 2, 3);
    VALUES(load_made(1,
                     "{\"descr\": \"=f4\", 'fortran_order': True, 'shape': "
                     "(3L,)}",
                     three, sizeof three),
           MR_FLOAT32, 1, 2, 3);
    memset(padded, ' ', sizeof padded);
    strcpy(padded + 2900,
           "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n");
    VALUES(load_made(2, padded, three, sizeof three), MR_FLOAT32, 1, 2, 3);
    /* a bool of any other byte is true */
    VALUES(load_made(1,
                     "{'descr': '|b1', 'fortran_order': False, 'shape': (), }",
                     &two, 1),
           MR_BOOL, 1);
    VALUES(load_made(1,
                     "{'descr': '<V2', 'fortran_order': False, 'shape': (1,)}",
                     "\x80\x3f", 2),
           MR_BFLOAT16, 1);
}

/* ---- refusing -------------------------------------------------------------
 */
static void
npy__broken_headers_are_refused(void **state)
{
    const struct {
        const char *header, *why;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }",
         "negative"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967297,), }",
         "ends early"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': "
         "(4611686018427387904, 4), }",
         "beyond 64 bits"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': "
         "(99999999999999999999,), }",
         "beyond 64 bits"},
        {"{'descr': '<f4', 'shape': (3,), }", "lacks 'fortran_order'"},
        {"{'descr': '<q9', 'fortran_order': False, 'shape': (3,), }", "<q9"},
        {"{'descr': '<U2', 'fortran_order': False, 'shape': (1,), }", "<U2"},
        {"{'descr': '<M8[D]', 'fortran_order': False, 'shape': (1,), }",
         "<M8[D]"},
        {"{'descr': '<f16', 'fortran_order': False, 'shape': (1,), }", "<f16"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
         "Python objects"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }",
         "structured"},
        {"{'descr': '<f4', 'fortran_order': 1, 'shape': (3,), }",
         "neither True nor False"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 3, }", "no tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, }",
         "no number"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3 3), }",
         "does not end"},
        {"{'descr': '<f4', 'descr': '<f4', 'shape': (3,), }", "twice"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), } 1",
         "behind"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'x': 1}",
         "does not know"},
        {"{'descr': '<f4", "cut"},
        {"[]", "no dict"},
        {"", "no dict"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': "
         "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)"
         "}",
         "32 axes"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_refused(load_made(1, cases[i].header, three, sizeof three),
                       MR_E_IO, cases[i].why);
}

static void
npy__broken_frames_are_refused(void **state)
{
    uint8_t file[256];
    size_t n = make_npy(
        file, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n",
        three, sizeof three);

    (void)state;
    assert_refused(mr_load_npy_memory(file, 0), MR_E_IO, "no npy file");
    assert_refused(mr_load_npy_memory(file, 4), MR_E_IO, "first 8 bytes");
    assert_refused(mr_load_npy_memory(file, 9), MR_E_IO, "inside");
    assert_refused(mr_load_npy_memory(file, 40), MR_E_IO, "inside");
    assert_refused(mr_load_npy_memory(file, n - 1), MR_E_IO, "ends early");
    assert_refused(mr_load_npy_memory(NULL, 1), MR_E_NULL, "NULL");
    file[6] = 9;
    assert_refused(mr_load_npy_memory(file, n), MR_E_IO, "version 9.0");
    file[6] = 1;
    file[5] = 'X';
    assert_refused(mr_load_npy_memory(file, n), MR_E_IO, "does not begin");
    assert_refused(mr_load_npy(in_folder("missing.npy")), MR_E_IO,
                   "missing.npy");
    assert_refused(mr_load_npy(folder), MR_E_IO, "regular");
}

static void
npy__no_truncation_or_flip_crashes(void **state)
{
    uint8_t file[256], broken[256];
    size_t n = make_npy(
        file, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n",
        three, sizeof three);

    (void)state;
    for (size_t k = 0; k < n; k++)
        assert_refused(mr_load_npy_memory(file, k), MR_E_IO, "");
    for (size_t k = 0; k < n - sizeof three; k++)
        for (int v = 0; v < 256; v++) {
            mr_scope s = mr_scope_begin();
            mr_array *x;

            memcpy(broken, file, n);
            broken[k] = (uint8_t)v;
            x = mr_load_npy_memory(broken, n);
            if (x)
                assert_true(mr_array_nbytes(x) <= sizeof three);
            else
                assert_int_equal(mr_error_take().code, MR_E_IO);
            mr_scope_end(s);
        }
}

/* ---- writing --------------------------------------------------------------
 */
static void
npy__what_is_written_is_read_back(void **state)
{
    const char *path = in_folder("round.npy");

    (void)state;
    for (int t = 0; t < MR_N_DTYPES; t++) {
        mr_array *x = good(mr_astype(
            mr_array_from_f32((float[]){0, 1, 1, 0, 1, 1}, MR_SHAPE(2, 3)),
            (mr_dtype)t));

        assert_done(mr_save_npy(path, x));
        if (mr_dtype_is_complex((mr_dtype)t))
            VALUES(mr_real(mr_load_npy(path)),
                   t == MR_COMPLEX64 ? MR_FLOAT32 : MR_FLOAT64, 0, 1, 1, 0, 1,
                   1);
        else
            VALUES(mr_load_npy(path), (mr_dtype)t, 0, 1, 1, 0, 1, 1);
    }
}

static void
npy__header_is_as_numpy_writes_it(void **state)
{
    uint8_t bytes[256];
    const char *path = in_folder("header.npy");
    const char *want = "{'descr': '<f4', 'fortran_order': False, 'shape': "
                       "(2, 3), }";
    size_t n;

    (void)state;
    assert_done(mr_save_npy(
        path,
        good(mr_array_from_f32((float[]){1, 2, 3, 4, 5, 6}, MR_SHAPE(2, 3)))));
    n = read_file(path, bytes, sizeof bytes);
    assert_int_equal(n, 128 + 24);
    assert_memory_equal(bytes, "\x93NUMPY\x01\x00\x76\x00", 10);
    assert_memory_equal(bytes + 10, want, strlen(want));
    assert_int_equal(bytes[126], ' ');
    assert_int_equal(bytes[127], '\n');
    assert_done(mr_save_npy(path, good(mr_float(1))));
    read_file(path, bytes, sizeof bytes);
    assert_non_null(strstr((char *)bytes + 10, "'shape': (), }"));
    assert_done(
        mr_save_npy(path, good(mr_array_from_f32((float[]){1}, MR_SHAPE(1)))));
    read_file(path, bytes, sizeof bytes);
    assert_non_null(strstr((char *)bytes + 10, "'shape': (1,), }"));
}

static void
npy__views_are_written_row_major(void **state)
{
    const char *path = in_folder("view.npy");
    mr_array *x =
        mr_array_from_f32((float[]){1, 2, 3, 4, 5, 6}, MR_SHAPE(2, 3));

    (void)state;
    assert_done(mr_save_npy(path, mr_transpose(x, MR_INTS_NONE)));
    VALUES(mr_load_npy(path), MR_FLOAT32, 1, 4, 2, 5, 3, 6);
    assert_done(mr_save_npy(path, mr_broadcast_to(mr_float(7), MR_SHAPE(3))));
    VALUES(mr_load_npy(path), MR_FLOAT32, 7, 7, 7);
}

static void
npy__memory_round_trip(void **state)
{
    size_t n;
    void *data = mr_save_npy_memory(
        good(mr_array_from_i32((int32_t[]){5, -6}, MR_SHAPE(2))), &n);

    (void)state;
    assert_non_null(data);
    VALUES(mr_load_npy_memory(data, n), MR_INT32, 5, -6);
    mr_text_free(data);
}

static void
npy__large_files_are_mapped_and_live_with_their_arrays(void **state)
{
    enum { N = 1 << 20 };
    const char *path = in_folder("large.npy");
    mr_array *x = good(mr_full(MR_SHAPE(N), 2.5, MR_FLOAT32));
    mr_array *y;

    (void)state;
    assert_done(mr_save_npy(path, x));
    y = good(mr_load_npy(path));
    /* overwriting makes a new file: y keeps the old one */
    assert_done(mr_save_npy(path, mr_float(1)));
    assert_true(mr_array_item_f64(mr_sum(y, MR_AXES_ALL, false)) == 2.5 * N);
    /* writing into an exported view stays in this process */
    assert_done(mr_save_npy(path, x));
    y = good(mr_load_npy(path));
    *(float *)mr_array_data_exported(y) = 7;
    assert_true(*(const float *)mr_array_data(good(mr_load_npy(path))) == 2.5F);
    unlink(path);
}

static void
npy__failed_write_leaves_the_old_file(void **state)
{
    const char *path = in_folder("kept.npy");
    int before;

    (void)state;
    assert_done(mr_save_npy(path, good(mr_int(5))));
    before = files_in_folder();
    assert_int_equal(mr_save_npy(path, NULL), MR_E_NULL);
    mr_error_take();
    assert_int_equal(mr_save_npy(in_folder("no/such/folder.npy"), mr_int(1)),
                     MR_E_IO);
    assert_non_null(strstr(mr_error_take().message, "no/such/folder.npy"));
    assert_int_equal(files_in_folder(), before);
    VALUES(mr_load_npy(path), MR_INT32, 5);
}

static void
npy__links_and_rights_are_kept(void **state)
{
    const char *path = in_folder("target.npy"), *link = in_folder("link.npy");
    struct stat st;

    (void)state;
    assert_done(mr_save_npy(path, good(mr_int(5))));
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(symlink(path, link), 0);
    assert_done(mr_save_npy(link, good(mr_int(6))));
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    VALUES(mr_load_npy(path), MR_INT32, 6);
    /* a device is written to, not replaced */
    assert_done(mr_save_npy("/dev/null", good(mr_int(6))));
    assert_int_equal(stat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
}

static void
npy__failed_allocations_leak_nothing(void **state)
{
    uint8_t file[256];
    size_t n = make_npy(
        file, 1, "{'descr': '>f4', 'fortran_order': False, 'shape': (3,), }\n",
        three, sizeof three);
    int64_t live = -1;

    (void)state;
    for (int k = -1; k < 100; k++) {
        mr_scope s = mr_scope_begin();
        mr_array *x;

        mr_test_alloc_fail_after(k);
        x = mr_load_npy_memory(file, n);
        mr_test_alloc_fail_after(-1);
        if (!x)
            assert_int_equal(mr_error_take().code, MR_E_MEMORY);
        mr_scope_end(s);
        if (k == -1)
            live = mr_test_alloc_live();
        assert_int_equal(mr_test_alloc_live(), live);
        if (x && k >= 0)
            return;
    }
    fail();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SCOPED(npy__every_dtype_in_both_byte_orders),
        SCOPED(npy__complex_in_both_byte_orders),
        SCOPED(npy__complex128_in_both_byte_orders),
        SCOPED(npy__fortran_order_keeps_indices),
        SCOPED(npy__odd_shapes_and_versions),
        SCOPED(npy__loose_headers_are_read),
        SCOPED(npy__broken_headers_are_refused),
        SCOPED(npy__broken_frames_are_refused),
        SCOPED(npy__no_truncation_or_flip_crashes),
        SCOPED(npy__what_is_written_is_read_back),
        SCOPED(npy__header_is_as_numpy_writes_it),
        SCOPED(npy__views_are_written_row_major),
        SCOPED(npy__memory_round_trip),
        SCOPED(npy__large_files_are_mapped_and_live_with_their_arrays),
        SCOPED(npy__failed_write_leaves_the_old_file),
        SCOPED(npy__links_and_rights_are_kept),
        cmocka_unit_test(npy__failed_allocations_leak_nothing),
    };

    return cmocka_run_group_tests_name("io/npy", tests, make_folder,
                                       remove_folder);
}
