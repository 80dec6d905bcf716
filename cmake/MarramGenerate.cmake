# SPDX-License-Identifier: Apache-2.0
#
# Runs the generator at configure time, because the list of the files that it
# makes depends on api/.  A change of its inputs reconfigures.  It writes to a
# folder aside and only what differs is copied, so that a change of one record
# does not recompile the rest.
set(MR_GEN_LIBRARY_SOURCES)
set(MR_GEN_PYTHON_SOURCES)
set(generator ${CMAKE_SOURCE_DIR}/tools/gen/gen.py)
file(MAKE_DIRECTORY ${MR_GEN_DIR})

file(GLOB generator_inputs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/api/*.toml
    ${CMAKE_SOURCE_DIR}/tools/gen/*)
if(EXISTS ${generator})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
        ${generator_inputs})
    set(fresh ${CMAKE_BINARY_DIR}/gen.new)
    file(REMOVE_RECURSE ${fresh})
    file(MAKE_DIRECTORY ${fresh})
    execute_process(COMMAND ${CMAKE_COMMAND} -E env PYTHONDONTWRITEBYTECODE=1
        ${MR_PYTHON} ${generator} --root ${CMAKE_SOURCE_DIR} --build ${fresh}
        RESULT_VARIABLE rc OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(NOT rc EQUAL 0)
        message(FATAL_ERROR "tools/gen/gen.py failed:\n${output}")
    endif()
    execute_process(COMMAND ${CMAKE_COMMAND} -E env PYTHONDONTWRITEBYTECODE=1
        ${MR_PYTHON} ${generator} --root ${CMAKE_SOURCE_DIR} --check
        RESULT_VARIABLE rc OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(NOT rc EQUAL 0)
        message(WARNING "committed files are older than api/: run make generate, or the build may fail\n${output}")
    endif()
    file(GLOB_RECURSE new RELATIVE ${fresh} ${fresh}/*)
    file(GLOB_RECURSE old RELATIVE ${MR_GEN_DIR} ${MR_GEN_DIR}/*)
    foreach(name IN LISTS old)
        if(NOT name IN_LIST new AND
                NOT name MATCHES "^gen/(build_hash|kernels_digest)\\.h$")
            file(REMOVE ${MR_GEN_DIR}/${name})
        endif()
    endforeach()
    foreach(name IN LISTS new)
        get_filename_component(folder ${MR_GEN_DIR}/${name} DIRECTORY)
        file(MAKE_DIRECTORY ${folder})
        file(COPY_FILE ${fresh}/${name} ${MR_GEN_DIR}/${name} ONLY_IF_DIFFERENT)
        if(name MATCHES "^py_.*\\.c$")
            list(APPEND MR_GEN_PYTHON_SOURCES ${MR_GEN_DIR}/${name})
        elseif(name MATCHES "^[^/]*\\.c$")
            list(APPEND MR_GEN_LIBRARY_SOURCES ${MR_GEN_DIR}/${name})
        endif()
    endforeach()
endif()
