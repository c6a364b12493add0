/* See work_out.h; docs/comparators.md tells what the fields are. */
#include "work_out.h"

void cli_json_put_work(cli_json *json, const char *key, const skv_work *w)
{
    cli_json_key(json, key);
    cli_json_open(json, '{');
    cli_json_put_number(json, "flops", w->total);
    cli_json_put_number(json, "model_flops", w->model);
    cli_json_put_number(json, "kv", w->kv);
    cli_json_put_number(json, "q", w->q);
    cli_json_put_number(json, "o", w->o);
    cli_json_put_number(json, "mlp", w->mlp);
    cli_json_put_number(json, "attention", w->attention);
    cli_json_put_number(json, "vocabulary", w->vocabulary);
    cli_json_put_number(json, "prediction", w->prediction);
    cli_json_put_integer(json, "mlp_blocks", w->mlp_blocks);
    cli_json_put_integer(json, "mlp_skipped", w->mlp_skipped);
    cli_json_put_integer(json, "exits_asked", w->exits_asked);
    cli_json_put_integer(json, "exits", w->exits);
    cli_json_close(json, '}');
}
