/* SPDX-License-Identifier: Apache-2.0
 *
 * providers.c -- finds, loads and lists the providers of devices.
 *
 * They lie beside the library that holds this code, as
 * libmarram_device_NAME.so, or where MARRAM_PROVIDER_PATH says: folders and
 * object files, separated by colons; an empty value means none at all.  Each
 * is opened with RTLD_LOCAL, gets the host's table, and registers its devices.
 * One that cannot be used does no harm: the list says why.  They are loaded
 * once, when somebody first asks for a device that is not the CPU.
 *
 * Called by: device.c, users through sys/info.h.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/sized.h"
#include "eval/device.h"
#include "eval/registry.h"
#include "graph/op.h"
#include "marram/error.h"
#include "marram/sys/info.h"

enum { MAX_PROVIDERS = 32 };

typedef struct provider {
    char path[PATH_MAX];
    char why[512]; /* "" when it is loaded */
} provider;

/* Written once, by the thread that loads, read after `once`. */
static provider *list[MAX_PROVIDERS];
static int n_list;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- the host's table -------------------------------------------------------
 */

mr_code
mr__provider_refuse(const char *name, const char *build)
{
    return mr__fail(MR_E_DEVICE,
                    "the provider %s was built for build %s of the library, "
                    "this is %s: build both together",
                    name, build, MR_BUILD_HASH);
}

static void
error_name(const mr_array *origin)
{
    if (origin != NULL)
        mr__error_annotate(mr__op_label(origin->op), origin->site,
                           "inside a compiled function");
}

static mr_host host = {
    .size = sizeof(mr_host),
    .version = MR_HOST_VERSION,
    .build = MR_BUILD_HASH,
    .refuse = mr__provider_refuse,
    .fail = mr__fail,
    .device_register = mr__device_register,
    .pool_new = mr__pool_new,
    .pool_set_cache_limit = mr__pool_set_cache_limit,
    .pool_set_limit = mr__pool_set_limit,
    .alloc = mr__alloc,
    .dealloc = mr__dealloc,
    .error_capture = mr__error_capture,
    .error_raise = mr__error_raise,
    .error_release = mr__error_release,
    .error_name = error_name,
    .kernel = mr__device_kernel,
};

/* ---- loading ----------------------------------------------------------------
 */

static void
say_why(provider *p, const char *text)
{
    snprintf(p->why, sizeof p->why, "%s", text != NULL ? text : "unknown");
}

static void
load_file(provider *p)
{
    mr_provider_init_fn *init;
    void *object = dlopen(p->path, RTLD_NOW | RTLD_LOCAL);

    if (object == NULL) {
        say_why(p, dlerror());
        return;
    }
    /* POSIX: a function's address may come through a void pointer */
    *(void **)&init = dlsym(object, MR_PROVIDER_INIT);
    if (init == NULL) {
        say_why(p, "it exports no " MR_PROVIDER_INIT);
        dlclose(object);
        return;
    }
    if (init(&host) != MR_OK) {
        say_why(p, mr_error_take().message);
        dlclose(object);
    }
}

static void
add(const char *path)
{
    provider *p;

    if (n_list == MAX_PROVIDERS)
        return;
    p = mr__alloc_zero(sizeof *p);
    if (p == NULL) {
        mr_error_take();
        return;
    }
    mr__alloc_cached(1); /* kept for ever */
    snprintf(p->path, sizeof p->path, "%s", path);
    list[n_list++] = p;
    load_file(p);
}

static bool
is_provider(const char *name)
{
    size_t n = strlen(name);

    return strncmp(name, MR_PROVIDER_PREFIX, strlen(MR_PROVIDER_PREFIX)) == 0 &&
           n > 3 && strcmp(name + n - 3, ".so") == 0;
}

static int
only_providers(const struct dirent *d)
{
    return is_provider(d->d_name);
}

/* In the order of their names, so that devices have the same numbers always. */
static void
add_folder(const char *folder)
{
    struct dirent **found;
    int n = scandir(folder, &found, only_providers, alphasort);
    char path[PATH_MAX];

    for (int i = 0; i < n; i++) {
        if (snprintf(path, sizeof path, "%s/%s", folder, found[i]->d_name) <
            (int)sizeof path)
            add(path);
        free(found[i]);
    }
    if (n >= 0)
        free(found);
}

static void
add_path(const char *path)
{
    char one[PATH_MAX];

    while (*path != '\0') {
        size_t n = strcspn(path, ":");

        if (n > 0 && n < sizeof one) {
            memcpy(one, path, n);
            one[n] = '\0';
            if (n > 3 && strcmp(one + n - 3, ".so") == 0)
                add(one);
            else
                add_folder(one);
        }
        path += n + (path[n] == ':');
    }
}

static void
add_beside_library(void)
{
    Dl_info here;
    char folder[PATH_MAX];
    const char *slash;

    if (dladdr((void *)&host, &here) == 0 || here.dli_fname == NULL)
        return;
    slash = strrchr(here.dli_fname, '/');
    if (slash == NULL || slash - here.dli_fname >= (long)sizeof folder)
        return;
    memcpy(folder, here.dli_fname, (size_t)(slash - here.dli_fname));
    folder[slash - here.dli_fname] = '\0';
    add_folder(folder);
}

static void
load_all(void)
{
    const char *path = getenv("MARRAM_PROVIDER_PATH");
    struct mr__error_stash aside = mr__error_stash();

    host.cpu = mr__device_host();
    if (path != NULL)
        add_path(path);
    else
        add_beside_library();
    mr__error_unstash(aside);
}

void
mr__providers_load(void)
{
    pthread_once(&once, load_all);
}

/* ---- asking -----------------------------------------------------------------
 */

mr_code
mr_provider_info_at(int i, mr_provider_info *out)
{
    mr_provider_info info = {.size = sizeof info};

    mr__providers_load();
    if (i < 0 || i >= n_list)
        return mr__fail(MR_E_INDEX, "there is no provider %d: there are %d", i,
                        n_list);
    info.path = list[i]->path;
    info.why_not = list[i]->why[0] == '\0' ? NULL : list[i]->why;
    return mr__sized_give(out, &info, sizeof info, "mr_provider_info");
}
