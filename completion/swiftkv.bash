# Completion of swiftkv(1) for bash: commands, options, and the values of options that have few.
# shellcheck shell=bash

_swiftkv_options() {
    case $1 in
    # options: written by tools/make_reference.py
    info) echo '--kv-layers --group --context --available --threads --as-papers --kv --state --device
        --gpu-layers --json --download --help' ;;
    similarity) echo '--text --threads --weights --kv --state --prefill --prune --ffn-skip --early-exit --lora
        --ctx --device --gpus --gpu-layers --sums --cpu --chunk --evict --snapkv --svg --json --download
        --help' ;;
    transform) echo '--text --kv-layers --group --keep-layers --exit-words --init --tokens --ridge --ridge-to
        --seq --threads --weights --lora --cpu --download --help' ;;
    quantize) echo '--weights --group --text --method --threads --download --help' ;;
    generate) echo '-p --file --ids-file --parse-special -n --temp --top-k --top-p --min-p --repeat-penalty
        --presence-penalty --frequency-penalty --repeat-last-n --seed --stop --ignore-eos --json-object
        --json-schema --regex --grammar --kv-tokens --threads --weights --kv --state --prefill --prune
        --ffn-skip --early-exit --lora --ctx --device --gpus --gpu-layers --sums --cpu --chunk --evict
        --speculate --draft --snapkv --dump-kept --json --download --help' ;;
    chat) echo '--system --allow-special-text --template --raw -n --temp --top-k --top-p --min-p
        --repeat-penalty --presence-penalty --frequency-penalty --repeat-last-n --seed --stop --threads
        --weights --kv --state --prefill --prune --ffn-skip --early-exit --lora --ctx --device --gpus
        --gpu-layers --sums --cpu --chunk --evict --speculate --draft --snapkv --download --help' ;;
    score) echo '-p --file --ids-file --threads --weights --kv --state --prefill --prune --ffn-skip
        --early-exit --lora --ctx --device --gpus --gpu-layers --sums --cpu --chunk --evict --snapkv --json
        --download --help' ;;
    tokenize) echo '-p --file --ids-file --decode --add-special --parse-special --json --download --help' ;;
    render) echo '--messages --tools --vars --add-generation-prompt --download --help' ;;
    cache) echo '--template --prompt-strip --json --download --help' ;;
    serve) echo '--allow-special-text --template --kv-layers --group --host --port --api-key-file --rpm --tpm
        --request-log --log-probes --log-prompt-text --max-loaded --models-memory --metrics-compat --insecure
        --name --temp --top-k --top-p --min-p --repeat-penalty --presence-penalty --frequency-penalty
        --repeat-last-n --seed --no-generation-config --cors-origin --tool-format --chat-template-kwargs
        --reasoning-format --prompt-strip --prompt-sort --prompt-keep --idle-read --reranker --kv-tokens
        --step-ms --mask-seconds --max-running --max-queue --max-queue-tokens --queue-timeout
        --no-prefix-cache --state-checkpoints --slot-save-path --slot-save-bytes --cache-dir
        --cache-disk-bytes --cache-disk-form --cache-store --cache-key-file --cache-store-timeout
        --cache-store-auth --cache-store-ca --cache-store-cert --cache-store-key --role --prefill-from
        --prefill-above --prefill-timeout --no-text-match --cache-shift --no-teacher --connections
        --connections-per-ip --max-body --memory --request-memory --request-work --request-seconds
        --connection-stack --header-timeout --body-timeout --stall-timeout --ping-interval --shutdown-timeout
        --watchdog --threads --weights --kv --state --prefill --prune --ffn-skip --early-exit --lora --ctx
        --device --gpus --gpu-layers --sums --cpu --chunk --evict --speculate --draft --snapkv --download
        --help' ;;
    load) echo '--chat --model --api-key-file --prompt --gen --ignore-eos --text --vocab --rate --arrivals
        --trace --time-scale --length-scale --clients --requests --duration --warmup --timeout --cancel
        --cancel-within --goodput --methods --extra-body --seed --log --out --svg --json --help' ;;
    bench) echo '--kv-layers --group --exit-words --preset --prompt --gen --batch --repeat --compare --peak
        --costs --replay --threads --weights --kv --state --prefill --prune --ffn-skip --early-exit --lora
        --ctx --device --gpus --gpu-layers --sums --cpu --chunk --evict --speculate --draft --snapkv --json
        --download --help' ;;
    compare) echo '-p --file -n --seed --prose --task --lengths --count --threads --weights --kv --state
        --prefill --prune --ffn-skip --early-exit --lora --ctx --device --gpus --gpu-layers --sums --cpu
        --chunk --evict --speculate --draft --snapkv --json --download --help' ;;
    eval) echo '--task --lengths --count --depths --scored -n --seed --prose --primer --no-template
        --reference --log --resume --threads --weights --kv --state --prefill --prune --ffn-skip --early-exit
        --lora --ctx --device --gpus --gpu-layers --sums --cpu --chunk --evict --speculate --draft --snapkv
        --svg --json --download --help' ;;
    tune) echo '--task --lengths --count --scored -n --seed --prose --primer --no-template --log --resume
        --floor --text --cost --also --work --prompt --gen --repeat --threads --weights --kv --state --ctx
        --device --gpu-layers --cpu --chunk --speculate --json --download --help' ;;
    distill) echo '--recipe --data --stages --resume --log --dry-run --download --help --task --model --out
        --kv-layers --group --seed --checkpoint-every --loss --trainable --tau --hidden-loss-mult
        --router-loss --loss-denominator --early-exit --auxiliary --layers --base-loss --auxiliary-loss
        --consistency-loss --own-answers --predictor-init --beta1 --beta2 --eps --weight-decay --clip
        --threads --cpu --f32 --drop-teacher --held-out --until-flat --f32-weights --delta --steps --seq
        --rows --fuse --accumulate --lr --warmup --final-lr --schedule' ;;
    train) echo '--recipe --data --stages --from-scratch --resume --log --dry-run --download --help --task
        --model --out --kv-layers --group --seed --checkpoint-every --loss --trainable --tau
        --hidden-loss-mult --router-loss --loss-denominator --early-exit --auxiliary --layers --base-loss
        --auxiliary-loss --consistency-loss --own-answers --predictor-init --beta1 --beta2 --eps
        --weight-decay --clip --threads --cpu --f32 --drop-teacher --held-out --until-flat --f32-weights
        --delta --steps --seq --rows --fuse --accumulate --lr --warmup --final-lr --schedule' ;;
    documents) echo '--seed --count --first --tasks --tokens-min --tokens-max --questions --evaluation
        --held-out --vocab --prose --help' ;;
    vocab) echo '--seed --count --tasks --tokens-min --tokens-max --prose --size --data --help' ;;
    devices) echo '--json --help' ;;
    doctor) echo '--context --available --threads --report --quick --kv --device --gpu-layers --download
        --help' ;;
    # end of options
    esac
}

