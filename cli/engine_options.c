/* The options of an engine, from those of the command line: see runtime.h. */
#include "runtime.h"

#include <string.h>

const char *cli_preset_of(const char *path)
{
    static const char prefix[] = "preset:";
    const size_t n = sizeof prefix - 1;
    return strncmp(path, prefix, n) == 0 ? path + n : NULL;
}

skv_speculation cli_speculation_of(const cli_options *options)
{
    skv_speculation out = options->speculation;
    skv_error err;
    if (!options->draft || options->speculation_given) return out;
    const skv_status status = skv_speculation_parse(skv_drafting_name(SKV_DRAFT_MODEL), &out, &err);
    return status == SKV_OK ? out : options->speculation;
}

skv_engine_options cli_engine_options(const cli_options *options)
{
    skv_engine_options out = skv_engine_options_default();
    out.threads = options->threads;
    out.weights = options->weights;
    out.kv = options->kv;
    out.state = options->state;
    out.prefill = options->prefill;
    out.cpu = options->cpu;
    out.device = options->device;
    out.by_layer = options->gpu_layers != CLI_NOT_GIVEN;
    out.device_layers = options->gpu_layers;
    out.pruning = options->pruning;
    out.ffn_skip = options->ffn_skip;
    out.early_exit = options->early_exit;
    out.adapters = options->adapters;
    out.context = options->context;
    out.step_tokens = options->step_tokens;
    out.eviction = options->eviction;
    out.speculation = cli_speculation_of(options);
    out.draft_model = options->draft;
    out.mtp =
        out.speculation.source == SKV_DRAFT_MTP || out.speculation.source == SKV_DRAFT_TEXT_MTP;
    out.preset_kv_layers = options->kv_layers;
    out.preset_group = options->group;
    out.preset_exit_words = options->exit_words;
    out.team = options->team;
    out.sums = options->sums;
    return out;
}
