/* The table of prefill methods: see method.h. */
#include "prefill/method.h"

#include <assert.h>

static const skv_method ordinary = {.prefills = SKV_PREFILL_ORDINARY, .fill = skv_fill_full};

static const skv_method *const methods[] = {&skv_method_shared, &ordinary, &skv_method_swiftkv,
                                            &skv_method_merged};

enum { N_METHODS = sizeof methods / sizeof methods[0] };

skv_status skv_plan_method(skv_plan *plan, skv_prefill prefill, const skv_config *config, bool skip,
                           skv_error *err)
{
    for (size_t i = 0; i < N_METHODS; i++) {
        const skv_method *method = methods[i];
        if (!(method->prefills & SKV_PREFILL_BIT(prefill))) continue;
        if (method->fits && !method->fits(config)) continue;
        return skv_plan_init(plan, config, method->fill, skip, err);
    }
    assert(false && "every prefill that an engine can have is in the table");
    return skv_fail(err, SKV_ARGUMENT, "prefill %d: no method", (int)prefill);
}
