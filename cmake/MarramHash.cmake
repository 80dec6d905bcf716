# SPDX-License-Identifier: Apache-2.0
#
# gen/build_hash.h: what a provider and the library must agree on, as a hash of
# the headers that a provider sees.  A provider of another hash is refused.
set(hash_inputs src/eval/device.h src/array/buffer.h src/base/error.h
    src/graph/node.h src/graph/op.h src/kernels/ids.h src/kernels/program.h
    src/ops/params.h include/marram/types.h src/compile/jit.h
    src/kernels/native.h src/kernels/tier/tier.h)
list(TRANSFORM hash_inputs PREPEND ${CMAKE_SOURCE_DIR}/)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${hash_inputs})
set(hash_text "${PROJECT_VERSION} ${CMAKE_SYSTEM_PROCESSOR}")
foreach(name IN LISTS hash_inputs ITEMS ${MR_GEN_DIR}/gen/ids.h)
    file(SHA256 ${name} one)
    string(APPEND hash_text " ${one}")
endforeach()
string(SHA256 hash "${hash_text}")
string(SUBSTRING ${hash} 0 16 hash)
set(hash_header ${MR_GEN_DIR}/gen/build_hash.h)
file(WRITE ${CMAKE_BINARY_DIR}/build_hash.h.new "/* Made by cmake/MarramHash.cmake. */
#ifndef MR_GEN_BUILD_HASH_H
#define MR_GEN_BUILD_HASH_H

#ifndef MR_BUILD_HASH
#define MR_BUILD_HASH \"${hash}\"
#endif

#endif
")
file(COPY_FILE ${CMAKE_BINARY_DIR}/build_hash.h.new ${hash_header}
    ONLY_IF_DIFFERENT)
