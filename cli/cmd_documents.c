/* swiftkv documents: generated training and evaluation documents as lines of JSON. */
#include "progress.h"
#include "runtime.h"
#include "skv/documents.h"
#include "skv/text.h"

static int print_all(const cli_options *options, const skv_documents *documents)
{
    skv_error err = {0};
    const size_t count = options->count != CLI_NOT_GIVEN ? options->count : 10;
    int status = CLI_DONE;
    for (uint64_t i = 0; i < count && status == CLI_DONE; i++) {
        char *line;
        size_t n;
        status = cli_check(
            skv_documents_json(documents, options->first + i, options->evaluation, &line, &n, &err),
            &err);
        if (status != CLI_DONE) break;
        if (fwrite(line, 1, n, stdout) != n || putchar('\n') == EOF) {
            status = cli_fail("standard output: cannot write");
        }
        skv_text_free(line);
    }
    return status;
}

int cli_run_documents(const cli_options *options)
{
    skv_documents_options how = skv_documents_default();
    how.seed = options->sampling.seed;
    how.tasks = options->tasks;
    how.held_out = options->held_out || options->evaluation;
    how.vocab = options->vocab;
    how.prose = options->prose;
    if (options->tokens_min != 0) how.tokens_min = options->tokens_min;
    if (options->tokens_max != 0) how.tokens_max = options->tokens_max;
    if (options->questions_max != 0) how.questions_max = options->questions_max;
    if (options->tokens_max == 0 && how.tokens_max < how.tokens_min)
        how.tokens_max = how.tokens_min;
    if (options->tokens_min == 0 && how.tokens_min > how.tokens_max)
        how.tokens_min = how.tokens_max;
    skv_error err = {0};
    skv_documents *documents = NULL;
    int status = cli_check(skv_documents_open(&how, &documents, &err), &err);
    if (status == CLI_DONE) status = print_all(options, documents);
    skv_documents_close(documents);
    return status;
}
