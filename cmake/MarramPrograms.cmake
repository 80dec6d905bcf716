# SPDX-License-Identifier: Apache-2.0
#
# The command, the examples (one file each, public headers only) and the
# benches (one file each; they may include anything).
file(GLOB command_sources CONFIGURE_DEPENDS
    ${CMAKE_SOURCE_DIR}/tools/marram/*.c)
if(command_sources)
    add_executable(marram_command ${command_sources})
    target_include_directories(marram_command PRIVATE
        ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/tools/marram)
    target_include_directories(marram_command SYSTEM PRIVATE
        ${CJSON_INCLUDE_DIRS})
    target_compile_options(marram_command PRIVATE ${MR_C_FLAGS})
    target_link_libraries(marram_command PRIVATE ${MR_USED_LIBRARY}
        PkgConfig::CJSON m)
    set_target_properties(marram_command PROPERTIES OUTPUT_NAME marram
        BUILD_RPATH "$ORIGIN/../lib")
    add_dependencies(products marram_command)
endif()

file(GLOB example_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/examples/*.c)
foreach(source IN LISTS example_sources)
    get_filename_component(name ${source} NAME_WE)
    add_executable(example_${name} ${source})
    target_compile_options(example_${name} PRIVATE ${MR_C_FLAGS})
    target_link_libraries(example_${name} PRIVATE ${MR_USED_LIBRARY} m)
    set_target_properties(example_${name} PROPERTIES OUTPUT_NAME ${name}
        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/examples
        BUILD_RPATH "$ORIGIN/../../lib")
    add_dependencies(products example_${name})
endforeach()

# Benches measure what users get; those that need the inside (they say so by
# including a header of src/) are linked against the testing copy.
file(GLOB bench_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/*.c)
add_custom_target(benches)
foreach(source IN LISTS bench_sources)
    get_filename_component(name ${source} NAME_WE)
    file(STRINGS ${source} inside REGEX
        "^#include \"(base|array|graph|ops|transform|eval|compile|cpu|io|nn|kernels)/")
    if(inside AND NOT TARGET marram_testing)
        continue()
    endif()
    add_executable(bench_${name} EXCLUDE_FROM_ALL ${source})
    mr_sources(bench_${name})
    if(inside)
        target_link_libraries(bench_${name} PRIVATE marram_testing m
            Threads::Threads)
    else()
        target_link_libraries(bench_${name} PRIVATE ${MR_USED_LIBRARY} m
            Threads::Threads)
    endif()
    set_target_properties(bench_${name} PROPERTIES OUTPUT_NAME ${name}
        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/bench
        BUILD_RPATH "$ORIGIN/../../lib")
    add_dependencies(benches bench_${name})
endforeach()
