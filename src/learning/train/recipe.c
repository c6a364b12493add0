/* Recipes: the table of keys, and YAML files (libyaml) read by it. See skv/recipe.h. */
#include "skv/recipe.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"
#include "base/mem.h"
#include "common/field.h"

enum { FILE_MAX = 1 << 20 };

struct skv_recipe_texts {
    struct skv_recipe_texts *next;
    char *text; /* owned */
};

/* ---- the table ---- */

typedef enum key_home { HOME_RUN, HOME_STAGE, HOME_DATA } key_home;

typedef struct key_row {
    key_home home;
    skv_field field; /* of skv_train_options, _stage or _data */
} key_row;

#define RUN(field) HOME_RUN, offsetof(skv_train_options, field)
#define STAGE(field) HOME_STAGE, offsetof(skv_train_stage, field)
#define DATA(field) HOME_DATA, offsetof(skv_train_data, field)
#define ROW(name, argument, where, kind, min, max, help)                                           \
    ROW_(name, argument, where, kind, min, max, help)
#define ROW_(name, argument, home, offset, kind, min, max, text)                                   \
    {                                                                                              \
        home,                                                                                      \
        {                                                                                          \
            name, argument, SKV_FIELD_##kind, offset, min, max, .help = (text)                     \
        }                                                                                          \
    }

