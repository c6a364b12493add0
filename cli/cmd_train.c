/* swiftkv distill, swiftkv train: recipes, progress, the log, the dry run. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/json_out.h"
#include "options.h"
#include "report.h"
#include "skv/curve.h"
#include "skv/recipe.h"
#include "skv/tools.h"
#include "skv/train.h"
#include "training.h"

enum { CLI_PATH_MAX = 4096 };
#define MINUTE_NS UINT64_C(60000000000)

/* ---- the recipe ---- */

static int set(skv_recipe *recipe, const char *key, const char *value)
{
    skv_error err = {0};
    if (skv_recipe_set(recipe, key, value, &err) == SKV_OK) return CLI_DONE;
    return cli_usage("--%s", err.text);
}

/* Reads the recipe's file; options of the command line take precedence. */
static int fill_recipe(const cli_options *o, skv_recipe *recipe)
{
    skv_error err = {0};
    int status = CLI_DONE;
    if (o->recipe) status = cli_check(skv_recipe_read(o->recipe, recipe, &err), &err);
    if (status == CLI_DONE && o->from_scratch) status = set(recipe, "task", "scratch");
    if (status == CLI_DONE && o->stages) status = set(recipe, "stages", o->stages);
    for (size_t i = 0; status == CLI_DONE && i < o->settings.n; i++) {
        status = set(recipe, o->settings.key[i], o->settings.value[i]);
    }
    if (status == CLI_DONE && o->data.n > 0) status = set(recipe, "data", o->data.at[0]);
    for (size_t i = 1; status == CLI_DONE && i < o->data.n; i++) {
        if (skv_recipe_add_data(recipe, o->data.at[i], &err) != SKV_OK) {
            status = cli_usage("--data: %s", err.text);
        }
    }
    skv_train_options *train = &recipe->options;
    if (o->n_operands > 0) train->model = o->operands[0];
    if (o->n_operands > 1) train->out = o->operands[1];
    train->resume = o->resume;
    return status;
}

enum { STEP_TOKENS = 1024, STEPS = 300, STEPS_FLAT = 1000 };
#define ANSWERS_SHARE (1.0 / 16) /* of a conversation's tokens, roughly */

/* Returns the share of a stage's tokens that are learnt, estimated from the kinds of its
 * sources. */
static double learnt_share(const skv_train_stage *s)
{
    double learnt = 0, all = 0;
    for (size_t i = 0; i < s->n_data; i++) {
        const skv_train_data *d = &s->data[i];
        const char *end = d->file ? strrchr(d->file, '.') : NULL;
        const bool talks = d->self_tokens == 0 && (!d->file || (end && strcmp(end, ".jsonl") == 0));
        all += d->weight;
        if (d->learn == SKV_LEARN_NONE) continue;
        learnt += d->weight * (talks && d->learn == SKV_LEARN_ANSWERS ? ANSWERS_SHARE : 1);
    }
    return learnt > 0 && all > 0 ? learnt / all : 1;
}

/* The rate falls with the square root of the width, and rises with that of the tokens that a step
 * learns from (measured: docs/guides/train.md). Other parts than SwiftKV's projections are trained
 * at the authors' rate. */
static double choose_rate(const skv_train_options *train, const skv_train_stage *s, size_t width)
{
    if (train->part != SKV_TRAIN_QKV) return 2e-4;
    return 2e-4 * sqrt(4096.0 / (double)width * learnt_share(s));
}

static bool has_data(const skv_train_options *train)
{
    for (size_t i = 0; i < train->n_stages; i++) {
        if (train->stages[i].n_data > 0) return true;
    }
    return false;
}

/* Chooses as much text as the run reads, so that none is read twice. If only the last layer is
 * replaced, it reads its own input: the model computes the same as its teacher, and its run ends
 * with the first step. */
