/* SPDX-License-Identifier: Apache-2.0
 *
 * marram.h -- the whole public API.
 */
#ifndef MARRAM_MARRAM_H
#define MARRAM_MARRAM_H

#include "marram/array.h"
#include "marram/compile.h"
#include "marram/dlpack.h"
#include "marram/einsum.h"
#include "marram/error.h"
#include "marram/eval.h"
#include "marram/io.h"
#include "marram/ops.h"
#include "marram/scope.h"
#include "marram/size.h"
#include "marram/transform.h"
#include "marram/tree.h"
#include "marram/types.h"

#endif
