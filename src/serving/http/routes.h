/* The table of endpoints. A family of them is one api_*.c. */
#ifndef SKV_SERVER_ROUTES_H
#define SKV_SERVER_ROUTES_H

#include "transport/exchange.h"

/** All of them; the last one has no path. */
const server_route *routes_all(void);
/** The route of a path, with "/v1" in front or without; NULL: there is none. *other: that of the
 * same path for another method, if there is one. */
const server_route *route_find(const char *method, const char *path, const server_route **other);
/** The methods that a path has, "GET, HEAD"; `out` has room for `room` bytes. */
void route_methods(const char *path, char *out, size_t room);

/* ---- dialects: the endpoints that generate ----
 *
 * X(PATH, NAME): POST PATH is answered by dialect_NAME, a table of functions (answer/api_answer.h)
 * in a file of its own. A new dialect is such a file and a row here. */
#define SKV_DIALECT_LIST(X)                                                                        \
    X("/v1/completions", completions)                                                              \
    X("/v1/chat/completions", chat)                                                                \
    X("/v1/responses", responses)                                                                  \
    X("/v1/messages", messages)                                                                    \
    X("/completion", completion)                                                                   \
    X("/infill", infill)                                                                           \
    X("/api/chat", ollama_chat)                                                                    \
    X("/api/generate", ollama_generate)

struct answer_dialect;
#define DECLARE(path, name) extern const struct answer_dialect dialect_##name;
SKV_DIALECT_LIST(DECLARE)
#undef DECLARE

/* Errors of dialects whose other routes need them. */
extern const error_shape errors_messages, errors_ollama;

/* ---- handlers of the others ---- */

typedef void api_handler_fn(exchange *ex);
api_handler_fn api_page, api_models, api_model, api_health, api_metrics, api_tokenize,
    api_detokenize, api_tokenizer_info, api_apply_template, api_embeddings, api_rerank, api_openapi,
    api_count_chat, api_count_messages, api_count_responses, api_props, api_slots, api_slot,
    api_adapters, api_embedding, api_read, api_ollama_embed, api_ollama_embedding, api_ollama_tags,
    api_ollama_show, api_ollama_ps, api_ollama_version;

#endif
