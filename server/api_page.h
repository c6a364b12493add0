/* The page at /, as CMakeLists.txt puts it into the program. */
#ifndef SKV_SERVER_API_PAGE_H
#define SKV_SERVER_API_PAGE_H

#include <stddef.h>

extern const unsigned char page_html[];
extern const size_t page_html_bytes;
/* Content-Security-Policy: the page's own style and script, requests to this server alone. */
extern const char page_policy[];

#endif
