/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors.c -- tests of safetensors files.
 *
 * The files are made here from their headers: the format is 8 bytes of length,
 * JSON, data.
 */
#include "io/support.h"

enum { ROOM = 1 << 16 };

/* A file of one header and some data, into out. */
static size_t
make_file(uint8_t *out, const char *header, const void *data, size_t bytes)
{
    size_t n = strlen(header);

    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)((uint64_t)n >> 8 * i);
    memcpy(out + 8, header, n);
    if (bytes > 0)
        memcpy(out + 8 + n, data, bytes);
    return 8 + n + bytes;
}

static mr_tree *
load_made(const char *header, const void *data, size_t bytes, char **metadata)
{
    static uint8_t file[ROOM];

    return mr_load_safetensors_memory(
        file, make_file(file, header, data, bytes), metadata);
}

static const float numbers[] = {1, 2, 3};

/* ---- reading --------------------------------------------------------------
 */
static void
safetensors__offsets_rule_not_the_order(void **state)
{
    mr_tree *t = good_tree(load_made(
        "{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]}}   ",
        numbers, 12, NULL));

    (void)state;
    assert_string_equal(mr_tree_key(t, 0), "b");
    VALUES(mr_tree_get_array(t, "a"), MR_FLOAT32, 1, 2);
    VALUES(mr_tree_get_array(t, "b"), MR_FLOAT32, 3);
}

static void
safetensors__every_type_is_read(void **state)
{
    const struct {
        const char *name;
        mr_dtype dtype;
        const char *bytes;
        int n;
        double value;
    } types[] = {
        {"BOOL", MR_BOOL, "\1", 1, 1},
        {"U8", MR_UINT8, "\377", 1, 255},
        {"I8", MR_INT8, "\377", 1, -1},
        {"U16", MR_UINT16, "\377\377", 2, 65535},
        {"I16", MR_INT16, "\376\377", 2, -2},
        {"U32", MR_UINT32, "\1\0\0\200", 4, 2147483649.0},
        {"I32", MR_INT32, "\1\0\0\200", 4, -2147483647.0},
        {"U64", MR_UINT64, "\0\0\0\0\0\0\0\200", 8, 9223372036854775808.0},
        {"I64", MR_INT64, "\0\0\0\0\0\1\0\0", 8, 1099511627776.0},
        {"F16", MR_FLOAT16, "\0\76", 2, 1.5},
        {"BF16", MR_BFLOAT16, "\200\77", 2, 1},
        {"F32", MR_FLOAT32, "\0\0\300\77", 4, 1.5},
        {"F64", MR_FLOAT64, "\0\0\0\0\0\0\370\77", 8, 1.5},
    };
    char header[128];

    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        snprintf(header, sizeof header,
                 "{\"x\":{\"dtype\":\"%s\",\"shape\":[],\"data_offsets\":"
                 "[0,%d]}}",
                 types[i].name, types[i].n);
        VALUES(mr_tree_get_array(good_tree(load_made(header, types[i].bytes,
                                                     (size_t)types[i].n, NULL)),
                                 "x"),
               types[i].dtype, types[i].value);
    }
}

static void
safetensors__8_bit_floats_become_wider_ones(void **state)
{
    mr_tree *t = good_tree(load_made(
        "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[9],\"data_offsets\":[0,9]},"
        "\"b\":{\"dtype\":\"F8_E5M2\",\"shape\":[3],\"data_offsets\":[9,12]},"
        "\"c\":{\"dtype\":\"F8_E8M0\",\"shape\":[4],\"data_offsets\":[12,16]"
        "}}",
        "\x00\x01\x07\x08\x38\x7e\x7f\x80\xff"
        "\x3c\x40\xfc"
        "\x7f\x80\x00\xff",
        16, NULL));

    (void)state;
    VALUES(mr_tree_get_array(t, "a"), MR_FLOAT16, 0.0, 0.001953125, 0.013671875,
           0.015625, 1.0, 448.0, NAN, -0.0, NAN);
    VALUES(mr_tree_get_array(t, "b"), MR_FLOAT16, 1, 2, -INFINITY);
    VALUES(mr_tree_get_array(t, "c"), MR_BFLOAT16, 1, 2, 0x1p-127, NAN);
}

