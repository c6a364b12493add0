/* swiftkv quantize: a model with weights of 4 or 8 bits. */
#include "report.h"
#include "runtime.h"
#include "skv/quantize.h"

int cli_run_quantize(const cli_options *options)
{
    const char *path = options->operands[0], *out = options->operands[1];
    skv_error err = {0};
    skv_quantize_options quantize = skv_quantize_options_default();
    skv_quantize_report report = {0};
    cli_progress progress;
    const bool chosen = options->weights == SKV_WEIGHTS_AUTO;
    quantize.weights = chosen ? SKV_WEIGHTS_INT8 : options->weights;
    if (options->group != 0) quantize.group = options->group;
    quantize.data = options->data.at;
    quantize.n_data = options->data.n;
    quantize.method = options->quantize_method;
    quantize.threads = options->threads;
    cli_progress_begin(&progress, "quantising");
    quantize.progress = cli_progress_share;
    quantize.user = &progress;
    const skv_status done = skv_quantize(path, out, &quantize, &report, &err);
    cli_progress_end(&progress);
    const int status = cli_check(done, &err);
    if (status != CLI_DONE) return status;
    if (chosen) printf("chosen: --weights int8 (int4 takes half of it, with a larger error)\n");
    printf("%s: %zu matrices of %s in groups of %zu, squared error %.3g %%, %.4g MB of %.4g\n", out,
           report.n_quantized, skv_weights_name(quantize.weights), quantize.group,
           100 * report.error, (double)report.bytes * 1e-6, (double)report.bytes_from * 1e-6);
    if (report.tokens > 0) printf("calibrated with %zu tokens\n", report.tokens);
    if (quantize.method != SKV_QUANTIZE_GPTQ && report.tokens > 0) {
        printf("%zu inputs of %zu are scaled\n", report.n_scaled, report.n_inputs);
    }
    if (report.n_nearest > 0) {
        printf("%zu matrices of experts are rounded to the nearest: their inputs are not known\n",
               report.n_nearest);
    }
    if (report.n_left > 0) {
        printf("%zu matrices stay as they are: their row length is not a multiple of %zu\n",
               report.n_left, quantize.group);
    }
    return CLI_DONE;
}
