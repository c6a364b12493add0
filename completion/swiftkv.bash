# Completion of swiftkv(1) for bash: commands, options, and the values of options that have few.
# shellcheck shell=bash

_swiftkv_options() {
    local model='--threads --weights --kv --prefill --prune --ffn-skip --early-exit --ctx --cpu --chunk'
    local evict='--evict --snapkv'
    local sampling='-n --temp --top-k --top-p --min-p --repeat-penalty --presence-penalty
        --frequency-penalty --stop --seed'
    local training='--recipe --task --model --out --data --stages --steps --seq --rows --accumulate --fuse --seed
        --lr --warmup --schedule --final-lr --beta1 --beta2 --eps --weight-decay --clip --kv-layers --group
        --loss --tau --hidden-loss-mult --loss-denominator --early-exit --trainable --drop-teacher --delta --f32 --f32-weights
        --auxiliary --layers --base-loss --auxiliary-loss --consistency-loss --own-answers --predictor-init
        --checkpoint-every --resume --log --dry-run --threads --cpu'
    local serving='--host --port --api-key-file --rpm --tpm --request-log --insecure --name --template --tool-format --reasoning-format --kv-tokens --step-ms --max-running
        --max-queue --max-queue-tokens --queue-timeout --no-prefix-cache --cache-dir --cache-disk-bytes --cache-disk-form --no-text-match --no-teacher --connections
        --connections-per-ip --max-body --header-timeout --body-timeout --stall-timeout --ping-interval
        --shutdown-timeout --watchdog'
    local load='--chat --model --api-key-file --prompt --gen --ignore-eos --text --vocab --rate --arrivals --trace
        --time-scale --length-scale --clients --requests --duration --warmup --timeout --cancel --cancel-within
        --goodput --methods --extra-body --seed --log --out --svg --json'
    case $1 in
    generate) echo "-p --file --ids-file --parse-special --ignore-eos --json-object --json-schema --regex
        --grammar $sampling $model $evict --dump-kept --kv-tokens --json" ;;
    chat) echo "--system --template --raw $sampling $model $evict" ;;
    serve) echo "$serving $model $evict" ;;
    load) echo "$load" ;;
    score) echo "-p --file --ids-file $model $evict --json" ;;
    tokenize) echo "-p --file --ids-file --add-special --parse-special --decode --json" ;;
    render) echo "--messages --tools --vars --add-generation-prompt" ;;
    info) echo "--kv --kv-layers --group --context --as-papers --json" ;;
    similarity) echo "--text --svg --json $model $evict" ;;
    transform) echo "--kv-layers --group --keep-layers --init --text --tokens --ridge --ridge-to --seq --threads --weights --cpu" ;;
    bench) echo "--preset --kv-layers --group --prompt --gen --batch --repeat --compare --peak $model $evict --json" ;;
    compare) echo "-p --file --task --lengths --count --seed --prose -n $model $evict --json" ;;
    eval) echo "--task --lengths --count --depths --scored -n --seed --prose --primer --no-template --reference --log
        --resume --svg $model $evict --json" ;;
    tune) echo "--floor --text --task --cost --also --work --lengths --count --scored -n --seed --prose --primer --no-template
        --prompt --gen --repeat --log --resume --threads --weights --kv --ctx --cpu --chunk --json" ;;
    distill) echo "$training" ;;
    train) echo "$training --from-scratch" ;;
    documents) echo "--count --first --tasks --tokens-min --tokens-max --questions --evaluation --held-out
        --vocab --prose --seed" ;;
    vocab) echo "--size --data --count --tasks --tokens-min --tokens-max --prose --seed" ;;
    esac
    echo --help
}

_swiftkv() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local command=${COMP_WORDS[1]} values=
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        values='generate chat serve load score tokenize render info similarity transform bench compare eval tune distill train documents vocab --help --version'
    else
        case $before in
        --weights) values='f32 bf16 int8' ;;
        --kv) values='f32 bf16 fp8 int8' ;;
        --prefill) values='full swiftkv swiftkv-full teacher kvpred merged' ;;
        --ffn-skip) values='none 0.95 0.95,32,0,0.35,0.85' ;;
        --early-exit) values='0.95' ;;
        --keep-layers) values='lp-0.25 lp-0.50 lp-0.75' ;;
        --prune) values='none random:0.5 static:0.5 lazy:0.75,0.10' ;;
        --evict) values='none snapkv: pyramidkv: adakv: h2o: streaming:' ;;
        --cpu) values='best ref avx2 avx512 neon' ;;
        --tool-format) values='auto none llama3 hermes' ;;
        --reasoning-format) values='auto none think' ;;
        --cache-disk-form) values='kv rows' ;;
        --arrivals) values='poisson fixed trace' ;;
        --cost) values='total ttft kv-bytes' ;;
        --init) values='copy ridge' ;;
        --predictor-init) values='uniform identity' ;;
        --ridge-to) values='copy zero' ;;
        --loss) values='kl lm' ;;
        --trainable) values='qkv deep-layers all' ;;
        --schedule) values='linear cosine constant' ;;
        --task) [[ $command == eval || $command == tune ]] || values='distill finetune scratch kvpred' ;;
        --loss-denominator) values='unmasked all' ;;
        --preset) values='llama-3.2-1b llama-3.1-8b smollm2-135m qwen2.5-0.5b openelm-1.1b openelm-1.1b+openelm-270m' ;;
        --file | --ids-file | --template | --text | --svg | --messages | --tools | --vars | --data | --log | --recipe | --primer | --prose | --json-schema | --grammar | --api-key-file | --request-log | --trace | --out | --dump-kept)
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
            return
            ;;
        *) [[ $word != -* ]] || values=$(_swiftkv_options "$command") ;;
        esac
    fi
    if [ -n "$values" ]; then
        mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$word") # a model: a folder or a file
    fi
}

complete -o filenames -F _swiftkv swiftkv
