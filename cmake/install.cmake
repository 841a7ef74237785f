# What an installation has besides the programs and their pages (runtime/programs): the library,
# headers, exogym.pc, a CMake package exogym::exogym, and the documentation with the examples.
include(CMakePackageConfigHelpers)

install(TARGETS exogym EXPORT exogym LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/exogym DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

# The prefix is found from where the .pc file lies, so that the tree can be installed anywhere and
# moved. Outside /usr the loader looks into no folder of itself, nor into /usr/local/lib before the
# next ldconfig, so the program carries the path.
if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
    set(exo_rpath_flag " -Wl,-rpath,\${libdir}")
endif()
file(RELATIVE_PATH exo_prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/exogym.pc.in exogym.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/exogym.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Its pages and examples refer to each other as in the source tree, and to the headers by a link. The
# other sources that pages name are not there.
install(FILES README.md CHANGELOG.md CONTRIBUTING.md LICENSE SECURITY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
file(RELATIVE_PATH headers_from_pages ${CMAKE_INSTALL_FULL_DOCDIR} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/pages)
file(CREATE_LINK ${headers_from_pages} ${CMAKE_CURRENT_BINARY_DIR}/pages/include SYMBOLIC)
install(DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/pages/ DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN build EXCLUDE PATTERN runs EXCLUDE
        PATTERN models EXCLUDE PATTERN __pycache__ EXCLUDE)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/exogym)
install(EXPORT exogym NAMESPACE exogym:: FILE exogym-targets.cmake DESTINATION ${package_folder})
configure_package_config_file(cmake/exogym-config.cmake.in exogym-config.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(exogym-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/exogym-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/exogym-config-version.cmake
        DESTINATION ${package_folder})

# Units of a cluster that stays; packages for systems with systemd turn them on.
option(EXO_SYSTEMD "Install systemd's units of a head and of workers" OFF)
set(units exogym-head.service exogym-worker@.service)
foreach(unit IN LISTS units)
  configure_file(packaging/systemd/${unit}.in systemd/${unit} @ONLY)
endforeach()
if(EXO_SYSTEMD)
  list(TRANSFORM units PREPEND ${CMAKE_CURRENT_BINARY_DIR}/systemd/)
  install(FILES ${units} DESTINATION lib/systemd/system)
  install(FILES packaging/systemd/exogym.sysusers DESTINATION lib/sysusers.d RENAME exogym.conf)
endif()
