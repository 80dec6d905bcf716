# SPDX-License-Identifier: Apache-2.0
#
# Finds MR_PYTHON, an interpreter of 3.11 or later.  Without one there is no
# extension, and generated sources cannot be made.
function(mr_python_is_new_enough path result)
    execute_process(COMMAND ${path} -c
        "import sys; sys.exit(sys.version_info < (3, 11))"
        RESULT_VARIABLE rc OUTPUT_QUIET ERROR_QUIET)
    if(rc EQUAL 0)
        set(${result} TRUE PARENT_SCOPE)
    else()
        set(${result} FALSE PARENT_SCOPE)
    endif()
endfunction()

if(NOT MR_PYTHON)
    foreach(candidate ${CMAKE_BINARY_DIR}/venv/bin/python python3 python3.14
            python3.13 python3.12 python3.11 /usr/bin/python3)
        mr_python_is_new_enough(${candidate} ok)
        if(ok)
            set(MR_PYTHON ${candidate} CACHE STRING "" FORCE)
            break()
        endif()
    endforeach()
endif()
if(NOT MR_PYTHON)
    message(FATAL_ERROR "no Python of 3.11 or later: set MR_PYTHON, or run make, which brings one")
endif()
execute_process(COMMAND ${MR_PYTHON} -c
    "import sysconfig; print(sysconfig.get_paths()['include'])"
    OUTPUT_VARIABLE MR_PYTHON_INCLUDE OUTPUT_STRIP_TRAILING_WHITESPACE)
