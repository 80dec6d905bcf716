/* SPDX-License-Identifier: Apache-2.0
 *
 * fork.c -- one place for what happens around fork().
 *
 * prepare: workers and user threads that run tasks stop at a task's end, then
 * the registry of streams, the plan lock and the locks behind it are taken in
 * rank order, so that no structure is half written and no task half run.
 * child: only the forking thread lives.  Queued tasks are still in their
 * streams; the first wait gives each stream a drainer.  Locks of threads that
 * are gone are made anew.  What was under way on a device with queues of its
 * own stays in the parent.
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
#include "eval/transfer.h"

static void
prepare(void)
{
    mr__pool_fork_prepare();
    mr__streams_fork_prepare();
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
    mr__streams_fork_parent();
    mr__pool_fork_parent();
    mr__streams_kick_all(); /* who wanted to in the meantime did not */
}

static void
child(void)
{
    mr__log_fork_child();
    mr__buffer_fork_child();
    mr__lock_drop(&mr__plan_lock);
    mr__devices_fork_child();
    mr__copies_fork_child();
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
