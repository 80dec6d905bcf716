/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h -- the test devices, loaded.
 */
#ifndef MRT_DEVICE_H
#define MRT_DEVICE_H

#include "marram/marram.h"
#include "providers/far.h"

#define MRT_FAR(i) ((mr_device){MR_TEST_DEVICE, (i)}) /* 0 and 1 */
#define MRT_NULL   ((mr_device){MR_TEST_DEVICE, 2})

/* Says where the providers lie: first of all in main(). */
void mrt_devices_path(void);
/* How the far devices are driven; loads them. */
const far_control *mrt_far(void);

/* A new stream of this device is the scoped one until mrt_off: no other was. */
mr_stream mrt_on(mr_device d);
void mrt_off(mr_stream s);

#endif
