/*
 * Tensors that hold something of every expert of a layer, cut into those of each: the same mapped
 * bytes, from another place on. See skv_name_action.
 */
#include <stdio.h>

#include "format/source_impl.h"

/* A fused tensor with one row for each row of each expert, [E * rows, columns]. */
typedef struct fused {
    const char *name;
    skv_tensor flat; /* matrices: two dimensions, of the file's rows; biases: one */
    size_t n_experts, n_rows;
    bool bias, transposed;
} fused;

static skv_status refuse_shape(const skv_source *source, const skv_tensor *t, size_t n_experts,
                               skv_error *err)
{
    char shape[96];
    (void)skv_tensor_shape_text(t->dims, t->n_dims, shape, sizeof shape);
    return skv_fail(err, SKV_FORMAT, "%s: %s: shape %s, expected one part for each of %zu experts",
                    skv_source_path(source), t->name, shape, n_experts);
}

/* Returns n rows of expert e, every `step`-th one from its row `row0` on. */
static skv_tensor part_of(const fused *f, size_t e, size_t row0, size_t n, size_t step)
{
    skv_tensor part;
    if (f->transposed) { /* the stored rows are columns, and all of them are read */
        const size_t n_columns = f->flat.dims[0] / f->n_experts;
        const size_t size = skv_dtype_block_bytes(f->flat.type);
        part = skv_tensor_slice(&f->flat, e * n_columns, n_columns);
        part.data += row0 * size;
        part.n_bytes -= row0 * size;
        part.dims[0] = n;
        part.dims[1] = n_columns;
        part.column_step = f->n_rows;
    } else {
        part = skv_tensor_slice(&f->flat, e * f->n_rows + row0, (n - 1) * step + 1);
        part.dims[0] = n;
    }
    part.row_step = step > 1 ? step : 0;
    return part;
}

static skv_status add_part(skv_source *source, size_t i_layer, size_t e, const char *to,
                           const skv_tensor *part, skv_error *err)
{
    char name[160];
    (void)snprintf(name, sizeof name, "model.layers.%zu.mlp.experts.%zu.%s", i_layer, e, to);
    return skv_source_add(source, name, part, err);
}

static skv_status add_gate_up(skv_source *source, size_t i_layer, const fused *f, size_t e,
                              const skv_name_rule *rule, skv_error *err)
{
    const bool pairs = rule->action == SKV_NAME_EXPERTS_PAIRS;
    const size_t n = f->n_rows / 2, step = pairs ? 2 : 1;
    char to[32];
    skv_tensor gate = part_of(f, e, 0, n, step), up = part_of(f, e, pairs ? 1 : n, n, step);
    (void)snprintf(to, sizeof to, "gate_proj.%.15s", rule->to);
    SKV_TRY(add_part(source, i_layer, e, to, &gate, err));
    (void)snprintf(to, sizeof to, "up_proj.%.15s", rule->to);
    return add_part(source, i_layer, e, to, &up, err);
}

skv_status skv_source_add_experts(skv_source *source, const skv_name_scheme *scheme, size_t i_layer,
                                  const skv_name_rule *rule, const skv_tensor *t, skv_error *err)
{
    const size_t n_experts = skv_source_config(source)->layers[i_layer].n_experts;
    if (n_experts == 0) return SKV_OK; /* the model does not use them */
    fused f = {.name = t->name, .flat = *t, .n_experts = n_experts, .bias = t->n_dims == 2};
    const bool whole = skv_dtype_block_elements(t->type) == 1;
    const size_t last = t->n_dims >= 2 ? t->dims[t->n_dims - 1] : 0;
    f.transposed = scheme->transposed && !f.bias && !t->coded.layout && whole;
    f.n_rows = f.bias || f.transposed ? last : t->dims[1];
    const bool pairs = rule->action != SKV_NAME_EXPERTS;
    if ((t->n_dims != 2 && t->n_dims != 3) || t->dims[0] != n_experts || f.n_rows == 0 ||
        t->dims[1] == 0 || last == 0 || (pairs && f.n_rows % 2 != 0) || (f.bias && !whole)) {
        return refuse_shape(source, t, n_experts, err);
    }
    f.flat.n_dims = f.bias ? 1 : 2; /* the product of the dimensions was checked by the parser */
    f.flat.dims[0] = n_experts * t->dims[1];
    f.flat.dims[1] = f.bias ? 0 : last;
    for (size_t e = 0; e < n_experts; e++) {
        if (pairs) {
            SKV_TRY(add_gate_up(source, i_layer, &f, e, rule, err));
        } else {
            skv_tensor part = part_of(&f, e, 0, f.n_rows, 1);
            SKV_TRY(add_part(source, i_layer, e, rule->to, &part, err));
        }
    }
    return SKV_OK;
}