static const key_row rows[] = {
    ROW("task", "distill|finetune|scratch|kvpred|mtp", RUN(task), CHOICE, 0, 0, "what is trained"),
    ROW("model", "MODEL", RUN(model), TEXT, 0, 0, "the model to start from"),
    ROW("out", "FOLDER", RUN(out), TEXT, 0, 0, "where the result and its checkpoints go"),
    ROW("kv-layers", "L", RUN(kv_layers), SIZE, 0, 1 << 16,
        "layers from L on take keys and values from layer L - 1's output"),
    ROW("group", "G", RUN(group), SIZE, 0, 1 << 16, "layers that share keys and values"),
    ROW("seed", "S", RUN(seed), COUNT, 0, 0x1p53, "of data and weights"),
    ROW("checkpoint-every", "N", RUN(checkpoint_every), COUNT, 0, 1e15,
        "steps from one checkpoint to the next"),
    ROW("loss", "kl|lm", RUN(loss), CHOICE, 0, 0, "against the teacher or the text"),
    ROW("trainable", "qkv|deep-layers|all|exit", RUN(part), CHOICE, 0, 0, "what is learnt"),
    ROW("tau", "T", RUN(tau), NUMBER, 1e-3, 1e3, "temperature of the distillation"),
    ROW("hidden-loss-mult", "X", RUN(hidden_mult), NUMBER, 0, 1e6,
        "weight of the error of the last layer's input"),
    ROW("router-loss", "X", RUN(router_loss), NUMBER, 0, 1e3,
        "weight of the loss that balances experts (the model's router_aux_loss_coef)"),
    ROW("loss-denominator", "unmasked|all", RUN(all_positions), EITHER, 0, 0,
        "positions that the loss is averaged over"),
    ROW("early-exit", "no|yes", RUN(early_exit), FLAG, 0, 0,
        "train a head on the input of layer L too"),
    ROW("auxiliary", "MODEL", RUN(auxiliary), TEXT, 0, 0,
        "kvpred: folder, config.json, or lp-0.25, lp-0.50, lp-0.75"),
    ROW("layers", "J,...", RUN(kvp_layers), TEXT, 0, 0,
        "kvpred: the auxiliary's layer that predicts each of the base's"),
    ROW("base-loss", "X", RUN(base_loss), NUMBER, 0, 1e6, "kvpred: weight of the base's loss"),
    ROW("auxiliary-loss", "X", RUN(auxiliary_loss), NUMBER, 0, 1e6,
        "kvpred: weight of the auxiliary's loss"),
    ROW("consistency-loss", "X", RUN(consistency_loss), NUMBER, 0, 1e6,
        "kvpred: weight of the error of keys and values (1 / layers of the base)"),
    ROW("own-answers", "no|yes", RUN(own_answers), FLAG, 0, 0,
        "kvpred: answers see their own keys and values, as in use"),
    ROW("predictor-init", "uniform|identity", RUN(identity), EITHER, 0, 0,
        "kvpred: how new maps begin"),
    ROW("beta1", "X", RUN(beta1), NUMBER, 0, 0.999999, "of AdamW"),
    ROW("beta2", "X", RUN(beta2), NUMBER, 0, 0.999999, "of AdamW"),
    ROW("eps", "X", RUN(eps), NUMBER, 1e-30, 1, "of AdamW"),
    ROW("weight-decay", "X", RUN(weight_decay), NUMBER, 0, 10, "of AdamW"),
    ROW("clip", "X", RUN(max_norm), NUMBER, 0, 1e9, "largest norm of the gradients; 0: any"),
    ROW("threads", "N", RUN(threads), SIZE, 0, 1024, "threads (one per processor allowed)"),
    ROW("cpu", "best|ref|avx2|avxvnni|avx512|amx|neon", RUN(cpu), TEXT, 0, 0,
        "the instructions to use"),
    ROW("f32", "no|yes", RUN(f32), FLAG, 0, 0, "all arithmetic in f32"),
    ROW("drop-teacher", "no|yes", RUN(drop_teacher), FLAG, 0, 0,
        "leave out the projections that only the teacher uses"),
    ROW("held-out", "N", RUN(held_out), SIZE, 0, 4096,
        "batches kept out of the training and measured before and after it"),
    ROW("until-flat", "no|yes", RUN(until_flat), FLAG, 0, 0,
        "end when the loss of held-out rows falls no more"),
    ROW("f32-weights", "no|yes", RUN(f32_weights), FLAG, 0, 0, "write all weights as f32"),
    ROW("delta", "no|yes", RUN(delta), FLAG, 0, 0,
        "write only the differences from MODEL, which lies beside OUT"),
    ROW("steps", "N", STAGE(steps), COUNT, 1, 1e12, "steps of training"),
    ROW("seq", "T", STAGE(seq), SIZE, 16, 1 << 20, "tokens of a sequence"),
    ROW("rows", "B", STAGE(rows), SIZE, 1, 65535, "sequences of a batch"),
    ROW("fuse", "P", STAGE(fuse), NUMBER, 0, 1,
        "share of the rows whose documents see those before them"),
    ROW("accumulate", "N", STAGE(accumulate), SIZE, 1, 65535, "batches of a step"),
    ROW("lr", "X", STAGE(rate), NUMBER, 1e-12, 100, "learning rate"),
    ROW("warmup", "X", STAGE(warmup_share), NUMBER, 0, 1, "share of the steps that warm up"),
    ROW("final-lr", "X", STAGE(final_share), NUMBER, 0, 1,
        "share of the rate that a schedule ends with"),
    ROW("schedule", "constant|linear|cosine", STAGE(schedule), CHOICE, 0, 0, "how the rate falls"),
    ROW("file", "FILE", DATA(file), TEXT, 0, 0, "text, .jsonl, .u16, .u32 or .json ids"),
    ROW("generate", "TASKS", DATA(documents.tasks), TEXT, 0, 0, "generated documents"),
    ROW("weight", "X", DATA(weight), NUMBER, 1e-9, 1e9, "share of the tokens"),
    ROW("self", "N", DATA(self_tokens), COUNT, 1, 1e12, "tokens that the teacher writes"),
    ROW("temperature", "T", DATA(temperature), NUMBER, 0, 100, "it writes with"),
    ROW("begin", "FILE", DATA(begin), TEXT, 0, 0, "lines that its documents begin with"),
    ROW("loss", "answers|all|none", DATA(learn), CHOICE, 0, 0, "which tokens are learnt"),
    ROW("tokens-min", "N", DATA(documents.tokens_min), SIZE, 32, 1 << 20, "shortest document"),
    ROW("tokens-max", "N", DATA(documents.tokens_max), SIZE, 0, 1 << 20,
        "longest document; 0: the sequence"),
    ROW("questions", "N", DATA(documents.questions_max), SIZE, 1, 4096, "most questions"),
    ROW("prose", "FILE", DATA(documents.prose), TEXT, 0, 0, "text around needles"),
};

enum { N_ROWS = sizeof rows / sizeof rows[0] };

static const skv_field *find_key(key_home home, const char *name)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        if (rows[i].home == home && strcmp(rows[i].field.name, name) == 0) return &rows[i].field;
    }
    return NULL;
}

bool skv_recipe_key_at(size_t i, skv_recipe_key *out)
{
    size_t n = 0;
    while (n < N_ROWS && rows[n].home != HOME_DATA) n++;
    if (i >= n) return false;
    const skv_field *field = &rows[i].field;
    *out =
        (skv_recipe_key){field->name, field->argument, field->help, field->kind == SKV_FIELD_FLAG};
    return true;
}

/* ---- values ---- */

