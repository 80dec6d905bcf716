/* SPDX-License-Identifier: Apache-2.0
 *
 * provider.c -- the LLVM provider: segments in, native code out.
 *
 * Each segment gets a module in a context of its own; a short list of passes
 * inlines the definitions and tidies up, ORC's LLJIT makes machine code of it.
 * What the code calls (SLEEF, memcpy) are absolute symbols from the host's
 * table.  Nothing here is contracted, reassociated or rounded otherwise than
 * the interpreter's kernels: equal bits are the point.
 *
 * Called by: compile/jit.c through the table, on its worker alone.
 */
#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <llvm-c/Error.h>
#include <llvm-c/ErrorHandling.h>
#include <llvm-c/Target.h>
#include <llvm-c/Transforms/PassBuilder.h>

#include "cpu/jit/bitcode.h"
#include "cpu/jit/jit.h"

/* The definitions come optimised; what is left is to inline them, to forget
 * the stack and to join what meets at the seams. */
#define PASSES                                                                 \
    "always-inline,function(sroa,early-cse,"                                   \
    "instcombine<no-verify-fixpoint>,simplifycfg)"

/* ---- LLVM's ways of failing
 * --------------------------------------------------
 */

static mr_code
failed(const mr_jit *j, const char *what, LLVMErrorRef error)
{
    char *text = LLVMGetErrorMessage(error);
    mr_code rc = j->host->fail(MR_E_DEVICE, "LLVM: %s: %s", what, text);

    LLVMDisposeErrorMessage(text);
    return rc;
}

/* Diagnostics come back as errors too; LLVM's default prints and exits. */
static void
be_silent(LLVMDiagnosticInfoRef info, void *unused)
{
    (void)info;
    (void)unused;
}

/* LLVM ends the process after a fatal error (a check of its own, an operation
 * that it cannot select) unless the handler does not come back.  Ours jumps out
 * of LLVM, whose state is not to be trusted any more: it is never called again,
 * and what it held is lost.  Code that it made stays good. */
static _Thread_local sigjmp_buf *escape; /* of a call of ours, or NULL */
static _Thread_local char fatal_reason[256];

static void
on_fatal(const char *reason)
{
    if (escape == NULL)
        return; /* somebody else's LLVM calls: as if there were no handler */
    snprintf(fatal_reason, sizeof fatal_reason, "%s", reason);
    siglongjmp(*escape, 1);
}

static mr_code
is_broken(mr_jit *j)
{
    return j->host->fail(MR_E_DEVICE, "LLVM failed for good: %s",
                         j->fatal_text);
}

/* For tests: the next segment meets a fatal error of LLVM's. */
__attribute__((visibility("default"))) void mr_jit_provoke_fatal(void);
static _Atomic bool provoked; /* relaxed: a test's wish */

void
mr_jit_provoke_fatal(void)
{
    atomic_store_explicit(&provoked, true, memory_order_relaxed);
}

/* ---- start ------------------------------------------------------------------
 */

static mr_code
target_make(mr_jit *j)
{
    char *triple = LLVMGetDefaultTargetTriple(), *error = NULL;
    LLVMTargetRef target;
    mr_code rc = MR_OK;

    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeX86AsmParser(); /* float16 on AVX2 */
    if (LLVMGetTargetFromTriple(triple, &target, &error) != 0) {
        rc = j->host->fail(MR_E_DEVICE, "LLVM: %s", error);
        LLVMDisposeMessage(error);
    } else {
        j->target = LLVMCreateTargetMachine(
            target, triple, j->avx512 ? "x86-64-v4" : "x86-64-v3", "",
            LLVMCodeGenLevelDefault, LLVMRelocPIC, LLVMCodeModelSmall);
    }
    LLVMDisposeMessage(triple);
    if (rc == MR_OK && j->target == NULL)
        rc = j->host->fail(MR_E_DEVICE, "LLVM has no machine for this target");
    return rc;
}

