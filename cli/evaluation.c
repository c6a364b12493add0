/* What eval and tune have in common: how a model is opened and asked. */
#include "evaluation.h"

/* Tokens of KV memory beyond two contexts: what short examples that are asked together take. */
enum { BATCH_TOKENS = 12288, CONTEXT_DEFAULT = 8192, ANSWER_ROOM = 512 };
#define BATCH_BYTES ((size_t)256 << 20)

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* As long as our own documents want it, as far as the model goes. */
static size_t context_of(const cli_options *options, const cli_model *model)
{
    if (options->context != 0) return options->context;
    size_t wanted = CONTEXT_DEFAULT;
    for (size_t i = 0; i < options->lengths.n; i++) {
        if (options->lengths.at[i] + ANSWER_ROOM > wanted)
            wanted = options->lengths.at[i] + ANSWER_ROOM;
    }
    return min_size(wanted, model->info.context);
}

int cli_eval_start(const cli_options *options, cli_model *model)
{
    skv_engine_options engine = cli_engine_options(options);
    const size_t token_bytes = skv_model_kv_bytes_per_token(&model->info, options->kv);
    engine.context = context_of(options, model);
    engine.kv_tokens = 2 * engine.context + min_size(BATCH_TOKENS, BATCH_BYTES / (token_bytes + 1));
    return cli_model_start(model, &engine);
}

skv_eval_options cli_eval_how(const cli_options *options)
{
    skv_eval_options out = skv_eval_options_default();
    out.tasks = options->tasks;
    out.lengths = options->lengths.at;
    out.n_lengths = options->lengths.n;
    if (options->count != CLI_NOT_GIVEN) out.count = options->count;
    if (options->depths != 0) out.depth_bins = options->depths;
    if (options->n_tokens != CLI_NOT_GIVEN) out.max_new = options->n_tokens;
    out.scored = options->scored;
    out.seed = options->sampling.seed;
    out.prose = options->prose;
    out.primer = options->primer;
    out.no_template = options->no_template;
    out.log = options->log_file;
    out.resume = options->resume;
    return out;
}