static void
safetensors__misaligned_empty_and_0_d(void **state)
{
    char data[5] = {7};
    mr_tree *t;

    (void)state;
    memcpy(data + 1, &numbers[1], 4);
    t = good_tree(load_made(
        "{\"e\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[0,0]},"
        "\"u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
        "\"f\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[1,5]}}",
        data, 5, NULL));
    VALUES(mr_tree_get_array(t, "u"), MR_UINT8, 7);
    VALUES(mr_tree_get_array(t, "f"), MR_FLOAT32, 2);
    assert_int_equal(mr_array_size(mr_tree_get_array(t, "e")), 0);
    assert_int_equal(mr_tree_size(good_tree(load_made("{}", "", 0, NULL))), 0);
}

static void
safetensors__metadata_is_given(void **state)
{
    char *m = NULL;

    (void)state;
    good_tree(
        load_made("{\"__metadata__\":{\"k\":\"v\",\"n\":\"\"}}", "", 0, &m));
    assert_memory_equal(m, "k\0v\0n\0\0\0", 8);
    mr_text_free(m);
    good_tree(load_made("{}", "", 0, &m));
    assert_int_equal(m[0], 0);
    mr_text_free(m);
}

/* ---- refusing -------------------------------------------------------------
 */
#define ENTRY(name, type, shape, offsets)                                      \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape                    \
    ",\"data_offsets\":" offsets "}"

