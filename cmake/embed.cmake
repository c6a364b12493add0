# A file as bytes in a program: skv_embed(TARGET FILE SYMBOL) adds a generated source with
#     const unsigned char SYMBOL[];  const size_t SYMBOL_bytes;
function(skv_embed target file symbol)
  set(path ${PROJECT_SOURCE_DIR}/${file})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(READ ${path} hex HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/embedded/${symbol}.c @ONLY CONTENT
"/* ${file}, as it was when the build was configured. */
#include <stddef.h>
extern const unsigned char ${symbol}[];
extern const size_t ${symbol}_bytes;
const unsigned char ${symbol}[] = {
${bytes}
};
const size_t ${symbol}_bytes = sizeof ${symbol};
")
  target_sources(${target} PRIVATE ${PROJECT_BINARY_DIR}/embedded/${symbol}.c)
endfunction()
