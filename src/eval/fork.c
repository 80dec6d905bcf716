/* SPDX-License-Identifier: Apache-2.0
 *
 * fork.c -- one place for what happens around fork().
 *
 * prepare: workers stop at a task's end, then the plan lock and the locks
 * behind it are taken in rank order, so that no structure is half written.
 * child: only the forking thread lives.  Queued tasks are still in their
 * streams and run on whoever waits for them; locks of threads that are gone
 * are made anew.  What another user thread was computing at that moment stays
 * unfinished in the child: a program that forks while threads evaluate must
 * not read those arrays there.
 *
 * Registered when the library is loaded.
 */
#include "eval/fork.h"

#include <pthread.h>

#include "array/buffer.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/pool.h"
#include "eval/line.h"
#include "eval/plan.h"

static void
prepare(void)
{
    mr__pool_fork_prepare();
    mr__lock_take(&mr__plan_lock);
    mr__buffer_fork_prepare();
    mr__log_fork_prepare();
}

static void
parent(void)
{
    mr__log_fork_parent();
    mr__buffer_fork_parent();
    mr__lock_drop(&mr__plan_lock);
    mr__pool_fork_parent();
}

static void
child(void)
{
    mr__log_fork_child();
    mr__buffer_fork_child();
    mr__lock_drop(&mr__plan_lock);
    mr__devices_fork_child();
    mr__line_fork_child();
    mr__streams_fork_child();
    mr__wait_fork_child();
    mr__tasks_fork_child();
    mr__pool_fork_child();
}

__attribute__((constructor)) static void
register_handlers(void)
{
    pthread_atfork(prepare, parent, child);
}
