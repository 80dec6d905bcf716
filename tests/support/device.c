/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c -- loading the test devices, and being on one.
 */
#include "support/device.h"

#include <assert.h>
#include <dlfcn.h>
#include <stdlib.h>

#define FOLDER MRT_BUILD_DIR "/lib/test_providers"

void
mrt_devices_path(void)
{
    setenv("MARRAM_PROVIDER_PATH", FOLDER, 1);
}

const far_control *
mrt_far(void)
{
    static const far_control *control;
    void *object;

    if (control != NULL)
        return control;
    mr_device_available(MRT_FAR(0));
    object = dlopen(FOLDER "/libmarram_device_far.so", RTLD_NOLOAD | RTLD_NOW);
    assert(object != NULL);
    control = dlsym(object, FAR_CONTROL);
    assert(control != NULL);
    return control;
}

mr_stream
mrt_on(mr_device d)
{
    mr_stream s = mr_stream_new(d);

    assert(s.id != 0);
    mr_stream_scope(s);
    return s;
}

void
mrt_off(mr_stream s)
{
    mr_stream_scope((mr_stream){0});
    mr_stream_free(s);
}
