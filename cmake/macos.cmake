# Building for macOS elsewhere, to see that every file compiles and the program links: `zig cc` with Apple's
# headers, and stubs of the libraries (tools/checks/mac_stubs.py). What it makes was never run.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_VERSION 22)
set(CMAKE_SYSTEM_PROCESSOR $ENV{SKV_MAC_PROCESSOR})
set(tools ${CMAKE_CURRENT_LIST_DIR}/../build/macos)
set(CMAKE_C_COMPILER ${tools}/bin/cc)
set(CMAKE_AR ${tools}/bin/ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${tools}/bin/ranlib CACHE FILEPATH "")
set(CMAKE_INSTALL_NAME_TOOL true CACHE FILEPATH "")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(ENV{PKG_CONFIG_LIBDIR} ${tools}/pkgconfig)
set(ENV{PKG_CONFIG_PATH} "")
