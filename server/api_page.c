/* GET /: the page for people. It holds no secrets, so it needs no key; what it asks for does. */
#include "api_page.h"

#include <stdint.h>

#include "routes.h"

void api_page(exchange *ex)
{
    static const char *const headers[][2] = {{"Content-Security-Policy", page_policy},
                                             {"X-Content-Type-Options", "nosniff"},
                                             {"Referrer-Policy", "no-referrer"}};
    struct MHD_Response *response = MHD_create_response_from_buffer(
        page_html_bytes, (void *)(uintptr_t)page_html, MHD_RESPMEM_PERSISTENT);
    for (size_t i = 0; response != NULL && i < sizeof headers / sizeof headers[0]; i++) {
        (void)MHD_add_response_header(response, headers[i][0], headers[i][1]);
    }
    exchange_send(ex, 200, response, "text/html; charset=utf-8");
}
