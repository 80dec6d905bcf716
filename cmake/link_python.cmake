# SPDX-License-Identifier: Apache-2.0
#
# cmake -DFROM= -DTO= -P: makes TO mirror the Python files of FROM by links,
# and drops the links of files that are gone.
cmake_minimum_required(VERSION 3.22)
file(GLOB_RECURSE files RELATIVE ${FROM} ${FROM}/*.py ${FROM}/*.pyi
    ${FROM}/py.typed)
file(MAKE_DIRECTORY ${TO})
file(GLOB_RECURSE links RELATIVE ${TO} ${TO}/*.py ${TO}/*.pyi ${TO}/py.typed)
foreach(name IN LISTS links)
    if(NOT name IN_LIST files)
        file(REMOVE ${TO}/${name})
    endif()
endforeach()
foreach(name IN LISTS files)
    if(NOT EXISTS ${TO}/${name})
        get_filename_component(folder ${TO}/${name} DIRECTORY)
        file(MAKE_DIRECTORY ${folder})
        file(CREATE_LINK ${FROM}/${name} ${TO}/${name} SYMBOLIC)
    endif()
endforeach()
