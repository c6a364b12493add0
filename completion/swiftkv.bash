# Completion of swiftkv(1) for bash: commands, options, and the values of options that have few.
# shellcheck shell=bash

_swiftkv_options() {
    case $1 in
    # options: written by tools/make_reference.py
    info) echo '--kv-layers --group --context --as-papers --kv --json --download --help' ;;
    similarity) echo '--text --threads --weights --kv --prefill --prune --ffn-skip --early-exit --ctx --cpu
        --chunk --evict --snapkv --svg --json --download --help' ;;
    transform) echo '--text --kv-layers --group --keep-layers --init --tokens --ridge --ridge-to --seq
        --threads --weights --cpu --download --help' ;;
    quantize) echo '--weights --group --text --threads --download --help' ;;
    generate) echo '-p --file --ids-file --parse-special -n --temp --top-k --top-p --min-p --repeat-penalty
        --presence-penalty --frequency-penalty --repeat-last-n --seed --stop --ignore-eos --json-object
        --json-schema --regex --grammar --kv-tokens --threads --weights --kv --prefill --prune --ffn-skip
        --early-exit --ctx --cpu --chunk --evict --speculate --snapkv --dump-kept --json --download --help' ;;
    chat) echo '--system --template --raw -n --temp --top-k --top-p --min-p --repeat-penalty
        --presence-penalty --frequency-penalty --repeat-last-n --seed --stop --threads --weights --kv
        --prefill --prune --ffn-skip --early-exit --ctx --cpu --chunk --evict --speculate --snapkv --download
        --help' ;;
    score) echo '-p --file --ids-file --threads --weights --kv --prefill --prune --ffn-skip --early-exit --ctx
        --cpu --chunk --evict --snapkv --json --download --help' ;;
    tokenize) echo '-p --file --ids-file --decode --add-special --parse-special --json --download --help' ;;
    render) echo '--messages --tools --vars --add-generation-prompt --download --help' ;;
    serve) echo '--template --host --port --api-key-file --rpm --tpm --request-log --metrics-compat --insecure
        --name --temp --top-k --top-p --min-p --repeat-penalty --presence-penalty --frequency-penalty
        --repeat-last-n --seed --no-generation-config --cors-origin --tool-format --chat-template-kwargs
        --reasoning-format --reranker --kv-tokens --step-ms --mask-seconds --max-running --max-queue
        --max-queue-tokens --queue-timeout --no-prefix-cache --cache-dir --cache-disk-bytes --cache-disk-form
        --no-text-match --no-teacher --connections --connections-per-ip --max-body --memory --request-memory
        --request-work --request-seconds --connection-stack --header-timeout --body-timeout --stall-timeout
        --ping-interval --shutdown-timeout --watchdog --threads --weights --kv --prefill --prune --ffn-skip
        --early-exit --ctx --cpu --chunk --evict --speculate --snapkv --download --help' ;;
    load) echo '--chat --model --api-key-file --prompt --gen --ignore-eos --text --vocab --rate --arrivals
        --trace --time-scale --length-scale --clients --requests --duration --warmup --timeout --cancel
        --cancel-within --goodput --methods --extra-body --seed --log --out --svg --json --help' ;;
    bench) echo '--kv-layers --group --preset --prompt --gen --batch --repeat --compare --peak --replay
        --threads --weights --kv --prefill --prune --ffn-skip --early-exit --ctx --cpu --chunk --evict
        --speculate --snapkv --json --download --help' ;;
    compare) echo '-p --file -n --seed --prose --task --lengths --count --threads --weights --kv --prefill
        --prune --ffn-skip --early-exit --ctx --cpu --chunk --evict --speculate --snapkv --json --download
        --help' ;;
    eval) echo '--task --lengths --count --depths --scored -n --seed --prose --primer --no-template
        --reference --log --resume --threads --weights --kv --prefill --prune --ffn-skip --early-exit --ctx
        --cpu --chunk --evict --speculate --snapkv --svg --json --download --help' ;;
    tune) echo '--task --lengths --count --scored -n --seed --prose --primer --no-template --log --resume
        --floor --text --cost --also --work --prompt --gen --repeat --threads --weights --kv --ctx --cpu
        --chunk --json --download --help' ;;
    distill) echo '--recipe --data --stages --resume --log --dry-run --download --help --task --model --out
        --kv-layers --group --seed --checkpoint-every --loss --trainable --tau --hidden-loss-mult
        --router-loss --loss-denominator --early-exit --auxiliary --layers --base-loss --auxiliary-loss
        --consistency-loss --own-answers --predictor-init --beta1 --beta2 --eps --weight-decay --clip
        --threads --cpu --f32 --drop-teacher --until-flat --f32-weights --delta --steps --seq --rows --fuse
        --accumulate --lr --warmup --final-lr --schedule' ;;
    train) echo '--recipe --data --stages --from-scratch --resume --log --dry-run --download --help --task
        --model --out --kv-layers --group --seed --checkpoint-every --loss --trainable --tau
        --hidden-loss-mult --router-loss --loss-denominator --early-exit --auxiliary --layers --base-loss
        --auxiliary-loss --consistency-loss --own-answers --predictor-init --beta1 --beta2 --eps
        --weight-decay --clip --threads --cpu --f32 --drop-teacher --until-flat --f32-weights --delta --steps
        --seq --rows --fuse --accumulate --lr --warmup --final-lr --schedule' ;;
    documents) echo '--seed --count --first --tasks --tokens-min --tokens-max --questions --evaluation
        --held-out --vocab --prose --help' ;;
    vocab) echo '--seed --count --tasks --tokens-min --tokens-max --prose --size --data --help' ;;
    doctor) echo '--help' ;;
    # end of options
    esac
}

_swiftkv() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local command=${COMP_WORDS[1]} values=
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        values='generate chat serve load score tokenize render info similarity transform bench compare eval tune distill train documents vocab quantize doctor --help --version'
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
        --cpu) values='best ref avx2 avxvnni avx512 amx neon' ;;
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
