/* swiftkv train: all weights, on text. */
#include "training.h"

int cli_run_train(const cli_options *options)
{
    return cli_training_run(options,
                            options->from_scratch ? SKV_TRAIN_SCRATCH : SKV_TRAIN_FINETUNE);
}