static size_t choose_text(skv_train_options *train, const skv_model_info *info, size_t n,
                          char *chosen, size_t capacity)
{
    const bool same = !info->swiftkv && train->kv_layers + 1 == info->layers && train->group <= 1;
    uint64_t all = 0;
    for (size_t i = 0; i < train->n_stages; i++) {
        skv_train_stage *s = &train->stages[i];
        const uint64_t steps = same ? 1 : s->steps;
        const uint64_t batches = steps * s->accumulate + (i == 0 ? train->held_out : 0);
        s->data[0] = skv_train_data_default(NULL);
        s->data[0].self_tokens = batches * s->rows * s->seq;
        s->n_data = 1;
        all += s->data[0].self_tokens;
    }
    const int more = snprintf(chosen + n, capacity - n,
                              "%s%.3g M tokens of text that the model writes itself (--data TEXT: "
                              "yours)",
                              n > 0 ? ", " : "", (double)all * 1e-6);
    return n + (more > 0 ? (size_t)more : 0);
}

/* Chooses defaults for a distillation: half of the layers, rows that fit the model, a rate, text.
 * Prints one line with the choices. */
static int choose(const cli_options *o, skv_train_options *train)
{
    skv_error err = {0};
    skv_model_info info;
    char chosen[512] = "";
    if (train->task != SKV_TRAIN_DISTILL || !train->model) return CLI_DONE;
    const int status = cli_check(skv_model_info_read(train->model, &info, &err), &err);
    if (status != CLI_DONE) return status;
    size_t n = 0;
    if (!info.swiftkv && train->kv_layers == 0 && info.layers > 1) {
        train->kv_layers = info.layers / 2;
        n += (size_t)snprintf(chosen, sizeof chosen, "kv-layers %zu of %zu", train->kv_layers,
                              info.layers);
    }
    for (size_t i = 0; i < train->n_stages; i++) {
        skv_train_stage *s = &train->stages[i];
        if (s->rate > 0 && s->seq > 0 && s->rows > 0 && s->steps > 0) continue;
        if (s->steps == 0) s->steps = train->until_flat ? STEPS_FLAT : STEPS;
        if (s->seq == 0) s->seq = info.context < STEP_TOKENS ? info.context : STEP_TOKENS;
        if (s->rows == 0) s->rows = s->seq < STEP_TOKENS ? STEP_TOKENS / s->seq : 1;
        if (s->rate <= 0) s->rate = choose_rate(train, s, info.hidden);
        if (n < sizeof chosen && i == 0) {
            n += (size_t)snprintf(chosen + n, sizeof chosen - n,
                                  "%slr %.2g for a width of %zu, %llu steps of %zu x %zu tokens",
                                  n > 0 ? ", " : "", s->rate, info.hidden,
                                  (unsigned long long)s->steps, s->rows, s->seq);
        }
    }
    if (!has_data(train)) n = choose_text(train, &info, n, chosen, sizeof chosen);
    if (n > 0 && !o->dry_run) printf("chosen: %s\n", chosen);
    (void)fflush(stdout);
    return CLI_DONE;
}

