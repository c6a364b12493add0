/* swiftkv transform: a model in SwiftKV form, ready for distillation. */
#include "progress.h"
#include "runtime.h"

int cli_run_transform(const cli_options *options)
{
    const char *path = options->operands[0], *out = options->operands[1];
    const size_t group = options->group != 0 ? options->group : 1;
    skv_error err = {0};
    int status = cli_check(skv_transform(path, out, options->kv_layers, group, &err), &err);
    if (status != CLI_DONE) return status;
    skv_model_info before, after;
    status = cli_check(skv_model_info_read(path, &before, &err), &err);
    if (status == CLI_DONE) status = cli_check(skv_model_info_read(out, &after, &err), &err);
    if (status != CLI_DONE) return status;
    printf("%s: %zu layers, keys and values of %zu and later from layer %zu's output, groups of "
           "%zu: %zu KV slots for %zu\n",
           out, after.layers, after.swiftkv_layers, after.swiftkv_layers - 1, after.group,
           after.kv_slots, before.kv_slots);
    return CLI_DONE;
}