static mr_code
symbols_define(mr_jit *j)
{
    const mr_jit_host *h = j->host;
    LLVMOrcCSymbolMapPair *pair = h->alloc(h->symbols->n * sizeof *pair);
    LLVMErrorRef error;

    if (pair == NULL)
        return MR_E_MEMORY;
    for (size_t i = 0; i < h->symbols->n; i++)
        pair[i] = (LLVMOrcCSymbolMapPair){
            .Name =
                LLVMOrcLLJITMangleAndIntern(j->lljit, h->symbols->list[i].name),
            .Sym = {
                .Address = (uintptr_t)h->symbols->list[i].address,
                .Flags = {.GenericFlags = LLVMJITSymbolGenericFlagsExported |
                                          LLVMJITSymbolGenericFlagsCallable}}};
    error = LLVMOrcJITDylibDefine(LLVMOrcLLJITGetMainJITDylib(j->lljit),
                                  LLVMOrcAbsoluteSymbols(pair, h->symbols->n));
    h->dealloc(pair);
    return error == NULL ? MR_OK : failed(j, "symbols", error);
}

static mr_code
lljit_make(mr_jit *j)
{
    LLVMOrcLLJITBuilderRef b = LLVMOrcCreateLLJITBuilder();
    LLVMErrorRef error;
    mr_code rc = target_make(j);
    LLVMTargetMachineRef mine = j->target;

    if (rc != MR_OK) {
        LLVMOrcDisposeLLJITBuilder(b);
        return rc;
    }
    /* the builder takes a machine for itself: make another for the passes */
    LLVMOrcLLJITBuilderSetJITTargetMachineBuilder(
        b, LLVMOrcJITTargetMachineBuilderCreateFromTargetMachine(mine));
    j->target = NULL;
    rc = target_make(j);
    error = LLVMOrcCreateLLJIT(&j->lljit, b);
    if (error != NULL)
        return failed(j, "start", error);
    return rc == MR_OK ? symbols_define(j) : rc;
}

/* ---- the table --------------------------------------------------------------
 */

static mr_code
module_optimise(mr_jit *j, LLVMModuleRef m)
{
    LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
    LLVMErrorRef error = LLVMRunPasses(m, PASSES, j->target, options);

    LLVMDisposePassBuilderOptions(options);
    return error == NULL ? MR_OK : failed(j, "passes", error);
}

/* A module of the segment, optimised; it goes to the tracker.  unfinished:
 * NULL, or whether weaving was left out. */
static mr_code
module_add(mr_jit *j, const mr_segment *s, const char *name, bool *unfinished,
           LLVMOrcResourceTrackerRef tracker)
{
    LLVMOrcThreadSafeContextRef safe = LLVMOrcCreateNewThreadSafeContext();
    LLVMContextRef context = LLVMOrcThreadSafeContextGetContext(safe);
    LLVMModuleRef m;
    LLVMErrorRef error;
    mr_code rc;

    LLVMContextSetDiagnosticHandler(context, be_silent, NULL);
    LLVMContextSetDiscardValueNames(context, true);
    m = mr__jit_emit(j, context, s, name);
    rc = m == NULL ? MR_E_DEVICE : module_optimise(j, m);
    if (rc != MR_OK) {
        if (m != NULL)
            LLVMDisposeModule(m);
        LLVMOrcDisposeThreadSafeContext(safe);
        return rc;
    }
    if (unfinished != NULL)
        *unfinished =
            mr__jit_can_weave(j, context, LLVMGetNamedFunction(m, name));
    else
        mr__jit_weave(j, context, LLVMGetNamedFunction(m, name), s->past != 0);
    error = LLVMOrcLLJITAddLLVMIRModuleWithRT(
        j->lljit, tracker, LLVMOrcCreateNewThreadSafeModule(m, safe));
    LLVMOrcDisposeThreadSafeContext(safe); /* the module keeps it */
    return error == NULL ? MR_OK : failed(j, "module", error);
}

