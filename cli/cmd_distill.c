/* swiftkv distill: knowledge recovery of a SwiftKV model. */
#include "training.h"

int cli_run_distill(const cli_options *options)
{
    return cli_training_run(options, SKV_TRAIN_DISTILL);
}