static const char *keep_text(skv_recipe *r, const char *text)
{
    struct skv_recipe_texts *kept = skv_alloc_zero(1, sizeof *kept);
    char *copy = skv_strndup(text, strlen(text));
    if (!kept || !copy) {
        skv_free(kept);
        skv_free(copy);
        return NULL;
    }
    *kept = (struct skv_recipe_texts){r->texts, copy};
    r->texts = kept;
    return copy;
}

static skv_status set_value(skv_recipe *r, const skv_field *field, const char *text, void *object,
                            skv_error *err)
{
    if (field->kind == SKV_FIELD_TEXT) {
        text = keep_text(r, text);
        SKV_REQUIRE(text, err, SKV_MEMORY, "recipe: no memory");
    }
    return skv_field_parse(field, text, object, err);
}

/* ---- life ---- */

void skv_recipe_init(skv_recipe *r, skv_train_task task)
{
    *r = (skv_recipe){.options = skv_train_options_default(task)};
}

void skv_recipe_release(skv_recipe *r)
{
    while (r->texts) {
        struct skv_recipe_texts *next = r->texts->next;
        skv_free(r->texts->text);
        skv_free(r->texts);
        r->texts = next;
    }
    r->options = (skv_train_options){.n_stages = 0};
}

/* ---- YAML ---- */

typedef struct reading {
    yaml_document_t *doc;
    const char *name;
    skv_recipe *recipe;
    skv_error *err;
} reading;

/* Prefixes an error with file and line. */
static skv_status at_line(const reading *in, const yaml_node_t *node, skv_status status)
{
    if (status == SKV_OK) return SKV_OK;
    char where[300];
    snprintf(where, sizeof where, "%.250s:%zu", in->name, node->start_mark.line + 1);
    return skv_fail_within(in->err, status, where);
}

static const char *scalar(const yaml_node_t *node)
{
    if (node->type != YAML_SCALAR_NODE) return NULL;
    const char *text = (const char *)node->data.scalar.value;
    return strlen(text) == node->data.scalar.length ? text : NULL;
}

typedef skv_status key_fn(const reading *in, void *object, const char *key,
                          const yaml_node_t *value);

/* Calls fn for every key of a mapping; repeated keys are refused. */
static skv_status each_key(const reading *in, const yaml_node_t *map, void *object, key_fn *fn)
{
    if (map->type != YAML_MAPPING_NODE) {
        return at_line(in, map, skv_fail(in->err, SKV_FORMAT, "expected keys with values"));
    }
    const yaml_node_pair_t *first = map->data.mapping.pairs.start;
    for (const yaml_node_pair_t *pair = first; pair < map->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(in->doc, pair->key);
        const yaml_node_t *value = yaml_document_get_node(in->doc, pair->value);
        const char *name = scalar(key);
        if (!name) return at_line(in, key, skv_fail(in->err, SKV_FORMAT, "a key is a word"));
        for (const yaml_node_pair_t *p = first; p < pair; p++) {
            const char *before = scalar(yaml_document_get_node(in->doc, p->key));
            if (before && strcmp(before, name) == 0) {
                return at_line(in, key, skv_fail(in->err, SKV_FORMAT, "%s: given twice", name));
            }
        }
        const skv_status status = fn(in, object, name, value);
        if (status != SKV_OK) return status;
    }
    return SKV_OK;
}

static skv_status set_node(const reading *in, const skv_field *row, const char *key,
                           const yaml_node_t *value, void *object)
{
    if (!row) {
        return at_line(in, value, skv_fail(in->err, SKV_ARGUMENT, "%s: unknown key", key));
    }
    const char *text = scalar(value);
    if (!text) return at_line(in, value, skv_fail(in->err, SKV_FORMAT, "%s: not one value", key));
    if (row->kind == SKV_FIELD_FLAG && strcmp(text, "true") == 0) text = "yes";
    if (row->kind == SKV_FIELD_FLAG && strcmp(text, "false") == 0) text = "no";
    return at_line(in, value, set_value(in->recipe, row, text, object, in->err));
}

static skv_status data_key(const reading *in, void *object, const char *key,
                           const yaml_node_t *value)
{
    return set_node(in, find_key(HOME_DATA, key), key, value, object);
}