static int check_recipe(const cli_options *o, const skv_train_options *train)
{
    const char *name = cli_command_at(o->command)->name;
    if ((o->command == CLI_DISTILL) != (train->task == SKV_TRAIN_DISTILL)) {
        return cli_usage("%s: the recipe's task is %s", name,
                         train->task == SKV_TRAIN_DISTILL ? "distill" : "not distill");
    }
    if (!train->model) return cli_usage("%s: MODEL is missing", name);
    if (!train->out) return cli_usage("%s: OUT is missing", name);
    if (train->task == SKV_TRAIN_DISTILL && !has_data(train))
        return CLI_DONE; /* it writes its own */
    for (size_t i = 0; !o->dry_run && i < train->n_stages; i++) {
        if (train->stages[i].n_data == 0) {
            return cli_usage("%s: --data FILE is missing, or --data self:2M for text that the "
                             "model writes itself",
                             name);
        }
    }
    return CLI_DONE;
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
    print_bytes("frozen weights, packed", c.packed_bytes);
    print_bytes("gradients", c.gradient_bytes);
    print_bytes("optimiser", c.optimiser_bytes);
    print_bytes("teacher's copies", c.teacher_bytes);
    print_bytes("activations", c.activation_bytes);
    print_bytes("working memory", c.scratch_bytes);
    print_bytes("together", c.weight_bytes + c.packed_bytes + c.gradient_bytes + c.optimiser_bytes +
                                c.teacher_bytes + c.activation_bytes + c.scratch_bytes);
    printf("%-24s %10zu\n", "tokens a step", c.tokens);
    printf("%-24s %10.1f GFLOP\n", "arithmetic a step", c.step_flops * 1e-9);
    printf("%-24s %10.3f M\n", "tokens of the run", c.run_tokens * 1e-6);
    printf("%-24s %10.3f TFLOP\n", "arithmetic of the run", c.run_flops * 1e-12);
    return CLI_DONE;
}

/* ---- a run ---- */

typedef struct watcher {
    const char *log_path;
    FILE *log;     /* opened with the first step: the folder exists by then */
    int log_error; /* errno of its failure */
    bool speaks, terminal;
    bool distils; /* from the teacher's distribution, so its loss can be 0 */
    uint64_t shown_ns, printed_ns;
    cli_interrupt *interrupt; /* borrowed */
} watcher;

/* Shares of positions at which the exit's first token equals the model's, at which the exit is
 * confident (above 0.95), and of the latter, those at which it is right. */
typedef struct exit_shares {
    double agreed, sure, sure_agreed;
} exit_shares;

static exit_shares count_exit(const skv_train_progress *p)
{
    const size_t last = SKV_TRAIN_EXIT_BINS - 1;
    double seen = 0, agreed = 0;
    for (size_t i = 0; i <= last; i++) {
        seen += p->exit_seen[i];
        agreed += p->exit_agreed[i];
    }
    return (exit_shares){seen > 0 ? agreed / seen : 0, seen > 0 ? p->exit_seen[last] / seen : 0,
                         p->exit_seen[last] > 0 ? p->exit_agreed[last] / p->exit_seen[last] : 0};
}

static void write_exit(skv_json_out *json, const skv_train_progress *p)
{
    const exit_shares shares = count_exit(p);
    skv_json_out_put_number(json, "exit_loss", p->exit);
    skv_json_out_put_number(json, "exit_agreed", shares.agreed);
    skv_json_out_put_number(json, "exit_sure", shares.sure);
    skv_json_out_put_number(json, "exit_sure_agreed", shares.sure_agreed);
}

static void write_log(FILE *log, const skv_train_progress *p)
{
    skv_json_out json = {.stream = log};
    skv_json_out_open(&json, '{');
    skv_json_out_put_integer(&json, "step", p->step);
    skv_json_out_put_integer(&json, "stage", p->stage);
    skv_json_out_put_number(&json, "loss", p->loss);
    skv_json_out_put_number(&json, "hidden_loss", p->hidden);
    if (p->exit > 0) write_exit(&json, p);
    if (p->auxiliary > 0) {
        skv_json_out_put_number(&json, "auxiliary_loss", p->auxiliary);
        skv_json_out_put_number(&json, "consistency_loss", p->consistency);
    }
    if (p->balance > 0) skv_json_out_put_number(&json, "balance_loss", p->balance);
    if (p->held > 0) skv_json_out_put_number(&json, "held_loss", p->held);
    skv_json_out_put_number(&json, "lr", p->rate);
    skv_json_out_put_number(&json, "grad_norm", p->norm);
    skv_json_out_put_integer(&json, "tokens", p->tokens);
    skv_json_out_put_integer(&json, "loss_tokens", p->loss_tokens);
    skv_json_out_put_number(&json, "seconds", p->seconds);
    skv_json_out_put_number(&json, "tokens_s", p->tokens_s);
    skv_json_out_close(&json, '}');
    putc('\n', log);
}

