# SPDX-License-Identifier: Apache-2.0
#
# Puts a private OpenBLAS beside libmarram, which opens it at run time.  It
# comes from the wheel scipy-openblas32 (requirements-build.txt): its symbols
# have a prefix, so it never meets another BLAS of the process.  Without it
# the library uses its own kernels.
if(NOT MR_BLAS)
    foreach(python ${MR_PYTHON} ${CMAKE_BINARY_DIR}/venv/bin/python
            ${CMAKE_SOURCE_DIR}/build/venv/bin/python)
        execute_process(COMMAND ${python} -c
            "import scipy_openblas32 as b, glob; print(glob.glob(b.get_lib_dir() + '/*.so')[0])"
            OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE
            RESULT_VARIABLE rc ERROR_QUIET)
        if(rc EQUAL 0 AND EXISTS "${found}")
            set(MR_BLAS ${found} CACHE STRING "" FORCE)
            break()
        endif()
    endforeach()
endif()
if(MR_SANITIZE MATCHES thread)
    # ThreadSanitizer cannot see into it: prove our scheduler, not theirs.
    set(MR_BLAS none)
endif()
if(MR_BLAS AND NOT MR_BLAS STREQUAL "none")
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
    file(COPY_FILE ${MR_BLAS} ${CMAKE_BINARY_DIR}/lib/libmarram_blas.so
        ONLY_IF_DIFFERENT)
elseif(NOT MR_BLAS)
    message(STATUS "no private OpenBLAS: matrix products use Marram's own kernels")
endif()
