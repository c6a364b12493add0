# Turns server/page.html into C: its bytes, and the policy that allows its one style and its one
# script, by their hashes, and nothing else.
#     cmake -DIN=page.html -DOUT=page_bytes.c -P page.cmake
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(page_bytes ${PROJECT_BINARY_DIR}/page_bytes.c)
  add_custom_command(OUTPUT ${page_bytes}
    COMMAND ${CMAKE_COMMAND} -DIN=${PROJECT_SOURCE_DIR}/server/page.html -DOUT=${page_bytes}
      -P ${CMAKE_CURRENT_LIST_DIR}/page.cmake
    DEPENDS ${PROJECT_SOURCE_DIR}/server/page.html ${CMAKE_CURRENT_LIST_DIR}/page.cmake VERBATIM)
  return()
endif()

# Base64 of bytes given in hexadecimal, three bytes at a time.
function(base64 hex out)
  set(letters "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  set(result "")
  string(LENGTH "${hex}" n)
  set(at 0)
  while(at LESS n)
    string(SUBSTRING "${hex}" ${at} 6 group)
    string(LENGTH "${group}" n_group)
    string(SUBSTRING "${group}0000" 0 6 group)
    foreach(shift 18 12 6 0)
      math(EXPR i "(0x${group} >> ${shift}) & 63")
      string(SUBSTRING "${letters}" ${i} 1 letter)
      string(APPEND result ${letter})
    endforeach()
    if(n_group LESS 6)
      math(EXPR kept "(${n_group} / 2 * 8 + 5) / 6 + ${at} / 6 * 4")
      string(SUBSTRING "${result}" 0 ${kept} result)
      math(EXPR missing "3 - ${n_group} / 2")
      string(REPEAT "=" ${missing} padding)
      string(APPEND result ${padding})
    endif()
    math(EXPR at "${at} + 6")
  endwhile()
  set(${out} "${result}" PARENT_SCOPE)
endfunction()

# The hash of what stands between <tag> and </tag>, which occur once.
function(hash_of tag out)
  string(FIND "${page}" "<${tag}>" from)
  string(FIND "${page}" "</${tag}>" to)
  string(FIND "${page}" "</${tag}>" last REVERSE)
  if(from EQUAL -1 OR NOT to EQUAL last)
    message(FATAL_ERROR "${IN}: one <${tag}> is expected")
  endif()
  string(LENGTH "<${tag}>" n_tag)
  math(EXPR from "${from} + ${n_tag}")
  math(EXPR n "${to} - ${from}")
  string(SUBSTRING "${page}" ${from} ${n} inside)
  string(SHA256 hex "${inside}")
  base64(${hex} text)
  set(${out} "'sha256-${text}'" PARENT_SCOPE)
endfunction()

file(READ ${IN} page)
file(READ ${IN} bytes HEX)
hash_of(style style)
hash_of(script script)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "/* Made by cmake/page.cmake from server/page.html. */
#include \"api_page.h\"

const char page_policy[] =
    \"default-src 'none'; style-src ${style}; script-src ${script}; \"
    \"connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\";
const unsigned char page_bytes[] = {
${bytes}
};
const size_t page_n = sizeof page_bytes;
")