static void
code_release(void *self, void *code)
{
    LLVMOrcResourceTrackerRef tracker = code;
    const mr_jit *j = self;
    LLVMErrorRef error;

    if (j->broken)
        return;
    error = LLVMOrcResourceTrackerRemove(tracker);
    if (error != NULL)
        LLVMConsumeError(error);
    LLVMOrcReleaseResourceTracker(tracker);
}

/* A call of another processor's instruction: "Cannot select". */
static mr_code
foreign_add(mr_jit *j, const char *name, LLVMOrcResourceTrackerRef tracker)
{
    static const char foreign[] = "llvm.amdgcn.workitem.id.x";
    LLVMOrcThreadSafeContextRef safe = LLVMOrcCreateNewThreadSafeContext();
    LLVMContextRef context = LLVMOrcThreadSafeContextGetContext(safe);
    LLVMModuleRef m = LLVMModuleCreateWithNameInContext(name, context);
    LLVMTypeRef type =
        LLVMFunctionType(LLVMInt32TypeInContext(context), NULL, 0, false);
    LLVMValueRef f = LLVMAddFunction(m, name, type);
    LLVMBuilderRef b = LLVMCreateBuilderInContext(context);
    LLVMErrorRef error;

    LLVMPositionBuilderAtEnd(b, LLVMAppendBasicBlockInContext(context, f, ""));
    LLVMBuildRet(b, LLVMBuildCall2(b, type, LLVMAddFunction(m, foreign, type),
                                   NULL, 0, ""));
    LLVMDisposeBuilder(b);
    error = LLVMOrcLLJITAddLLVMIRModuleWithRT(
        j->lljit, tracker, LLVMOrcCreateNewThreadSafeModule(m, safe));
    LLVMOrcDisposeThreadSafeContext(safe);
    return error == NULL ? MR_OK : failed(j, "module", error);
}

static mr_code
compile_segment(mr_jit *j, const mr_segment *s, mr_native_fn **fn, void **code,
                bool *unfinished)
{
    LLVMOrcResourceTrackerRef tracker = LLVMOrcJITDylibCreateResourceTracker(
        LLVMOrcLLJITGetMainJITDylib(j->lljit));
    LLVMOrcExecutorAddress address = 0;
    char name[32];
    mr_code rc;

    snprintf(name, sizeof name, "mr_f%llu", (unsigned long long)j->n_made++);
    /* relaxed: a test's wish, once */
    if (atomic_exchange_explicit(&provoked, false, memory_order_relaxed))
        rc = foreign_add(j, name, tracker);
    else
        rc = module_add(j, s, name, unfinished, tracker);
    if (rc == MR_OK) {
        LLVMErrorRef error = LLVMOrcLLJITLookup(j->lljit, &address, name);

        if (error != NULL)
            rc = failed(j, "code", error);
    }
    if (rc != MR_OK) {
        code_release(j, tracker);
        return rc;
    }
    *fn = (mr_native_fn *)(uintptr_t)address;
    *code = tracker;
    return MR_OK;
}

static mr_code
compile_guarded(void *self, const mr_segment *s, mr_native_fn **fn, void **code,
                bool *unfinished)
{
    mr_jit *j = self;
    sigjmp_buf here;
    mr_code rc;

    if (j->broken)
        return is_broken(j);
    if (sigsetjmp(here, 0) != 0) {
        escape = NULL;
        j->broken = true;
        memcpy(j->fatal_text, fatal_reason, sizeof j->fatal_text);
        return is_broken(j);
    }
    escape = &here;
    rc = compile_segment(j, s, fn, code, unfinished);
    escape = NULL;
    return rc;
}

static mr_code
compile(void *self, const mr_segment *s, mr_native_fn **fn, void **code)
{
    return compile_guarded(self, s, fn, code, NULL);
}