static void
safetensors__broken_headers_are_refused(void **state)
{
    const struct {
        const char *header;
        size_t bytes;
        const char *why;
    } cases[] = {
        {"{" ENTRY("a", "F32", "[2]", "[0,8]") "," ENTRY("b", "F32", "[2]",
                                                         "[4,12]") "}",
         12, "shares bytes"},
        {"{" ENTRY("a", "F32", "[1]", "[4,8]") "}", 8, "in front of it"},
        {"{" ENTRY("a", "F32", "[1]", "[0,4]") "}", 12, "8 bytes behind"},
        {"{" ENTRY("a", "F32", "[1]", "[0,4]") "," ENTRY("a", "F32", "[1]",
                                                         "[4,8]") "}",
         8, "twice"},
        {"{" ENTRY("a", "F32", "[1000]", "[0,4000]") "}", 4, "ends early"},
        {"{" ENTRY("a", "F32", "[2]", "[0,4]") "}", 4, "needs 8 bytes"},
        {"{" ENTRY("a", "F32", "[2]", "[8,0]") "}", 8, "data_offsets"},
        {"{" ENTRY("a", "F32", "[1]", "[-4,0]") "}", 4, "data_offsets"},
        {"{" ENTRY("a", "F32", "[1]", "[0,4,8]") "}", 4, "data_offsets"},
        {"{" ENTRY("a", "F32", "[1]", "[0]") "}", 4, "data_offsets"},
        {"{" ENTRY("a", "F32", "[1]", "4") "}", 4, "data_offsets"},
        {"{" ENTRY("a", "F32", "[1]", "[\"0\",4]") "}", 4, "data_offsets"},
        {"{" ENTRY("a", "F32", "[-2]", "[0,8]") "}", 8, "no whole number"},
        {"{" ENTRY("a", "F32", "[1.5]", "[0,4]") "}", 4, "no whole number"},
        {"{" ENTRY("a", "F32", "[1e300]", "[0,4]") "}", 4, "no whole number"},
        {"{" ENTRY("a", "F32", "[4294967297]", "[0,4]") "}", 4, "needs"},
        {"{" ENTRY("a", "F32", "[4294967296,4294967296]", "[0,0]") "}", 0,
         "beyond 64 bits"},
        {"{" ENTRY("a", "F32", "1", "[0,4]") "}", 4, "no shape"},
        {"{" ENTRY("a", "Q9", "[1]", "[0,4]") "}", 4, "'Q9'"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "no dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],"
         "\"data_offsets\":[0,4]}}",
         4, "field twice"},
        {"{\"a\":1}", 0, "no object"},
        {"{\"a\":", 0, "not JSON"},
        {"{} x", 0, "behind"},
        {"[1,2]", 0, "begin with"},
        {"", 4, "begin with"},
        {"{\"\200\":1}", 0, "UTF-8"},
        {"{\"\355\240\200\":1}", 0, "UTF-8"},
        {"{\"a\\u0000b\":1}", 0, "NUL"},
        {"{\"__metadata__\":{\"k\":1}}", 0, "__metadata__"},
        {"{\"__metadata__\":[]}", 0, "__metadata__"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *m = NULL, zeros[16] = {0};

        assert_refused(load_made(cases[i].header, zeros,
                                 cases[i].bytes < 16 ? cases[i].bytes : 16, &m),
                       MR_E_IO, cases[i].why);
        assert_null(m);
    }
}

static void
safetensors__broken_lengths_are_refused(void **state)
{
    const uint64_t lengths[] = {1000, UINT64_C(1) << 62, UINT64_MAX, 60};
    uint8_t file[256];
    size_t n =
        make_file(file, "{" ENTRY("a", "F32", "[1]", "[0,4]") "}", numbers, 4);

    (void)state;
    for (int i = 0; i < 4; i++) {
        memcpy(file, &lengths[i], 8);
        assert_refused(mr_load_safetensors_memory(file, n, NULL), MR_E_IO, "");
    }
    assert_refused(mr_load_safetensors_memory(file, 0, NULL), MR_E_IO,
                   "first 8 bytes");
    assert_refused(mr_load_safetensors_memory(file, 7, NULL), MR_E_IO,
                   "first 8 bytes");
    assert_refused(mr_load_safetensors(in_folder("missing"), NULL), MR_E_IO,
                   "missing");
}

static void
safetensors__deep_nesting_is_refused(void **state)
{
    enum { DEEP = 10000 };
    static char header[DEEP * 6 + 8];
    char *p = header;

    (void)state;
    for (int i = 0; i < DEEP; i++)
        p = stpcpy(p, "{\"a\":");
    *p++ = '1';
    memset(p, '}', DEEP);
    assert_refused(load_made(header, "", 0, NULL), MR_E_IO, "not JSON");
}

static void
safetensors__no_truncation_or_flip_crashes(void **state)
{
    uint8_t file[256], broken[256];
    size_t n = make_file(file,
                         "{" ENTRY("a", "F32", "[2]", "[0,8]") "," ENTRY(
                             "\303\274", "BOOL", "[]", "[8,9]") "}",
                         "\0\0\200\77\0\0\0\100\1", 9);

    (void)state;
    good_tree(mr_load_safetensors_memory(file, n, NULL));
    for (size_t k = 0; k < n; k++)
        assert_refused(mr_load_safetensors_memory(file, k, NULL), MR_E_IO, "");
    for (size_t k = 0; k < n - 9; k++)
        for (int v = 0; v < 256; v++) {
            mr_scope s = mr_scope_begin();
            mr_tree *t;

            memcpy(broken, file, n);
            broken[k] = (uint8_t)v;
            t = mr_load_safetensors_memory(broken, n, NULL);
            if (!t)
                assert_int_equal(mr_error_take().code, MR_E_IO);
            for (int i = 0; t && i < mr_tree_size(t); i++)
                assert_true(mr_array_nbytes(mr_tree_array_at(t, i)) <= 9);
            mr_scope_end(s);
        }
}

/* ---- writing --------------------------------------------------------------
 */
static mr_tree *
two_arrays(void)
{
    const char *names[] = {"w \"q\"\n", "b.\303\274"};
    mr_array *x =
        good(mr_array_from_f32((float[]){1, 2, 3, 4, 5, 6}, MR_SHAPE(2, 3)));
    mr_tree *leaves[] = {
        mr_tree_leaf(mr_transpose(x, MR_INTS_NONE)),
        mr_tree_leaf(mr_array_from_u8((uint8_t[]){7, 8, 9}, MR_SHAPE(3)))};

    return good_tree(mr_tree_dict(2, names, leaves));
}

static void
safetensors__what_is_written_is_read_back(void **state)
{
    const char *path = in_folder("round.safetensors");
    const char *keys[] = {"format", "tab"}, *values[] = {"pt", "a\tb\\"};
    char *m = NULL;
    mr_tree *t;

    (void)state;
    assert_done(mr_save_safetensors(path, two_arrays(), 2, keys, values));
    t = good_tree(mr_load_safetensors(path, &m));
    assert_memory_equal(m, "format\0pt\0tab\0a\tb\\\0\0", 20);
    mr_text_free(m);
    assert_int_equal(mr_tree_size(t), 2);
    VALUES(mr_tree_get_array(t, "w \"q\"\n"), MR_FLOAT32, 1, 4, 2, 5, 3, 6);
    assert_int_equal(mr_array_dim(mr_tree_get_array(t, "w \"q\"\n"), 0), 3);
    VALUES(mr_tree_get_array(t, "b.\303\274"), MR_UINT8, 7, 8, 9);
}

static void
safetensors__layout_is_by_name_and_padded(void **state)
{
    size_t n;
    uint8_t *data = mr_save_safetensors_memory(two_arrays(), 0, NULL, NULL, &n);
    const char *want =
        "{\"b.\303\274\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,"
        "3]},\"w \\\"q\\\"\\u000a\":{\"dtype\":\"F32\",\"shape\":[3,2],"
        "\"data_offsets\":[3,27]}}";

    (void)state;
    assert_non_null(data);
    assert_memory_equal(data + 8, want, strlen(want));
    assert_int_equal(data[0] % 8, 0);
    assert_int_equal(n, 8 + data[0] + 27);
    mr_text_free((char *)data);
}

static void
safetensors__every_dtype_round_trips(void **state)
{
    (void)state;
    for (int t = 0; t < MR_N_DTYPES; t++) {
        const char *name = "x";
        mr_tree *leaf_of_x = mr_tree_leaf(mr_astype(
            mr_array_from_f32((float[]){0, 1, 1}, MR_SHAPE(3)), (mr_dtype)t));
        mr_tree *dict = mr_tree_dict(1, &name, &leaf_of_x);
        size_t n;
        void *data;

        if (t == MR_COMPLEX128) {
            assert_refused(mr_save_safetensors_memory(dict, 0, NULL, NULL, &n),
                           MR_E_DTYPE, "complex128");
            continue;
        }
        data = mr_save_safetensors_memory(dict, 0, NULL, NULL, &n);
        assert_non_null(data);
        dict = good_tree(mr_load_safetensors_memory(data, n, NULL));
        mr_text_free(data);
        if (t == MR_COMPLEX64)
            VALUES(mr_real(mr_tree_get_array(dict, "x")), MR_FLOAT32, 0, 1, 1);
        else
            VALUES(mr_tree_get_array(dict, "x"), (mr_dtype)t, 0, 1, 1);
    }
}

static void
safetensors__what_cannot_be_written_leaves_the_file(void **state)
{
    const char *path = in_folder("kept.safetensors");
    const char *bad[] = {"__metadata__"}, *broken[] = {"\377"}, *x[] = {"x"};
    const char *twice[] = {"k", "k"};
    mr_tree *leaf_of_x = mr_tree_leaf(mr_float(1));
    mr_tree *none = mr_tree_none();
    int before;

    (void)state;
    assert_done(mr_save_safetensors(path, two_arrays(), 0, NULL, NULL));
    before = files_in_folder();
    assert_int_equal(mr_save_safetensors(path, mr_tree_dict(1, bad, &leaf_of_x),
                                         0, NULL, NULL),
                     MR_E_VALUE);
    assert_int_equal(mr_save_safetensors(path,
                                         mr_tree_dict(1, broken, &leaf_of_x), 0,
                                         NULL, NULL),
                     MR_E_VALUE);
    assert_int_equal(
        mr_save_safetensors(path, mr_tree_dict(1, x, &none), 0, NULL, NULL),
        MR_E_TYPE);
    assert_int_equal(mr_save_safetensors(path, leaf_of_x, 0, NULL, NULL),
                     MR_E_TYPE);
    assert_int_equal(mr_save_safetensors(path, two_arrays(), 2, twice, twice),
                     MR_E_VALUE);
    assert_int_equal(mr_save_safetensors(path, two_arrays(), 1, x, broken),
                     MR_E_VALUE);
    mr_error_take();
    assert_int_equal(files_in_folder(), before);
    assert_int_equal(mr_tree_size(good_tree(mr_load_safetensors(path, NULL))),
                     2);
}

static void
safetensors__many_tensors_load_in_time(void **state)
{
    enum { N = 20000 };
    char *header = malloc(N * 80), *p = header;
    float *data = malloc(N * sizeof *data);
    uint8_t *file = malloc(N * 80 + N * sizeof *data + 8);
    mr_tree *t;
    size_t n;

    (void)state;
    assert_true(header && data && file);
    *p++ = '{';
    for (int i = 0; i < N; i++) {
        data[i] = (float)i;
        p += sprintf(p,
                     "%s\"t%05d\":{\"dtype\":\"F32\",\"shape\":[1],"
                     "\"data_offsets\":[%d,%d]}",
                     i > 0 ? "," : "", i, 4 * i, 4 * i + 4);
    }
    strcpy(p, "}");
    n = make_file(file, header, data, N * sizeof *data);
    write_file(in_folder("many.safetensors"), file, n);
    t = good_tree(mr_load_safetensors(in_folder("many.safetensors"), NULL));
    assert_int_equal(mr_tree_size(t), N);
    VALUES(mr_tree_get_array(t, "t19999"), MR_FLOAT32, 19999);
    free(header);
    free(data);
    free(file);
}

static void
safetensors__failed_allocations_leak_nothing(void **state)
{
    uint8_t file[256];
    size_t n = make_file(file,
                         "{\"__metadata__\":{\"k\":\"v\"}," ENTRY(
                             "a", "F32", "[2]", "[0,8]") "}",
                         numbers, 8);
    int64_t live = -1;

    (void)state;
    for (int k = -1; k < 200; k++) {
        mr_scope s = mr_scope_begin();
        char *m = NULL;
        mr_tree *t;

        mr_test_alloc_fail_after(k);
        t = mr_load_safetensors_memory(file, n, &m);
        mr_test_alloc_fail_after(-1);
        if (!t)
            assert_int_equal(mr_error_take().code, MR_E_MEMORY);
        mr_text_free(m);
        mr_scope_end(s);
        if (k == -1)
            live = mr_test_alloc_live();
        assert_int_equal(mr_test_alloc_live(), live);
        if (t && k >= 0)
            return;
    }
    fail();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SCOPED(safetensors__offsets_rule_not_the_order),
        SCOPED(safetensors__every_type_is_read),
        SCOPED(safetensors__8_bit_floats_become_wider_ones),
        SCOPED(safetensors__misaligned_empty_and_0_d),
        SCOPED(safetensors__metadata_is_given),
        SCOPED(safetensors__broken_headers_are_refused),
        SCOPED(safetensors__broken_lengths_are_refused),
        SCOPED(safetensors__deep_nesting_is_refused),
        SCOPED(safetensors__no_truncation_or_flip_crashes),
        SCOPED(safetensors__what_is_written_is_read_back),
        SCOPED(safetensors__layout_is_by_name_and_padded),
        SCOPED(safetensors__every_dtype_round_trips),
        SCOPED(safetensors__what_cannot_be_written_leaves_the_file),
        SCOPED(safetensors__many_tensors_load_in_time),
        cmocka_unit_test(safetensors__failed_allocations_leak_nothing),
    };

    return cmocka_run_group_tests_name("io/safetensors", tests, make_folder,
                                       remove_folder);
}
