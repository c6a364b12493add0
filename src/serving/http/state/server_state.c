/* Questions that every file may ask the server: see server_impl.h. Nothing here starts or ends
 * anything. */
#include "state/server_impl.h"

#include <string.h>

#include "base/system.h"

server_state server_get_state(http_server *server)
{
    pthread_mutex_lock(&server->lock);
    const server_state state = server->state;
    pthread_mutex_unlock(&server->lock);
    return state;
}

bool model_is_loaded(const server_model *model)
{
    return model->state == MODEL_READY || model->state == MODEL_RETIRING;
}

rate_limits server_limits(http_server *server, uint64_t key)
{
    rate_limits limits = {server->options.requests_a_minute, server->options.tokens_a_minute};
    if (server->keys) api_keys_limits(server->keys, key, &limits);
    return limits;
}

uint64_t server_draw(http_server *server)
{
    uint64_t bits = 0;
    if (skv_random_fill(&bits, sizeof bits)) return bits;
    return skv_now_ns() + (atomic_fetch_add(&server->n_drawn, 1) << 48);
}

struct timespec server_time_in(double seconds)
{
    return skv_clock_in((uint64_t)(seconds * 1e9));
}

double server_flush_seconds(const server_options *o)
{
    const double seconds = o->shutdown_seconds;
    return seconds < 1 ? 1 : seconds > LIMIT_FLUSH_SECONDS ? LIMIT_FLUSH_SECONDS : seconds;
}

bool server_list_has(const char *list, skv_text_piece word)
{
    for (const char *at = list; at; at = strchr(at, ',')) {
        if (at > list) at++;
        const size_t n = strcspn(at, ",");
        if (n == 1 && *at == '*') return true;
        if (n == word.n && memcmp(at, word.text, n) == 0) return true;
    }
    return false;
}

bool server_list_next(const char **at, skv_text_piece *out)
{
    while (**at) {
        *at += **at == ',';
        *out = (skv_text_piece){*at, strcspn(*at, ",")};
        *at += out->n;
        if (out->n > 1 || (out->n == 1 && *out->text != '*')) return true;
    }
    return false;
}