static void print_step(FILE *stream, const skv_train_progress *p)
{
    fprintf(stream, "step %llu of %llu: loss %.4f", (unsigned long long)p->step,
            (unsigned long long)p->steps, p->loss);
    if (p->hidden > 0) fprintf(stream, ", hidden %.4g", p->hidden);
    if (p->auxiliary > 0) {
        fprintf(stream, ", auxiliary %.4f, consistency %.4f", p->auxiliary, p->consistency);
    }
    if (p->exit > 0) {
        fprintf(stream, ", exit %.4f agrees %.0f %%", p->exit, 100 * count_exit(p).agreed);
    }
    if (p->balance > 0) fprintf(stream, ", balance %.3f", p->balance);
    char left[CLI_TIME_TEXT];
    if (p->held > 0) fprintf(stream, ", held out %.4f", p->held);
    if (p->flat && p->held > 0) fputs(", which falls no more: the end", stream);
    fprintf(stream, ", lr %.3g, %.0f tokens/s, %s left", p->rate, p->tokens_s,
            cli_time_text(p->flat ? 0 : p->eta, left));
}

/* Prints the run's gain, at its end. */
static void print_held(const watcher *w, const skv_train_progress *p)
{
    if (p->flat && p->held_first <= 0) {
        puts("held out: 0, this form computes the same as its teacher: nothing to repair");
    } else if (p->held_first > 0) {
        printf("held out: %.4f at the beginning, %.4f now", p->held_first, p->held);
        if (w->distils)
            printf(": %.0f %% of the damage repaired", 100 * (1 - p->held / p->held_first));
        putchar('\n');
    }
}

/* A terminal shows every step on one line; other outputs get some twenty lines a run, and one a
 * minute. */
static void show_step(watcher *w, const skv_train_progress *p)
{
    const uint64_t every = p->steps > 20 ? p->steps / 20 : 1;
    const uint64_t now = skv_now_ns();
    if (w->terminal && now - w->shown_ns > UINT64_C(100000000)) {
        fputs("\r\x1b[K", stderr);
        print_step(stderr, p);
        w->shown_ns = now;
    }
    const bool shown = p->step % every == 0 || p->step == 1 || p->step == p->steps || p->flat;
    if (shown || now - w->printed_ns > MINUTE_NS) {
        w->printed_ns = now;
        if (w->terminal) fputs("\r\x1b[K", stderr);
        print_step(stdout, p);
        putchar('\n');
        if (p->flat || p->step == p->steps) print_held(w, p);
        fflush(stdout);
    }
}

/* One of several processes keeps the log; any of them may be interrupted. */
static bool on_step(void *user, const skv_train_progress *p)
{
    watcher *w = user;
    if (w->speaks) {
        if (!w->log) w->log = fopen(w->log_path, "a");
        if (!w->log) w->log_error = errno;
        if (!w->log) return false;
        write_log(w->log, p);
        if (fflush(w->log) != 0) w->log_error = errno;
        show_step(w, p);
        if (w->log_error != 0) return false;
    }
    return !cli_interrupted(w->interrupt);
}

static int check_log(watcher *w)
{
    if (w->log && fclose(w->log) != 0 && w->log_error == 0) w->log_error = errno;
    if (w->log_error == 0) return CLI_DONE;
    return cli_fail("%s: cannot be written: %s", w->log_path, strerror(w->log_error));
}