# What follows an option of a command: words, "FILES" for names of files as well. Fails where
# nothing does.
_swiftkv_values() {
    case $1:$2 in
    # What the program takes in a form of its own: some of it, to begin with.
    *:--evict) echo 'none snapkv: pyramidkv: adakv: h2o: streaming:' ;;
    *:--ffn-skip) echo 'none 0.95 0.95,32,0,0.35,0.85' ;;
    *:--early-exit) echo '0.95' ;;
    *:--keep-layers) echo 'lp-0.25 lp-0.50 lp-0.75' ;;
    *:--prune) echo 'none random:0.5 static:0.5 lazy:0.75,0.10' ;;
    *:--speculate) echo 'none text self aux text+self text+aux' ;;
    *:--tool-format) echo 'auto none harmony gemma4 mistral mistral-id mistral-args deepseek-v4 deepseek-v3.2 deepseek-v3.1 deepseek-r1
        kimi-k2 kimi-k3 solar qwen3-coder seed minimax-m1 minimax-m2 minicpm muse hy3 glm functionary-v3.1 functionary-v3.2
        firefunction cohere command-r granite phi4 apertus apriel nemotron gigachat-3.1 gigachat lfm2 hermes llama3' ;;
    *:--template) echo 'chatml llama3 mistral gemma phi3 zephyr vicuna FILES' ;;
    bench:--preset) echo 'llama-3.2-1b llama-3.1-8b smollm2-135m qwen2.5-0.5b openelm-1.1b openelm-1.1b+openelm-270m' ;;
    documents:--tasks | vocab:--tasks) echo 'stage:copy stage:lookup stage:all' ;;
    compare:--task | eval:--task | tune:--task)
        echo 'all copy edit lines kv needle variables hops table labels report log FILES'
        ;;
    *:--data) echo 'self: generate: FILES' ;;
    # values: written by tools/make_reference.py
    load:--model) ;;
    quantize:--group) echo '32 128' ;;
    documents:--vocab) echo 'FILES' ;;
    distill:--cpu | train:--cpu) echo 'best ref avx2 avxvnni avx512 amx neon' ;;
    quantize:--weights) echo 'int4 int8' ;;
    *:--kv-layers | *:--group | *:--context | *:--available | *:--threads | *:--device | *:--gpu-layers | *:--lora \
        | *:--ctx | *:--gpus | *:--chunk | *:--snapkv | *:--exit-words | *:--tokens | *:--ridge | *:--seq | *:-p | *:-n \
        | *:--temp | *:--top-k | *:--top-p | *:--min-p | *:--repeat-penalty | *:--presence-penalty \
        | *:--frequency-penalty | *:--repeat-last-n | *:--seed | *:--stop | *:--regex | *:--kv-tokens | *:--system \
        | *:--prompt-strip | *:--host | *:--port | *:--rpm | *:--tpm | *:--max-loaded | *:--models-memory | *:--name \
        | *:--cors-origin | *:--chat-template-kwargs | *:--idle-read | *:--step-ms | *:--mask-seconds | *:--max-running \
        | *:--max-queue | *:--max-queue-tokens | *:--queue-timeout | *:--state-checkpoints | *:--slot-save-bytes \
        | *:--cache-disk-bytes | *:--cache-store | *:--cache-store-timeout | *:--prefill-from | *:--prefill-above \
        | *:--prefill-timeout | *:--connections | *:--connections-per-ip | *:--max-body | *:--memory \
        | *:--request-memory | *:--request-work | *:--request-seconds | *:--connection-stack | *:--header-timeout \
        | *:--body-timeout | *:--stall-timeout | *:--ping-interval | *:--shutdown-timeout | *:--watchdog | *:--prompt \
        | *:--gen | *:--vocab | *:--rate | *:--time-scale | *:--length-scale | *:--clients | *:--requests | *:--duration \
        | *:--warmup | *:--timeout | *:--cancel | *:--cancel-within | *:--goodput | *:--methods | *:--extra-body \
        | *:--batch | *:--repeat | *:--lengths | *:--count | *:--depths | *:--scored | *:--floor | *:--stages \
        | *:--checkpoint-every | *:--tau | *:--hidden-loss-mult | *:--router-loss | *:--layers | *:--base-loss \
        | *:--auxiliary-loss | *:--consistency-loss | *:--beta1 | *:--beta2 | *:--eps | *:--weight-decay | *:--clip \
        | *:--held-out | *:--steps | *:--rows | *:--fuse | *:--accumulate | *:--lr | *:--final-lr | *:--first \
        | *:--tokens-min | *:--tokens-max | *:--questions | *:--size) ;;
    *:--text | *:--svg | *:--file | *:--ids-file | *:--json-schema | *:--grammar | *:--draft | *:--dump-kept \
        | *:--messages | *:--tools | *:--vars | *:--api-key-file | *:--request-log | *:--slot-save-path | *:--cache-dir \
        | *:--cache-key-file | *:--cache-store-auth | *:--cache-store-ca | *:--cache-store-cert | *:--cache-store-key \
        | *:--model | *:--trace | *:--log | *:--out | *:--replay | *:--prose | *:--primer | *:--also | *:--work \
        | *:--recipe | *:--auxiliary) echo 'FILES' ;;
    *:--role) echo 'answer read' ;;
    *:--kv) echo 'auto bf16 f32 int8 fp8' ;;
    *:--weights) echo 'auto file bf16 int8 int4 f32 fp8' ;;
    *:--prefill) echo 'auto full swiftkv swiftkv-full teacher kvpred merged' ;;
    *:--sums) echo 'auto nccl copies' ;;
    *:--reasoning-format) echo 'auto none think' ;;
    *:--reranker) echo 'auto yes no' ;;
    *:--cpu) echo 'best ref avx2 avxvnni avx512 amx amx-strided amx-paired amx-few amx-whole amx-attention amx-q amx-q-once neon' ;;
    *:--schedule) echo 'constant linear cosine' ;;
    *:--init) echo 'copy ridge' ;;
    *:--ridge-to) echo 'copy zero' ;;
    *:--task) echo 'distill finetune scratch kvpred mtp' ;;
    *:--state) echo 'f32 bf16' ;;
    *:--method) echo 'gptq awq both' ;;
    *:--loss) echo 'kl lm' ;;
    *:--cache-disk-form) echo 'kv rows' ;;
    *:--prompt-keep) echo 'none thoughts' ;;
    *:--prompt-sort) echo 'none tools' ;;
    *:--arrivals) echo 'poisson fixed trace' ;;
    *:--trainable) echo 'qkv deep-layers all exit' ;;
    *:--reference) echo 'teacher FILES' ;;
    *:--cost) echo 'total ttft kv-bytes' ;;
    *:--predictor-init) echo 'uniform identity' ;;
    *:--loss-denominator) echo 'unmasked all' ;;
    # end of values
    *) return 1 ;;
    esac
}

_swiftkv() {
    local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} values
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        values='generate chat serve load score tokenize render cache info similarity transform bench compare eval tune distill train documents vocab quantize devices doctor --help --version'
    elif values=$(_swiftkv_values "$command" "${COMP_WORDS[COMP_CWORD - 1]}"); then
        :
    elif [[ $word == -* ]]; then
        values=$(_swiftkv_options "$command")
    else
        values=FILES # a model: a folder or a file
    fi
    mapfile -t COMPREPLY < <(compgen -W "${values/FILES/}" -- "$word")
    if [[ $values == *FILES ]]; then
        mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$word")
    fi
}

complete -o filenames -F _swiftkv swiftkv
