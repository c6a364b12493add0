/*
 * config.json: what parses has passed every check, and what is written of it parses again. The
 * same bytes are tried as generation_config.json.
 */
#include "fuzz.h"

#include <stdlib.h>

#include "format/config.h"

static void check(int ok)
{
    if (!ok) abort();
}

static void check_again(const skv_buf *json, const skv_config *c)
{
    skv_config again;
    check(skv_config_parse(json->data, json->size, "again", &again, NULL) == SKV_OK);
    check(again.n_layers == c->n_layers && again.hidden == c->hidden && again.vocab == c->vocab);
    skv_config_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *json = (const char *)data;
    skv_config c;
    if (skv_config_parse(json, size, "fuzz", &c, NULL) != SKV_OK) return 0;
    check(skv_config_check(&c, "fuzz", NULL) == SKV_OK);
    (void)!skv_config_parse_generation(json, size, "fuzz", &c, NULL);
    skv_buf out;
    skv_buf_init(&out, 64 << 20);
    if (skv_config_json_from_config(&c, &out, NULL) == SKV_OK) check_again(&out, &c);
    skv_buf_clear(&out);
    if (skv_config_json_for_swiftkv(json, size, "fuzz", &c, &out, NULL) == SKV_OK) {
        check_again(&out, &c);
    }
    skv_buf_clear(&out);
    if (c.kv_prediction && skv_config_json_for_kvp(json, size, "fuzz", &c, &out, NULL) == SKV_OK) {
        check_again(&out, &c);
    }
    skv_buf_release(&out);
    skv_config_release(&c);
    return 0;
}
