/* GET /v1/models: the one model that is served. */
#include "routes.h"

void api_models(exchange *ex)
{
    const http_server *server = ex->server;
    out_text out = {0};
    out_str(&out, "{\"object\":\"list\",\"data\":[{\"id\":");
    out_json_str(&out, server->name);
    out_format(&out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"swiftkv\",\"root\":",
               (long long)server->started_s);
    out_json_str(&out, server->name);
    out_format(&out,
               ",\"parent\":null,\"max_model_len\":%zu,\"swiftkv\":{\"active\":%s,"
               "\"teacher\":%s}}]}",
               server->limits.context, server->limits.swiftkv ? "true" : "false",
               server->limits.has_teacher ? "true" : "false");
    exchange_reply_json(ex, 200, &out);
}
