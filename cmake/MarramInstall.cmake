# SPDX-License-Identifier: Apache-2.0
#
# make install: headers, library, private libraries, command, and the files
# by which pkg-config and find_package(marram) find them.
include(CMakePackageConfigHelpers)

install(TARGETS marram EXPORT marram_targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/marram DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.h")
if(TARGET marram_command)
    install(TARGETS marram_command DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# The private libraries, under the names by which libmarram asks for them.
if(EXISTS ${CMAKE_BINARY_DIR}/lib/libmarram_blas.so)
    install(PROGRAMS ${CMAKE_BINARY_DIR}/lib/libmarram_blas.so
        DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
# The LLVM provider; the wheel has it when LLVM is linked into it, not beside LLVM's
# shared library, which alone is 120 MB.
if(TARGET marram_jit)
    install(TARGETS marram_jit LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
get_filename_component(sleef_real ${SLEEF_LIBRARY} REALPATH)
execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${sleef_real}
    OUTPUT_VARIABLE sleef_header ERROR_QUIET)
if(sleef_header MATCHES "SONAME[ ]+([^ \n]+)")
    set(sleef_soname ${CMAKE_MATCH_1})
    install(PROGRAMS ${sleef_real} DESTINATION ${CMAKE_INSTALL_LIBDIR}
        RENAME ${sleef_soname})
endif()

install(EXPORT marram_targets NAMESPACE marram:: FILE marram-targets.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/marram)
configure_package_config_file(cmake/marram-config.cmake.in
    ${CMAKE_BINARY_DIR}/marram-config.cmake
    INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/marram)
write_basic_package_version_file(
    ${CMAKE_BINARY_DIR}/marram-config-version.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/marram-config.cmake
    ${CMAKE_BINARY_DIR}/marram-config-version.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/marram)
configure_file(cmake/marram.pc.in ${CMAKE_BINARY_DIR}/marram.pc.in @ONLY)
# The prefix is known at install time only: make install PREFIX=...
install(CODE "
    file(READ \"${CMAKE_BINARY_DIR}/marram.pc.in\" text)
    string(REPLACE \"%PREFIX%\" \"\${CMAKE_INSTALL_PREFIX}\" text \"\${text}\")
    file(WRITE \"${CMAKE_BINARY_DIR}/marram.pc\" \"\${text}\")")
install(FILES ${CMAKE_BINARY_DIR}/marram.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
# The licences of what lies beside the library or is linked into it.
install(CODE "
    execute_process(COMMAND ${MR_PYTHON} ${CMAKE_SOURCE_DIR}/packaging/licences.py
        ${CMAKE_BINARY_DIR}
        \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DOCDIR}/licences\")")

# packaging/wheel.py: what of the package is not pure Python.  A wheel holds no
# links, so the library goes in under its soname alone.
if(TARGET marram_python)
    install(TARGETS marram_python LIBRARY DESTINATION marram
        COMPONENT wheel EXCLUDE_FROM_ALL)
    install(PROGRAMS $<TARGET_FILE:marram> DESTINATION marram/lib
        RENAME $<TARGET_SONAME_FILE_NAME:marram>
        COMPONENT wheel EXCLUDE_FROM_ALL)
    install(PROGRAMS $<TARGET_FILE:marram_command> DESTINATION marram/bin
        COMPONENT wheel EXCLUDE_FROM_ALL)
    if(EXISTS ${CMAKE_BINARY_DIR}/lib/libmarram_blas.so)
        install(PROGRAMS ${CMAKE_BINARY_DIR}/lib/libmarram_blas.so
            DESTINATION marram/lib COMPONENT wheel EXCLUDE_FROM_ALL)
    endif()
    if(MR_JIT_IN_WHEEL)
        install(PROGRAMS $<TARGET_FILE:marram_jit> DESTINATION marram/lib
            COMPONENT wheel EXCLUDE_FROM_ALL)
    endif()
    if(sleef_soname)
        install(PROGRAMS ${sleef_real} DESTINATION marram/lib
            RENAME ${sleef_soname} COMPONENT wheel EXCLUDE_FROM_ALL)
    endif()
endif()
