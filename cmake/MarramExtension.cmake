# SPDX-License-Identifier: Apache-2.0
#
# build/python/marram: the extension, and links to the pure Python files.
if(NOT MR_PYTHON_EXT)
    return()
endif()
file(GLOB extension_sources CONFIGURE_DEPENDS
    ${CMAKE_SOURCE_DIR}/python/ext/*.c)
list(APPEND extension_sources ${MR_GEN_PYTHON_SOURCES})
set(package_dir ${CMAKE_BINARY_DIR}/python/marram)

if(extension_sources AND NOT EXISTS ${MR_PYTHON_INCLUDE}/Python.h)
    message(STATUS "no Python.h beside ${MR_PYTHON}: no Python extension")
elseif(extension_sources)
    add_library(marram_python MODULE ${extension_sources})
    target_include_directories(marram_python PRIVATE
        ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/python/ext
        ${MR_GEN_DIR})
    target_include_directories(marram_python SYSTEM PRIVATE
        ${MR_PYTHON_INCLUDE})
    # A type's slots are void * to CPython, also those that are functions.
    target_compile_options(marram_python PRIVATE ${MR_C_FLAGS} -Wno-pedantic
        -Wno-cast-qual -fvisibility=hidden)
    target_compile_definitions(marram_python PRIVATE
        Py_LIMITED_API=0x030B0000 MR_PLAIN_CALLS)
    target_link_libraries(marram_python PRIVATE ${MR_USED_LIBRARY}
        Threads::Threads)
    set_target_properties(marram_python PROPERTIES PREFIX ""
        OUTPUT_NAME "_core" SUFFIX ".abi3.so"
        LIBRARY_OUTPUT_DIRECTORY ${package_dir}
        BUILD_RPATH "$ORIGIN/../../lib" INSTALL_RPATH "$ORIGIN/lib")
    add_dependencies(products marram_python)
endif()

# The links stand for the set of files, not for what is in them: they are made
# anew when a file comes or goes, and when what stands for them is gone.
file(GLOB_RECURSE package_files CONFIGURE_DEPENDS
    RELATIVE ${CMAKE_SOURCE_DIR}/python/marram
    ${CMAKE_SOURCE_DIR}/python/marram/*.py
    ${CMAKE_SOURCE_DIR}/python/marram/*.pyi
    ${CMAKE_SOURCE_DIR}/python/marram/py.typed)
list(JOIN package_files "\n" package_list)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/python/files.txt
    CONTENT "${CMAKE_SOURCE_DIR}\n${package_list}\n" @ONLY)
add_custom_command(OUTPUT ${package_dir}/.linked
    COMMAND ${CMAKE_COMMAND} -DFROM=${CMAKE_SOURCE_DIR}/python/marram
        -DTO=${package_dir} -P ${CMAKE_SOURCE_DIR}/cmake/link_python.cmake
    COMMAND ${CMAKE_COMMAND} -E touch ${package_dir}/.linked
    DEPENDS ${CMAKE_BINARY_DIR}/python/files.txt
        ${CMAKE_SOURCE_DIR}/cmake/link_python.cmake
    COMMENT "Linking python/marram" VERBATIM)
add_custom_target(marram_python_files ALL DEPENDS ${package_dir}/.linked)
add_dependencies(products marram_python_files)
