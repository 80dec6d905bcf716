/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c -- the marram command.
 *
 *     marram                what this installation is and runs on
 *     marram ops            operators and the rules that they bring
 *     marram ops --missing  only those that go through a general fallback
 *     marram inspect FILE   the arrays of an npy or safetensors file
 *     marram graph COMMAND  what a program's compiled functions became
 */
#include "graph.h"

#include <marram/marram.h>
#include <marram/sys/info.h>
#include <stdio.h>
#include <string.h>

#define USAGE                                                                  \
    "usage: marram                    what the library is and runs on\n"       \
    "       marram inspect FILE       the arrays of a file\n"                  \
    "       marram ops [--missing]    the operators, and which transforms "    \
    "they "                                                                    \
    "lack\n"                                                                   \
    "       marram graph COMMAND...   what a program's functions are "         \
    "compiled "                                                                \
    "to\n"                                                                     \
    "                                 (marram graph --help says more)\n"       \
    "       marram --version, marram --help\n"

static int
complain(const char *what)
{
    mr_error e = mr_error_take();

    fprintf(stderr, "marram: %s%s%s\n", what, *what ? ": " : "", e.message);
    return 1;
}

/* What was found beside the library or by MARRAM_PROVIDER_PATH. */
static void
providers(void)
{
    mr_provider_info info = {.size = sizeof info};
    int n = 0;

    for (; mr_provider_info_at(n, &info) == MR_OK; n++) {
        printf("provider %s: %s\n", info.path,
               info.why_not == NULL ? "loaded" : info.why_not);
        info.size = sizeof info;
    }
    mr_error_take();
    if (n == 0)
        printf("providers: none found\n");
}

static int
facts(void)
{
    const char *tier = mr_cpu_tier();
    mr_jit_info jit = {.size = sizeof jit};

    if (tier == NULL)
        return complain("the processor");
    printf("marram %s\n", mr_version());
    printf("cpu tier %s, %d threads\n", tier, mr_num_threads());
    printf("kernels %s: %s\n", mr_kernels_digest(), mr_kernels_tiers());
    if (strcmp(mr_kernels_digest(), MR_KERNELS_DIGEST) != 0) {
        fprintf(stderr,
                "marram: libmarram has the kernels %s, and this command was "
                "built with %s: install both from one build\n",
                mr_kernels_digest(), MR_KERNELS_DIGEST);
        return 1;
    }
    printf("devices: %d cpu, %d gpu\n", mr_device_count(MR_CPU),
           mr_device_count(MR_GPU));
    if (mr_jit_info_get(&jit) != MR_OK)
        return complain("native code");
    if (jit.why_not != NULL)
        printf("native code: none, %s\n", jit.why_not);
    else
        printf("native code: LLVM, MARRAM_JIT=%s\n", jit.mode);
    printf("memory limit %.1f GiB\n",
           (double)mr_memory_limit() / 1024.0 / 1024.0 / 1024.0);
    printf("files: npy, safetensors\n");
    providers();
    return 0;
}

/* ---- ops -------------------------------------------------------------------
 */

static const char *
source_name(mr_rule_source s)
{
    return s == MR_RULE_OWN ? "rule" : s == MR_RULE_FALLBACK ? "fallback" : "-";
}

static bool
has_fallback(const mr_op_info *i)
{
    return i->vjp == MR_RULE_FALLBACK || i->jvp == MR_RULE_FALLBACK ||
           i->vmap == MR_RULE_FALLBACK;
}

static int
ops(bool missing)
{
    mr_op_info info = {.size = sizeof info};
    int n = 0;

    printf("%-24s %5s %-9s %-9s %-9s %s\n", "operator", "id", "vjp", "jvp",
           "vmap", "fuses");
    for (int i = 0; mr_op_info_at(i, &info) == MR_OK; i++) {
        if (missing && !has_fallback(&info))
            continue;
        printf("%-24s %5d %-9s %-9s %-9s %s\n", info.name, info.id,
               source_name(info.vjp), source_name(info.jvp),
               source_name(info.vmap), info.fuses ? "yes" : "");
        n++;
        info.size = sizeof info;
    }
    mr_error_take();
    printf("%d operators%s\n", n, missing ? " with a fallback" : "");
    return 0;
}

