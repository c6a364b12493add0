/* GET /health: whether requests should be sent here. Never waits for the model. */
#include "routes.h"

static const char *state_of(exchange *ex)
{
    http_server *server = ex->server;
    switch (server_get_state(server)) {
    case SERVER_LOADING: return "loading";
    case SERVER_READY: break;
    default: return "draining";
    }
    return watchdog_stalled(server) ? "stalled" : NULL;
}

void api_health(exchange *ex)
{
    const char *state = state_of(ex);
    out_text out = {0};
    out_format(&out, "{\"status\":\"%s\"}", state != NULL ? state : "ok");
    exchange_reply_json(ex, state != NULL ? 503 : 200, &out);
}
