/* SPDX-License-Identifier: Apache-2.0
 *
 * mode.c -- what compiling does in this process: MARRAM_COMPILE, then what the
 * program says.
 *
 * Called by: users, function.c, build.c.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "compile/program.h"
#include "marram/compile.h"

static const char *const mode_names[] = {
    [MR_COMPILE_DISABLED] = "disabled",
    [MR_COMPILE_NO_SIMPLIFY] = "no_simplify",
    [MR_COMPILE_NO_FUSE] = "no_fuse",
    [MR_COMPILE_ENABLED] = "enabled",
};
enum { N_MODES = sizeof mode_names / sizeof mode_names[0] };

/* A mode, -1 - a mode from the environment that is none, or UNREAD. */
enum { UNREAD = -100 };
static _Atomic int mode = UNREAD; /* relaxed: a switch */

static bool
is_on(const char *v)
{
    return v != NULL && v[0] != '\0' && strcmp(v, "0") != 0;
}

bool
mr_compile_mode_from_name(const char *name, mr_compile_mode *out)
{
    for (int i = 0; name != NULL && i < N_MODES; i++)
        if (strcmp(name, mode_names[i]) == 0) {
            *out = (mr_compile_mode)i;
            return true;
        }
    return false;
}

const char *
mr_compile_mode_name(mr_compile_mode m)
{
    return (int)m >= 0 && (int)m < N_MODES ? mode_names[m] : NULL;
}

static mr_compile_mode
mode_of_environment(void)
{
    const char *v = getenv("MARRAM_COMPILE");
    const char *off = getenv("MARRAM_DISABLE_COMPILE");
    mr_compile_mode m = MR_COMPILE_ENABLED;

    if (off == NULL)
        off = getenv("MLX_DISABLE_COMPILE");
    if (is_on(off))
        m = MR_COMPILE_DISABLED;
    if (v != NULL && v[0] != '\0' && !mr_compile_mode_from_name(v, &m))
        mr__log(MR_LOG_WARN,
                "MARRAM_COMPILE is '%s': use disabled, no_simplify, no_fuse "
                "or enabled",
                v);
    return m;
}

mr_compile_mode
mr__compile_mode(void)
{
    int m = atomic_load_explicit(&mode, memory_order_relaxed);

    if (__builtin_expect(m == UNREAD, 0)) {
        int unread = UNREAD;

        m = (int)mode_of_environment();
        if (!atomic_compare_exchange_strong_explicit(
                &mode, &unread, m, memory_order_relaxed, memory_order_relaxed))
            m = unread; /* somebody set it meanwhile */
    }
    return (mr_compile_mode)m;
}

mr_compile_mode
mr_compile_set_mode(mr_compile_mode m)
{
    mr_compile_mode old = mr__compile_mode();

    if (mr_compile_mode_name(m) != NULL)
        atomic_store_explicit(&mode, (int)m, memory_order_relaxed);
    return old;
}

bool
mr_compile_enable(bool on)
{
    mr_compile_mode old = mr__compile_mode();

    if (on != (old != MR_COMPILE_DISABLED))
        mr_compile_set_mode(on ? MR_COMPILE_ENABLED : MR_COMPILE_DISABLED);
    return old != MR_COMPILE_DISABLED;
}
