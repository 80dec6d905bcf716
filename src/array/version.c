/* SPDX-License-Identifier: Apache-2.0
 *
 * version.c -- the version of the library.
 *
 * Called by: users.  Calls: nothing.
 */
#include "marram/array.h"

enum { MAJOR = 0, MINOR = 1, PATCH = 0 };

const char *
mr_version(void)
{
    return "0.1.0";
}

int
mr_version_number(void)
{
    return 100 * 100 * MAJOR + 100 * MINOR + PATCH;
}
