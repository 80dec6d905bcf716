/* SPDX-License-Identifier: Apache-2.0
 *
 * place.h -- where the values of a program lie.
 *
 * While steps are made a value is a number, and slots of kind MR_SLOT_TEMP
 * hold it with an offset inside the value; likewise a step's workspace.
 * mr__place gives each value its memory and puts that into the slots.
 */
#ifndef MR_COMPILE_PLACE_H
#define MR_COMPILE_PLACE_H

#include "base/arena.h"
#include "compile/steps.h"

/* What a step makes, or works in. */
typedef struct mr_value {
    int64_t size;        /* bytes of its elements, */
    int64_t bytes;       /* and of memory */
    int32_t out;         /* the output it is, or -1 */
    int32_t first, last; /* the steps that write and read it; first < 0: none */
    int32_t heir, donor; /* the value written over it, and that it is written
                            over; or -1 */
    int32_t arg;         /* the argument that it is written over, or -1 */
    int32_t head;        /* the first of its line of heirs: the line has one
                            memory, said there, as are first and last */
    mr_slot_kind kind;
    int32_t index;
    int64_t offset;
    bool placed;
} mr_value;

typedef struct mr_placing {
    mr_program *p;
    mr_arena *scratch;
    mr_value *value;
    int32_t n, cap;
} mr_placing;

/* Its number; -1 without memory. */
int32_t mr__value_new(mr_placing *w, int64_t bytes, int32_t out);
/* All steps are there: their slots say where, block steps are made ready, and
 * the workspace has its size. */
bool mr__place(mr_placing *w);

#endif
