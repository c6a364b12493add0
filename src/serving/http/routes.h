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

/* ---- their handlers ---- */

void api_page(exchange *ex);
void api_models(exchange *ex);
void api_model(exchange *ex);
void api_health(exchange *ex);
void api_metrics(exchange *ex);
void api_tokenize(exchange *ex);
void api_detokenize(exchange *ex);
void api_tokenizer_info(exchange *ex);
void api_apply_template(exchange *ex);
void api_completions(exchange *ex);
void api_chat(exchange *ex);
void api_embeddings(exchange *ex);
void api_rerank(exchange *ex);
void api_openapi(exchange *ex);
void api_responses(exchange *ex);
void api_messages(exchange *ex);
void api_count_chat(exchange *ex);
void api_count_messages(exchange *ex);
void api_count_responses(exchange *ex);
void api_completion(exchange *ex);
void api_infill(exchange *ex);
void api_props(exchange *ex);
void api_slots(exchange *ex);
void api_slot(exchange *ex);
void api_adapters(exchange *ex);
void api_embedding(exchange *ex);
void api_read(exchange *ex);
void api_ollama_chat(exchange *ex);
void api_ollama_generate(exchange *ex);
void api_ollama_embed(exchange *ex);
void api_ollama_embedding(exchange *ex);
void api_ollama_tags(exchange *ex);
void api_ollama_show(exchange *ex);
void api_ollama_ps(exchange *ex);
void api_ollama_version(exchange *ex);

#endif
