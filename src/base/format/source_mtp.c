/*
 * The head of Qwen 3.5 and Qwen3-Next that predicts further tokens (MTP), as a model of one layer:
 * its tensors under the names of that model's, beside the embedding and the head of the model that
 * it belongs to. The product and the norms before its layer keep their names, "mtp.fc.weight" and
 * so on.
 */
#include <stdio.h>
#include <string.h>

#include "format/source_impl.h"

typedef struct mtp_name {
    const char *from, *to; /* beginnings of names */
} mtp_name;

static const mtp_name folder_names[] = {
    {"mtp.layers.0.", "model.layers.0."},           {"mtp.norm.", "model.norm."}, {"mtp.", "mtp."},
    {"model.embed_tokens.", "model.embed_tokens."}, {"lm_head.", "lm_head."},     {NULL, NULL}};

/* Of the block after the model's own. */
static const mtp_name block_names[] = {{"nextn.eh_proj.", "mtp.fc."},
                                       {"nextn.enorm.", "mtp.pre_fc_norm_embedding."},
                                       {"nextn.hnorm.", "mtp.pre_fc_norm_hidden."},
                                       {"nextn.shared_head_norm.", "model.norm."},
                                       {NULL, NULL}};

skv_status skv_config_make_mtp(skv_config *c, const char *path, skv_error *err)
{
    size_t i = c->n_layers;
    SKV_REQUIRE(skv_config_may_predict(c), err, SKV_UNSUPPORTED,
                "%s: model_type %s: no MTP head is read of such models", path, c->architecture);
    while (i > 0 && !skv_config_attends(c, i - 1)) i--;
    SKV_REQUIRE(i > 0, err, SKV_UNSUPPORTED,
                "%s: an MTP head has attention, and no layer says its shape", path);
    c->layers[0] = c->layers[i - 1];
    c->n_layers = c->kv_layers = c->kv_group = 1;
    c->swiftkv = c->early_exit = false;
    c->exit_words = 0;
    c->mixer = (skv_mixer_shape){0};
    c->mtp = true;
    return SKV_OK;
}

/* The name by the first pair that it begins as; NULL: none, or it is too long. */
static const char *rename_start(const mtp_name *names, const char *name, char *buffer, size_t size)
{
    for (; names->from; names++) {
        const size_t n = strlen(names->from);
        if (strncmp(name, names->from, n) != 0) continue;
        const int length = snprintf(buffer, size, "%s%s", names->to, name + n);
        return length >= 0 && (size_t)length < size ? buffer : NULL;
    }
    return NULL;
}

const char *skv_mtp_folder_name(const char *name, char *buffer, size_t size)
{
    return rename_start(folder_names, name, buffer, size);
}

/* The part of a name after "blk.{i_block}.", or NULL. */
static const char *in_block(const char *name, size_t i_block)
{
    char prefix[32];
    const int n = snprintf(prefix, sizeof prefix, "blk.%zu.", i_block);
    return n > 0 && strncmp(name, prefix, (size_t)n) == 0 ? name + n : NULL;
}

bool skv_mtp_is_fc(const char *name, size_t i_block)
{
    const char *rest = in_block(name, i_block);
    return strcmp(name, "mtp.fc.weight") == 0 ||
           (rest && strcmp(rest, "nextn.eh_proj.weight") == 0);
}

skv_status skv_mtp_add_block(skv_source *source, const skv_name_scheme *scheme, size_t i_block,
                             const skv_tensor *tensor, skv_error *err)
{
    char buffer[128];
    const char *rest = in_block(tensor->name, i_block);
    const char *name = rest ? rename_start(block_names, rest, buffer, sizeof buffer) : NULL;
    if (name) return skv_source_add(source, name, tensor, err);
    if (rest) {
        const int n = snprintf(buffer, sizeof buffer, "blk.0.%s", rest);
        const bool fits = n > 0 && (size_t)n < sizeof buffer;
        return fits ? skv_source_add_renamed(source, scheme, buffer, tensor, err) : SKV_OK;
    }
    const bool shared = strcmp(tensor->name, "token_embd.weight") == 0 ||
                        strcmp(tensor->name, "output.weight") == 0;
    return shared ? skv_source_add_renamed(source, scheme, tensor->name, tensor, err) : SKV_OK;
}
