/** The arithmetic that was done, in the JSON of every command that runs a model. */
#ifndef SKV_CLI_WORK_OUT_H
#define SKV_CLI_WORK_OUT_H

#include "json_out.h"
#include "skv/work.h"

/** "key": {"flops": N, "model_flops": N, ...} */
void cli_json_put_work(cli_json *json, const char *key, const skv_work *work);

#endif
