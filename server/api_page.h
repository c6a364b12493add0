/* The page at /, as cmake/page.cmake put it into the program. */
#ifndef SKV_SERVER_API_PAGE_H
#define SKV_SERVER_API_PAGE_H

#include <stddef.h>

extern const unsigned char page_bytes[];
extern const size_t page_n;
/* Content-Security-Policy: the page's own style and script, requests to this server alone. */
extern const char page_policy[];

#endif