static skv_status read_source(const reading *in, skv_train_stage *stage, const yaml_node_t *node)
{
    if (stage->n_data == SKV_TRAIN_DATA_MAX) {
        return at_line(
            in, node,
            skv_fail(in->err, SKV_FULL, "data: more than %d sources", SKV_TRAIN_DATA_MAX));
    }
    skv_train_data *data = &stage->data[stage->n_data++];
    *data = skv_train_data_default(NULL);
    SKV_TRY(each_key(in, node, data, data_key));
    const int n_given = (!!data->file) + (!!data->documents.tasks) + (data->self_tokens > 0);
    if (n_given != 1) {
        return at_line(in, node,
                       skv_fail(in->err, SKV_ARGUMENT, "data: give one of file, generate, self"));
    }
    return SKV_OK;
}

/* A list of sources, or the name of one file. */
static skv_status read_data(const reading *in, skv_train_stage *stage, const yaml_node_t *list)
{
    stage->n_data = 0;
    const char *file = scalar(list);
    if (file) {
        stage->data[stage->n_data++] = skv_train_data_default(NULL);
        return set_node(in, find_key(HOME_DATA, "file"), "data", list, &stage->data[0]);
    }
    if (list->type != YAML_SEQUENCE_NODE) {
        return at_line(in, list, skv_fail(in->err, SKV_FORMAT, "data: expected a list"));
    }
    const yaml_node_item_t *item = list->data.sequence.items.start;
    for (; item < list->data.sequence.items.top; item++) {
        SKV_TRY(read_source(in, stage, yaml_document_get_node(in->doc, *item)));
    }
    return SKV_OK;
}

static skv_status stage_key(const reading *in, void *object, const char *key,
                            const yaml_node_t *value)
{
    if (strcmp(key, "data") == 0) return read_data(in, object, value);
    return set_node(in, find_key(HOME_STAGE, key), key, value, object);
}

/* The keys outside of `stages` go to the first stage, which the others then start from. */
static skv_status run_key(const reading *in, void *object, const char *key,
                          const yaml_node_t *value)
{
    skv_train_options *o = object;
    if (strcmp(key, "stages") == 0) return SKV_OK;
    if (strcmp(key, "data") == 0 || find_key(HOME_STAGE, key)) {
        return stage_key(in, &o->stages[0], key, value);
    }
    return set_node(in, find_key(HOME_RUN, key), key, value, o);
}

static skv_status read_stages(const reading *in, const yaml_node_t *list)
{
    skv_train_options *o = &in->recipe->options;
    const bool is_list = list->type == YAML_SEQUENCE_NODE;
    const yaml_node_item_t *items = is_list ? list->data.sequence.items.start : NULL;
    const ptrdiff_t n = is_list ? list->data.sequence.items.top - items : 0;
    if (n < 1 || n > SKV_TRAIN_STAGES_MAX) {
        return at_line(
            in, list,
            skv_fail(in->err, SKV_FORMAT, "stages: a list of 1 to %d", SKV_TRAIN_STAGES_MAX));
    }
    const skv_train_stage common = o->stages[0];
    o->n_stages = (size_t)n;
    for (ptrdiff_t i = 0; i < n; i++) {
        o->stages[i] = common;
        SKV_TRY(each_key(in, yaml_document_get_node(in->doc, items[i]), &o->stages[i], stage_key));
    }
    return SKV_OK;
}

/* The value of a key of a mapping, NULL when it has none. */
static const yaml_node_t *find_value(const reading *in, const yaml_node_t *map, const char *name)
{
    if (map->type != YAML_MAPPING_NODE) return NULL;
    const yaml_node_pair_t *pair = map->data.mapping.pairs.start;
    for (; pair < map->data.mapping.pairs.top; pair++) {
        const char *key = scalar(yaml_document_get_node(in->doc, pair->key));
        if (key && strcmp(key, name) == 0) return yaml_document_get_node(in->doc, pair->value);
    }
    return NULL;
}

/* Reads the task first, because the other defaults depend on it. */
static skv_status read_recipe(const reading *in, const yaml_node_t *root)
{
    skv_train_options *o = &in->recipe->options;
    const yaml_node_t *task = find_value(in, root, "task");
    const yaml_node_t *stages = find_value(in, root, "stages");
    if (task) {
        SKV_TRY(set_node(in, find_key(HOME_RUN, "task"), "task", task, o));
        const bool open = o->stages[0].rate <= 0; /* the caller chooses unspecified values */
        *o = skv_train_options_default(o->task);
        if (open && o->task == SKV_TRAIN_DISTILL) {
            o->stages[0].rate = 0;
            o->stages[0].seq = o->stages[0].rows = 0;
        }
    }
    SKV_TRY(each_key(in, root, o, run_key));
    return stages ? read_stages(in, stages) : SKV_OK;
}

