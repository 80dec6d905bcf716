/* SPDX-License-Identifier: Apache-2.0
 *
 * exit.c -- LLVM's statics are not destroyed at exit.
 *
 * The host joins the compile thread at exit, in a handler that is registered
 * when LLVM is loaded and so runs before those that LLVM registered by then.
 * LLVM registers more of them as it goes: these come first, and destroy what a
 * compilation is using.  Where LLVM is linked into this object, so is the
 * function that registers them, with --wrap: it forgets them, and the system
 * takes the memory back.
 */
#ifdef MR_LLVM_IS_OURS

int __wrap___cxa_atexit(void (*destroy)(void *), void *what, void *object);

int
__wrap___cxa_atexit(void (*destroy)(void *), void *what, void *object)
{
    (void)destroy;
    (void)what;
    (void)object;
    return 0;
}

#endif
