/* Facts of the model that an engine runs. */
#include "engine/engine.h"

const char *skv_engine_adapter(const skv_engine *e, size_t i)
{
    return i < e->adapters.n ? e->adapters.items[i].name : NULL;
}

size_t skv_engine_vocab(const skv_engine *e)
{
    return e->config->vocab;
}

size_t skv_engine_hidden(const skv_engine *e)
{
    return e->config->hidden;
}

const int32_t *skv_engine_eos(const skv_engine *e, size_t *n)
{
    *n = e->config->n_eos;
    return e->config->eos;
}

bool skv_engine_is_eos(const skv_engine *e, int32_t id)
{
    for (size_t i = 0; i < e->config->n_eos; i++) {
        if (e->config->eos[i] == id) return true;
    }
    return false;
}

int32_t skv_engine_bos(const skv_engine *e)
{
    return e->config->bos;
}
