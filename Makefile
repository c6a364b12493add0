# A short front for CMake, which is the only description of the build: see CMakePresets.json.

PRESET ?= release
PREFIX ?= /usr/local

.PHONY: all test check debug asan tsan fuzz format install clean

all:
	@script/build $(PRESET)

# Everything, as continuous integration does it; `make check` is the quick part.
test:
	@script/test

check:
	@script/test --quick

debug asan tsan fuzz:
	@script/build $@

format:
	@script/format

install: all
	cmake --install build --prefix $(PREFIX)

clean:
	rm -rf build build-*