/* ---- inspect
 * ----------------------------------------------------------------- */

static void
describe(const char *name, const mr_array *x)
{
    mr_shape s = mr_array_shape(x);

    printf("%-56s %-10s (", name, mr_dtype_name(mr_array_dtype(x)));
    for (int64_t i = 0; i < s.n; i++)
        printf("%s%lld", i ? ", " : "", (long long)s.dim[i]);
    printf(")\n");
}

static int
inspect_npy(const char *path)
{
    mr_array *x = mr_load_npy(path);

    if (x == NULL)
        return complain("");
    describe(path, x);
    mr_release(x);
    return 0;
}

static int
inspect_safetensors(const char *path)
{
    mr_tree *t = mr_load_safetensors(path, NULL);

    if (t == NULL)
        return complain("");
    for (int i = 0; i < mr_tree_size(t); i++)
        describe(mr_tree_key(t, i), mr_tree_array_at(t, i));
    printf("%d arrays\n", mr_tree_size(t));
    mr_tree_release(t);
    return 0;
}

/* How a file of this format begins; its name ends in the format's. */
static bool
begins_npy(const char *head, size_t n)
{
    return n >= 6 && memcmp(head, "\x93NUMPY", 6) == 0;
}

static bool
begins_safetensors(const char *head, size_t n)
{
    return n > 8 && head[8] == '{'; /* behind the header's length */
}

static const struct format {
    const char *name, *beginning;
    bool (*begins)(const char *head, size_t n);
    int (*inspect)(const char *path);
} formats[] = {
    {"npy", "begins with \\x93NUMPY", begins_npy, inspect_npy},
    {"safetensors", "begins with 8 bytes of length and '{'", begins_safetensors,
     inspect_safetensors},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

/* By what the file holds or, for one that is damaged, by its name; NULL: of
 * none.  What cannot be read has the last one, whose reader says why. */
static const struct format *
format_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    FILE *f = fopen(path, "rb");
    char head[9];
    size_t n = f == NULL ? 0 : fread(head, 1, sizeof head, f);
    bool unread = f == NULL || ferror(f);

    if (f != NULL)
        fclose(f);
    for (int i = 0; i < N_FORMATS; i++)
        if (formats[i].begins(head, n))
            return &formats[i];
    for (int i = 0; i < N_FORMATS; i++)
        if (dot != NULL && strcmp(dot + 1, formats[i].name) == 0)
            return &formats[i];
    return unread ? &formats[N_FORMATS - 1] : NULL;
}

static int
inspect(const char *path)
{
    const struct format *f = format_of(path);

    if (f != NULL)
        return f->inspect(path);
    fprintf(stderr, "marram: %s: of no format that can be read:", path);
    for (int i = 0; i < N_FORMATS; i++)
        fprintf(stderr, "%s %s (%s)", i > 0 ? "," : "", formats[i].name,
                formats[i].beginning);
    fprintf(stderr, "\n");
    return 1;
}

/* `marram graph --help` has a text of its own. */
static bool
asks_for_help(int argc, char **argv)
{
    const char *last = argv[argc - 1];

    if (argc > 3 || strcmp(argv[1], "graph") == 0)
        return false;
    return strcmp(last, "--help") == 0 || strcmp(last, "-h") == 0 ||
           (argc == 2 && strcmp(last, "help") == 0);
}

int
main(int argc, char **argv)
{
    if (argc == 1)
        return facts();
    if (asks_for_help(argc, argv))
        return printf(USAGE) < 0;
    if (argc <= 3 && strcmp(argv[1], "ops") == 0 &&
        (argc == 2 || strcmp(argv[2], "--missing") == 0))
        return ops(argc == 3);
    if (argc == 3 && strcmp(argv[1], "inspect") == 0)
        return inspect(argv[2]);
    if (argc >= 2 && strcmp(argv[1], "graph") == 0)
        return graph_main(argc - 1, argv + 1);
    if (argc == 2 && strcmp(argv[1], "--version") == 0)
        return printf("marram %s\n", mr_version()) < 0;
    fprintf(stderr, USAGE);
    return 2;
}
