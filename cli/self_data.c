/* Self-written text. The engine writes it and the trainer reads it; the program connects them, so
 * that neither depends on the other. */
#include "training.h"

#include "interrupt.h"
#include "report.h"
#include "runtime.h"
#include "skv/self_text.h"

typedef struct writing {
    const cli_options *options;
    skv_train_options *train;
    cli_model model;
    cli_progress progress;
} writing;

/* The part that a file already had takes no time. */
static void show(void *user, uint64_t done, uint64_t total)
{
    cli_progress *progress = user;
    if (!progress->counts) progress->first = done;
    progress->counts = true;
    cli_progress_tokens(progress, (size_t)done, (size_t)total);
}

/* The engine of one source is closed before the next, and before the trainer takes its memory. */
static int write_source(writing *w, const skv_train_stage *stage, const skv_train_data *d,
                        char **path)
{
    skv_error err = {0};
    const skv_self_options o = {.tokens = d->self_tokens,
                                .length = stage->seq,
                                .temperature = d->temperature,
                                .seed = w->train->seed,
                                .begin = d->begin,
                                .on_progress = show,
                                .user = &w->progress};
    skv_engine_options engine = skv_self_engine_options(&o, w->model.info.swiftkv);
    engine.threads = w->train->threads;
    engine.cpu = w->train->cpu;
    int status = cli_check(cli_model_try(&w->model, &engine, &err), &err);
    if (status != CLI_DONE) return status;
    cli_progress_begin(&w->progress, "the teacher writes");
    cli_interrupt_watch(w->options->interrupt, w->model.engine);
    const skv_status written =
        skv_self_write(w->model.engine, w->model.vocab, w->train->out, &o, path, &err);
    cli_interrupt_unwatch(w->options->interrupt);
    cli_progress_end(&w->progress);
    skv_engine_close(w->model.engine);
    w->model.engine = NULL;
    status = cli_interrupt_check(written, &err, "run the same command to continue the text");
    const bool speaks = !w->train->team || w->train->team->rank == 0;
    if (status == CLI_DONE && speaks) printf("%s: written by the teacher\n", *path);
    return status;
}

static int write_all_alone(writing *w, cli_self_data *out)
{
    int status = CLI_DONE;
    for (size_t i = 0; i < w->train->n_stages; i++) {
        skv_train_stage *stage = &w->train->stages[i];
        for (size_t j = 0; status == CLI_DONE && j < stage->n_data; j++) {
            skv_train_data *d = &stage->data[j];
            if (d->self_tokens == 0 || d->file) continue;
            status = write_source(w, stage, d, &out->paths[out->n]);
            if (status == CLI_DONE) d->file = out->paths[out->n++];
        }
    }
    return status;
}

/* Checks for an unwritable or foreign folder before hours of writing. */
static int write_first(writing *w, cli_self_data *out)
{
    skv_error err = {0};
    const int status = cli_check(skv_train_check_out(w->train, &err), &err);
    return status == CLI_DONE ? write_all_alone(w, out) : status;
}

/* The first process of a team writes; the others then find its files. Either all continue or none
 * does. */
static int write_all(writing *w, cli_self_data *out)
{
    const skv_team *team = w->train->team;
    if (!team || team->size == 1) return write_first(w, out);
    skv_error err = {0};
    int all[SKV_TEAM_MAX], mine = CLI_DONE;
    if (team->rank == 0) mine = write_first(w, out);
    int status = cli_check(team->share(team->ctx, &mine, sizeof mine, &err), &err);
    if (status == CLI_DONE && mine == CLI_DONE && team->rank > 0) mine = write_all_alone(w, out);
    if (status == CLI_DONE) {
        status = cli_check(team->gather(team->ctx, &mine, all, sizeof mine, &err), &err);
    }
    for (size_t i = 0; status == CLI_DONE && i < team->size; i++) status = all[i];
    return status;
}

static bool wanted(const skv_train_options *train)
{
    for (size_t i = 0; i < train->n_stages; i++) {
        for (size_t j = 0; j < train->stages[i].n_data; j++) {
            if (train->stages[i].data[j].self_tokens > 0) return true;
        }
    }
    return false;
}

int cli_self_data_write(const cli_options *options, skv_train_options *train, cli_self_data *out)
{
    skv_error err = {0};
    skv_train_cost cost;
    *out = (cli_self_data){.n = 0};
    if (!wanted(train)) return CLI_DONE;
    /* A run that would be refused is refused before hours of writing. */
    int status = cli_check(skv_train_plan(train, &cost, &err), &err);
    if (status != CLI_DONE) return status;
    cli_options described = *options;
    described.operands[0] = train->model;
    writing w = {.options = options, .train = train};
    status = cli_model_describe(&w.model, &described);
    if (status == CLI_DONE) status = write_all(&w, out);
    cli_model_close(&w.model);
    return status;
}

void cli_self_data_release(cli_self_data *data)
{
    for (size_t i = 0; i < data->n; i++) skv_text_free(data->paths[i]);
    *data = (cli_self_data){.n = 0};
}