static void
jit_close(void *self)
{
    mr_jit *j = self;

    if (j->broken) /* what LLVM holds is lost, and so is what refers to it */
        return;
    if (j->lljit != NULL)
        LLVMConsumeError(LLVMOrcDisposeLLJIT(j->lljit));
    if (j->target != NULL)
        LLVMDisposeTargetMachine(j->target);
    j->host->dealloc(j);
}

/* An empty function: what LLVM sets up when it is first used, and the code that
 * does it, are there before anybody waits for a function. */
static mr_code
warm_up(mr_jit *j)
{
    static const char name[] = "mr_warm_up";
    LLVMOrcResourceTrackerRef tracker = LLVMOrcJITDylibCreateResourceTracker(
        LLVMOrcLLJITGetMainJITDylib(j->lljit));
    LLVMOrcThreadSafeContextRef safe = LLVMOrcCreateNewThreadSafeContext();
    LLVMContextRef context = LLVMOrcThreadSafeContextGetContext(safe);
    LLVMModuleRef m = LLVMModuleCreateWithNameInContext(name, context);
    LLVMValueRef f = LLVMAddFunction(
        m, name,
        LLVMFunctionType(LLVMVoidTypeInContext(context), NULL, 0, false));
    LLVMBuilderRef b = LLVMCreateBuilderInContext(context);
    LLVMOrcExecutorAddress address;
    LLVMErrorRef error;
    mr_code rc;

    mr__jit_processor_set(j, context, f);
    LLVMPositionBuilderAtEnd(b, LLVMAppendBasicBlockInContext(context, f, ""));
    LLVMBuildRetVoid(b);
    LLVMDisposeBuilder(b);
    rc = module_optimise(j, m);
    error = LLVMOrcLLJITAddLLVMIRModuleWithRT(
        j->lljit, tracker, LLVMOrcCreateNewThreadSafeModule(m, safe));
    LLVMOrcDisposeThreadSafeContext(safe);
    if (error == NULL)
        error = LLVMOrcLLJITLookup(j->lljit, &address, name);
    if (error != NULL)
        rc = failed(j, "start", error);
    code_release(j, tracker);
    return rc;
}

static bool handler_installed; /* the worker's */

__attribute__((visibility("default"))) mr_code
mr_jit_init(const mr_jit_host *host, mr_jit_table *out);

mr_code
mr_jit_init(const mr_jit_host *host, mr_jit_table *out)
{
    mr_jit *j;
    mr_code rc;

    if (host->size != sizeof *host || host->abi != MR_JIT_ABI ||
        strcmp(host->build, MR_BUILD_HASH) != 0)
        return host->refuse("llvm", MR_BUILD_HASH);
    if (strcmp(host->tier, "avx2") != 0 && strcmp(host->tier, "avx512") != 0)
        return host->fail(MR_E_DEVICE,
                          "the tier %s has no native code: it needs avx2",
                          host->tier);
    j = host->alloc(sizeof *j);
    if (j == NULL)
        return MR_E_MEMORY;
    memset(j, 0, sizeof *j);
    j->host = host;
    j->avx512 = strcmp(host->tier, "avx512") == 0;
    j->points = mr__bitcode_points(j->avx512);
    if (!handler_installed) {
        LLVMInstallFatalErrorHandler(on_fatal);
        handler_installed = true;
    }
    rc = lljit_make(j);
    if (rc == MR_OK)
        rc = warm_up(j);
    if (rc != MR_OK) {
        jit_close(j);
        return rc;
    }
    *out = (mr_jit_table){.size = sizeof *out,
                          .abi = MR_JIT_ABI,
                          .build = MR_BUILD_HASH,
                          .name = "llvm",
                          .self = j,
                          .compile = compile,
                          .compile_quick = compile_guarded,
                          .release = code_release,
                          .close = jit_close};
    return MR_OK;
}
