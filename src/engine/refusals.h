/*
 * What the comparators of the papers do not go with, as a table: who refuses whom, and why.
 * (skv_skipping_refusal_at of skv/skipping.h shows it to programs.)
 */
#ifndef SKV_ENGINE_REFUSALS_H
#define SKV_ENGINE_REFUSALS_H

#include "format/config.h"
#include "skv/skv.h"

/** SKV_UNSUPPORTED by the first row that the options, `prefill` resolved, fit. */
SKV_MUST_CHECK skv_status skv_refusals_check(const skv_engine_options *options,
                                             const skv_config *config, skv_error *err);
/** The same for an engine that is to be served. */
SKV_MUST_CHECK skv_status skv_refusals_check_served(const skv_engine_options *options,
                                                    const skv_config *config, skv_error *err);

#endif