typedef skv_status root_fn(const reading *in, const yaml_node_t *root);

/* Reads a text and gives fn its root; an empty text has none. */
static skv_status with_yaml(const char *text, size_t n, const char *name, skv_recipe *recipe,
                            root_fn *fn, skv_error *err)
{
    yaml_parser_t parser;
    yaml_document_t doc;
    SKV_REQUIRE(n <= FILE_MAX, err, SKV_RANGE, "%s: %zu bytes, at most %d", name, n, FILE_MAX);
    SKV_REQUIRE(yaml_parser_initialize(&parser), err, SKV_MEMORY, "%s: no memory", name);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    skv_status status = SKV_OK;
    if (yaml_parser_load(&parser, &doc)) {
        const reading in = {&doc, name, recipe, err};
        const yaml_node_t *root = yaml_document_get_root_node(&doc);
        if (root) status = fn(&in, root);
        yaml_document_delete(&doc);
    } else {
        status = skv_fail(err, SKV_FORMAT, "%s:%zu: %s", name, parser.problem_mark.line + 1,
                          parser.problem ? parser.problem : "not YAML");
    }
    yaml_parser_delete(&parser);
    return status;
}

skv_status skv_recipe_parse(const char *text, size_t n, const char *name, skv_recipe *recipe,
                            skv_error *err)
{
    return with_yaml(text, n, name, recipe, read_recipe, err);
}

skv_status skv_recipe_read(const char *path, skv_recipe *recipe, skv_error *err)
{
    char *text;
    size_t n;
    SKV_TRY(skv_file_read(path, FILE_MAX, &text, &n, err));
    skv_status status = skv_recipe_parse(text, n, path, recipe, err);
    skv_free(text);
    return status;
}

/* ---- by hand ---- */

static skv_status add_data(skv_recipe *r, const skv_train_data *data, skv_error *err)
{
    for (size_t i = 0; i < r->options.n_stages; i++) {
        skv_train_stage *stage = &r->options.stages[i];
        SKV_REQUIRE(stage->n_data < SKV_TRAIN_DATA_MAX, err, SKV_FULL, "data: more than %d sources",
                    SKV_TRAIN_DATA_MAX);
        stage->data[stage->n_data++] = *data;
    }
    return SKV_OK;
}

/* Parses "{file: a, weight: 2}" or a list of them, as in a recipe. */
static skv_status add_written_data(const reading *in, const yaml_node_t *root)
{
    skv_train_stage stage = {.n_data = 0};
    if (root->type == YAML_MAPPING_NODE) {
        SKV_TRY(read_source(in, &stage, root));
    } else {
        SKV_TRY(read_data(in, &stage, root));
    }
    for (size_t i = 0; i < stage.n_data; i++) {
        SKV_TRY(add_data(in->recipe, &stage.data[i], in->err));
    }
    return SKV_OK;
}

skv_status skv_recipe_add_data(skv_recipe *r, const char *value, skv_error *err)
{
    /* How a value that is no file begins, and the key it then is. */
    static const char *const made[][2] = {{"generate:", "generate"}, {"self:", "self"}};
    if (*value == '{' || *value == '[') {
        return with_yaml(value, strlen(value), "data", r, add_written_data, err);
    }
    const char *key = "file";
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        const size_t n = strlen(made[i][0]);
        if (strncmp(value, made[i][0], n) != 0) continue;
        key = made[i][1];
        value += n;
        break;
    }
    skv_train_data data = skv_train_data_default(NULL);
    SKV_TRY(set_value(r, find_key(HOME_DATA, key), value, &data, err));
    return add_data(r, &data, err);
}

skv_status skv_recipe_set(skv_recipe *r, const char *key, const char *value, skv_error *err)
{
    skv_train_options *o = &r->options;
    if (strcmp(key, "stages") == 0) {
        return with_yaml(value, strlen(value), key, r, read_stages, err);
    }
    if (strcmp(key, "data") == 0) {
        for (size_t i = 0; i < o->n_stages; i++) o->stages[i].n_data = 0;
        return skv_recipe_add_data(r, value, err);
    }
    const skv_field *row = find_key(HOME_RUN, key);
    if (row) return set_value(r, row, value, o, err);
    row = find_key(HOME_STAGE, key);
    SKV_REQUIRE(row, err, SKV_ARGUMENT, "%s: unknown key", key);
    for (size_t i = 0; i < o->n_stages; i++) SKV_TRY(set_value(r, row, value, &o->stages[i], err));
    return SKV_OK;
}
