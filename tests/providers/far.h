/* SPDX-License-Identifier: Apache-2.0
 *
 * far.h -- how tests drive the far and the null device.
 *
 * The provider exports these under the names in FAR_CONTROL; a test finds them
 * by dlopen(RTLD_NOLOAD) and dlsym.
 */
#ifndef MRT_PROVIDERS_FAR_H
#define MRT_PROVIDERS_FAR_H

#include <stdbool.h>
#include <stdint.h>

typedef enum far_fault {
    FAR_ALLOC,  /* there is no memory */
    FAR_LAUNCH, /* the launch is refused */
    FAR_COPY,   /* the copy is refused */
    FAR_RUN,    /* what was launched fails while it runs */
    FAR_N_FAULTS
} far_fault;

typedef struct far_figures {
    uint64_t launches, kernels, blocks;    /* launches = kernels + blocks */
    uint64_t to_device, from_device, peer; /* copies */
    uint64_t bytes_copied;
    uint64_t events;
    int64_t queues; /* that are open */
} far_figures;

typedef struct far_control {
    /* The n-th (from 1) of this kind from now on fails, and `run` - 1 more
     * after it; 0 turns it off. */
    void (*fault)(far_fault what, int64_t n, int64_t run);
    /* 0: none; else delays at random, and queues in random order. */
    void (*delays)(uint64_t seed);
    /* Nothing is begun while it is held. */
    void (*hold)(bool on);
    far_figures (*figures)(void); /* of all devices since the last call */
} far_control;

#define FAR_CONTROL "far_control_table"

#endif