/* The run with its log; curves are drawn from the log when it ends, however it ends. */
static int run(skv_train_options *train, watcher *w, const char *svg_path)
{
    skv_error err = {0}, curve_err = {0};
    train->on_step = on_step;
    train->user = w;
    cli_interrupt_watch(w->interrupt, NULL);
    if (w->speaks && w->terminal) fputs("\r\x1b[Kopening, then the first step", stderr);
    const skv_status ran = skv_train_run(train, &err);
    cli_interrupt_unwatch(w->interrupt);
    if (!w->speaks) return ran == SKV_OK ? CLI_DONE : CLI_FAILED;
    if (w->terminal && ran != SKV_OK) fputs("\r\x1b[K", stderr);
    const bool logged = w->log;
    /* A failing log stops the run; another error takes precedence. */
    int status = ran == SKV_CANCELLED ? CLI_DONE : cli_check(ran, &err);
    const int closed = check_log(w);
    if (status == CLI_DONE) status = closed;
    if (status == CLI_DONE) status = cli_check(ran, &err);
    if (closed != CLI_DONE || !logged) return status;
    const int drawn =
        cli_check(skv_curve_write(w->log_path, svg_path, train->out, &curve_err), &curve_err);
    return status != CLI_DONE ? status : drawn;
}

static void print_team(const skv_train_options *o)
{
    if (!o->team || o->team->size == 1) return;
    const size_t threads = o->threads > 0 ? o->threads : o->team->threads;
    printf("%zu processes, %zu thread%s in this one\n", o->team->size, threads,
           threads == 1 ? "" : "s");
    fflush(stdout);
}

static int run_in_folder(const cli_options *o, skv_train_options *train, bool speaks)
{
    char log[CLI_PATH_MAX], svg[CLI_PATH_MAX];
    const char *given = o->log_file ? o->log_file : "";
    const int n =
        snprintf(log, sizeof log, "%s%s", *given ? given : train->out, *given ? "" : "/log.jsonl");
    const int n_svg = snprintf(svg, sizeof svg, "%s/curves.svg", train->out);
    if (n >= (int)sizeof log || n_svg >= (int)sizeof svg) {
        return cli_usage("%s: a path of more than %d bytes", train->out, CLI_PATH_MAX);
    }
    watcher w = {.log_path = log,
                 .speaks = speaks,
                 .distils = train->task == SKV_TRAIN_DISTILL && train->loss == SKV_TRAIN_KL,
                 .terminal = speaks && cli_terminal(),
                 .interrupt = o->interrupt};
    if (speaks) print_team(train);
    cli_self_data self;
    int status = cli_self_data_write(o, train, &self);
    if (status == CLI_DONE) status = run(train, &w, svg);
    cli_self_data_release(&self);
    if (speaks && status == CLI_DONE) printf("%s: written\n", train->out);
    return status;
}

static int run_in_team(const cli_options *options, skv_train_options *train)
{
    cli_team *team;
    int status = cli_team_join(&team);
    if (status != CLI_DONE) return status;
    train->team = cli_team_table(team);
    const bool speaks = cli_team_speaks(team);
    if (!options->dry_run) {
        status = run_in_folder(options, train, speaks);
    } else if (speaks) {
        status = dry_run(train);
    }
    cli_team_leave(team);
    return status;
}

/* Runs the task with the options of the command line. */
static int train(const cli_options *options, skv_train_task task)
{
    skv_recipe recipe;
    skv_recipe_init(&recipe, task);
    if (task == SKV_TRAIN_DISTILL) { /* the model chooses values that stay 0 */
        skv_train_stage *stage = &recipe.options.stages[0];
        stage->rate = 0;
        stage->steps = stage->seq = stage->rows = 0;
    }
    int status = fill_recipe(options, &recipe);
    if (status == CLI_DONE) status = check_recipe(options, &recipe.options);
    if (status == CLI_DONE) status = choose(options, &recipe.options);
    if (status == CLI_DONE) status = run_in_team(options, &recipe.options);
    skv_recipe_release(&recipe);
    return status;
}

int cli_run_distill(const cli_options *options)
{
    return train(options, SKV_TRAIN_DISTILL);
}

int cli_run_train(const cli_options *options)
{
    return train(options, options->from_scratch ? SKV_TRAIN_SCRATCH : SKV_TRAIN_FINETUNE);
}
