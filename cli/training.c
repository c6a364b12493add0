/* What `distill` and `train` share. */
#include "training.h"

#include <string.h>

#include "json_out.h"
#include "progress.h"
#include "skv/tools.h"

static void take_size(size_t *to, size_t given)
{
    if (given > 0) *to = given;
}

static void take_number(double *to, double given)
{
    if (given >= 0) *to = given;
}

static bool is(const char *text, const char *value)
{
    return text != NULL && strcmp(text, value) == 0;
}

static void take_choices(const cli_options *o, skv_train_options *out)
{
    if (is(o->loss, "lm")) out->loss = SKV_TRAIN_LM;
    if (is(o->trainable, "deep-layers")) out->part = SKV_TRAIN_DEEP;
    if (is(o->trainable, "all")) out->part = SKV_TRAIN_ALL;
    if (is(o->schedule, "linear")) out->schedule = SKV_TRAIN_LINEAR;
    if (is(o->schedule, "cosine")) out->schedule = SKV_TRAIN_COSINE;
    if (is(o->schedule, "constant")) out->schedule = SKV_TRAIN_CONSTANT;
    out->all_positions = is(o->denominator, "all");
}

static skv_train_options read_options(const cli_options *o, skv_train_task task)
{
    skv_train_options out = skv_train_options_default(task);
    out.model = o->operands[0];
    out.out = o->operands[1];
    out.kv_layers = o->kv_layers;
    out.group = o->group;
    out.data = o->data.at;
    out.n_data = o->data.n;
    take_size(&out.seq, o->seq);
    take_size(&out.rows, o->rows);
    take_size(&out.accumulate, o->accumulate);
    if (o->steps > 0) out.steps = o->steps;
    if (o->checkpoint_every > 0) out.checkpoint_every = o->checkpoint_every;
    if (o->train_seed != UINT64_MAX) out.seed = o->train_seed;
    take_number(&out.rate, o->rate);
    take_number(&out.warmup_share, o->warmup);
    take_number(&out.final_share, o->final_rate);
    take_number(&out.beta1, o->beta1);
    take_number(&out.beta2, o->beta2);
    take_number(&out.weight_decay, o->weight_decay);
    take_number(&out.max_norm, o->clip);
    take_number(&out.tau, o->tau);
    take_number(&out.hidden_mult, o->hidden_loss);
    take_choices(o, &out);
    out.threads = o->threads;
    out.cpu = o->cpu;
    out.f32 = o->f32;
    out.f32_weights = o->f32_weights;
    out.resume = o->resume;
    out.drop_teacher = o->drop_teacher;
    return out;
}

/* ---- the dry run ---- */

static void print_bytes(const char *what, size_t n)
{
    printf("%-24s %10.1f MiB\n", what, (double)n / (1 << 20));
}

static int dry_run(const skv_train_options *options)
{
    skv_train_cost c;
    skv_error err = {0};
    const int status = cli_check(skv_train_plan(options, &c, &err), &err);
    if (status != CLI_DONE) return status;
    printf("%-24s %10.3f M\n", "parameters", (double)c.parameters * 1e-6);
    printf("%-24s %10.3f M\n", "trained", (double)c.trainable * 1e-6);
    print_bytes("weights (f32)", c.weight_bytes);
    print_bytes("gradients", c.gradient_bytes);
    print_bytes("optimiser", c.optimiser_bytes);
    print_bytes("teacher's copies", c.teacher_bytes);
    print_bytes("activations", c.activation_bytes);
    print_bytes("working memory", c.scratch_bytes);
    print_bytes("together", c.weight_bytes + c.gradient_bytes + c.optimiser_bytes +
                                c.teacher_bytes + c.activation_bytes + c.scratch_bytes);
    printf("%-24s %10zu\n", "tokens a step", c.tokens);
    printf("%-24s %10.1f GFLOP\n", "arithmetic a step", c.step_flops * 1e-9);
    return CLI_DONE;
}

/* ---- a run ---- */

typedef struct watcher {
    FILE *log; /* NULL: none */
    bool terminal;
    uint64_t shown_ns;
} watcher;

static void write_log(FILE *log, const skv_train_progress *p)
{
    cli_json json = {.stream = log};
    cli_json_open(&json, '{');
    cli_json_put_integer(&json, "step", p->step);
    cli_json_put_number(&json, "loss", p->loss);
    cli_json_put_number(&json, "hidden_loss", p->hidden);
    cli_json_put_number(&json, "lr", p->rate);
    cli_json_put_number(&json, "grad_norm", p->norm);
    cli_json_put_integer(&json, "tokens", p->tokens);
    cli_json_put_integer(&json, "loss_tokens", p->loss_tokens);
    cli_json_put_number(&json, "seconds", p->seconds);
    cli_json_put_number(&json, "tokens_s", p->tokens_s);
    cli_json_close(&json, '}');
    putc('\n', log);
    fflush(log);
}

static void print_step(FILE *stream, const skv_train_progress *p)
{
    fprintf(stream, "step %llu of %llu: loss %.4f", (unsigned long long)p->step,
            (unsigned long long)p->steps, p->loss);
    if (p->hidden > 0) fprintf(stream, ", hidden %.4g", p->hidden);
    fprintf(stream, ", lr %.3g, %.0f tokens/s, %.0f s left", p->rate, p->tokens_s, p->eta);
}

/* A terminal shows every step on one line; elsewhere some twenty lines tell of the run. */
static bool on_step(void *user, const skv_train_progress *p)
{
    watcher *w = user;
    const uint64_t every = p->steps > 20 ? p->steps / 20 : 1;
    if (w->log != NULL) write_log(w->log, p);
    if (w->terminal && skv_now_ns() - w->shown_ns > UINT64_C(100000000)) {
        fputs("\r\x1b[K", stderr);
        print_step(stderr, p);
        w->shown_ns = skv_now_ns();
    }
    if (p->step % every == 0 || p->step == 1 || p->step == p->steps) {
        if (w->terminal) fputs("\r\x1b[K", stderr);
        print_step(stdout, p);
        putchar('\n');
        fflush(stdout);
    }
    return true;
}

int cli_training_run(const cli_options *options, skv_train_task task)
{
    skv_train_options train = read_options(options, task);
    if (options->dry_run) return dry_run(&train);
    watcher w = {.terminal = cli_terminal()};
    if (options->log_file != NULL) {
        w.log = fopen(options->log_file, "a");
        if (w.log == NULL) return cli_fail("%s: cannot be written", options->log_file);
    }
    skv_error err = {0};
    train.on_step = on_step;
    train.user = &w;
    int status = cli_check(skv_train_run(&train, &err), &err);
    if (w.log != NULL && fclose(w.log) != 0 && status == CLI_DONE) {
        status = cli_fail("%s: cannot be written", options->log_file);
    }
    if (status == CLI_DONE) printf("%s: written\n", train.out);
    return status;
}
