# SPDX-License-Identifier: Apache-2.0
#
# libmarram-jit.so: LLVM 19 behind compile/jit.h.  Wants llvm-config-19 and
# clang-19 (Debian: llvm-19-dev, clang-19); without them the library runs every
# program on its interpreter, and `marram` says so.
option(MR_JIT "Build the LLVM provider if LLVM 19 is there" ON)
set(MR_JIT_WHY_NOT "")
find_program(MR_LLVM_CONFIG NAMES llvm-config-19)
find_program(MR_CLANG19 NAMES clang-19)
if(NOT MR_JIT)
    set(MR_JIT_WHY_NOT "built with -DMR_JIT=OFF")
elseif(MR_SANITIZE)
    # A sanitizer cannot see into LLVM: prove our scheduler, not theirs.
    set(MR_JIT_WHY_NOT "not in a sanitizer build")
elseif(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    set(MR_JIT_WHY_NOT "only for x86-64 as yet")
elseif(NOT MR_LLVM_CONFIG OR NOT MR_CLANG19)
    set(MR_JIT_WHY_NOT "llvm-config-19 or clang-19 was not there when Marram was built")
else()
    execute_process(COMMAND ${MR_LLVM_CONFIG} --includedir
        OUTPUT_VARIABLE llvm_include OUTPUT_STRIP_TRAILING_WHITESPACE
        RESULT_VARIABLE rc ERROR_QUIET)
    execute_process(COMMAND ${MR_LLVM_CONFIG} --link-shared --libs
        OUTPUT_VARIABLE llvm_libs OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    execute_process(COMMAND ${MR_LLVM_CONFIG} --libdir
        OUTPUT_VARIABLE llvm_libdir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(NOT rc EQUAL 0 OR NOT EXISTS ${llvm_include}/llvm-c/LLJIT.h)
        set(MR_JIT_WHY_NOT "LLVM 19's headers were not there when Marram was built")
    endif()
endif()
if(MR_JIT_WHY_NOT)
    message(STATUS "no native code for compiled programs: ${MR_JIT_WHY_NOT}")
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/compile/jit.c PROPERTIES
        COMPILE_DEFINITIONS "MR_JIT_WHY_NOT=\"${MR_JIT_WHY_NOT}\"")
    return()
endif()

# ---- the scalar definitions as bitcode ---------------------------------------
set(jit_files bool8 u8 u16 u32 u64 i8 i16 i32 i64 f16 bf16 f32 f64 c64 c128 cast)
set(jit_flags -std=c17 -D_GNU_SOURCE -O2 -emit-llvm -c -DMR_JIT -ffp-contract=off
    -fwrapv -fno-math-errno -fno-trapping-math -fno-strict-aliasing
    -fno-unwind-tables -fno-asynchronous-unwind-tables -fno-stack-protector
    -Wno-psabi -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include
    -I${MR_GEN_DIR} -isystem ${SLEEF_INCLUDE_DIR})
set(jit_dir ${CMAKE_BINARY_DIR}/bitcode)
file(MAKE_DIRECTORY ${jit_dir})
set(jit_bitcode)
function(mr_bitcode tier id points)
    foreach(name IN LISTS jit_files)
        set(out ${jit_dir}/${tier}_${name}.bc)
        add_custom_command(OUTPUT ${out}
            COMMAND ${MR_CLANG19} ${jit_flags} -DMR_TIER=${tier}
                -DMR_TIER_ID=${id} -DMR_JIT_POINTS=${points} ${ARGN}
                -MD -MF ${out}.d -MT ${out}
                ${CMAKE_SOURCE_DIR}/src/kernels/tier/${name}.c -o ${out}
            DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/tier/${name}.c
            DEPFILE ${out}.d
            COMMENT "Bitcode ${tier}_${name}.bc" VERBATIM)
        list(APPEND made ${out})
    endforeach()
    set(jit_bitcode ${jit_bitcode} ${made} PARENT_SCOPE)
endfunction()
mr_bitcode(avx2 1 8 -march=x86-64-v3)
mr_bitcode(avx512 2 16 -march=x86-64-v4 -mprefer-vector-width=512)

# ---- LLVM itself ---------------------------------------------------------------
# Linked in where its archives are: what is used of it loads in 3 ms where the
# shared library, with the code for all processors, takes 14.  It is then ours
# alone: its settings and its handler of fatal errors are nobody else's.
option(MR_JIT_STATIC "Link LLVM into the provider if its archives are there" ON)
execute_process(COMMAND ${MR_LLVM_CONFIG} --link-static --libs bitreader linker
        orcjit passes x86asmparser x86codegen x86desc x86info
    OUTPUT_VARIABLE llvm_archives OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE rc ERROR_QUIET)
execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libstdc++.a
    OUTPUT_VARIABLE llvm_cxx OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
# LLVM can compress debug information with these; the name of the library that
# it was built with will do where no headers are installed
find_library(MR_LLVM_Z NAMES z libz.so.1)
find_library(MR_LLVM_ZSTD NAMES zstd libzstd.so.1)
mark_as_advanced(MR_LLVM_Z MR_LLVM_ZSTD)
if(MR_JIT_STATIC AND rc EQUAL 0 AND IS_ABSOLUTE "${llvm_cxx}"
        AND MR_LLVM_Z AND MR_LLVM_ZSTD)
    separate_arguments(llvm_archives)
    set(llvm_libs ${llvm_archives} ${llvm_cxx} ${MR_LLVM_Z} ${MR_LLVM_ZSTD}
        -lrt -ldl -lm)
    set(llvm_is_ours ON)
else()
    message(STATUS "LLVM is loaded beside the provider, not linked into it")
    set(llvm_is_ours OFF)
endif()

# ---- the provider --------------------------------------------------------------
file(GLOB jit_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cpu/jit/*.c)
add_library(marram_jit MODULE ${jit_sources})
mr_sources(marram_jit)
target_include_directories(marram_jit SYSTEM PRIVATE ${llvm_include})
target_compile_options(marram_jit PRIVATE -fvisibility=hidden)
target_compile_definitions(marram_jit PRIVATE MR_BITCODE_DIR="${jit_dir}")
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cpu/jit/bitcode.c PROPERTIES
    OBJECT_DEPENDS "${jit_bitcode}")
target_link_libraries(marram_jit PRIVATE -L${llvm_libdir} ${llvm_libs})
target_link_options(marram_jit PRIVATE -Wl,-z,nodelete -Wl,--no-undefined)
if(llvm_is_ours)
    target_compile_definitions(marram_jit PRIVATE MR_LLVM_IS_OURS=1)
    target_link_options(marram_jit PRIVATE -Wl,--gc-sections -Wl,--exclude-libs,ALL
        -Wl,--wrap=__cxa_atexit -Wl,--wrap=arc4random)
endif()
add_dependencies(products marram_jit)
if(TARGET tests)
    add_dependencies(tests marram_jit)
endif()
set(MR_JIT_IN_WHEEL ${llvm_is_ours})
set_target_properties(marram_jit PROPERTIES OUTPUT_NAME marram-jit
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
