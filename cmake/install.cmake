# What `cmake --install build` lays down: program, libraries, headers, pkg-config file, CMake
# package, man page, shell completion, unit for systemd.
include(CMakePackageConfigHelpers)

if(TARGET swiftkv)
  install(TARGETS swiftkv)
endif()
install(TARGETS skv_static skv_shared EXPORT skv)
install(DIRECTORY include/skv TYPE INCLUDE FILES_MATCHING PATTERN "*.h")
install(FILES man/swiftkv.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES completion/swiftkv.bash RENAME swiftkv
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES completion/_swiftkv DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES completion/swiftkv.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

# The unit names the installed program.
install(CODE "file(READ \"${PROJECT_SOURCE_DIR}/deploy/swiftkv.service\" unit)
string(REPLACE /usr/local/bin \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\" unit \"\${unit}\")
file(WRITE \"${PROJECT_BINARY_DIR}/swiftkv.service\" \"\${unit}\")")
install(FILES ${PROJECT_BINARY_DIR}/swiftkv.service DESTINATION lib/systemd/system)
install(FILES deploy/swiftkv.sysusers RENAME swiftkv.conf DESTINATION lib/sysusers.d)
install(FILES LICENSE RENAME copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/swiftkv)

# The prefix is taken from the place of the file, so that an installed tree may be moved.
string(JOIN " " skv_pc_requires ${skv_requires})
file(RELATIVE_PATH skv_pc_up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" skv_pc_up "${skv_pc_up}")
configure_file(skv.pc.in skv.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/skv.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(skv_package ${CMAKE_INSTALL_LIBDIR}/cmake/skv)
install(EXPORT skv NAMESPACE skv:: FILE skv-targets.cmake DESTINATION ${skv_package})
configure_package_config_file(cmake/skv-config.cmake.in skv-config.cmake
  INSTALL_DESTINATION ${skv_package})
write_basic_package_version_file(skv-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/skv-config.cmake ${PROJECT_BINARY_DIR}/skv-config-version.cmake
  DESTINATION ${skv_package})

include(cmake/package.cmake)
