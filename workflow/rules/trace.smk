"""The target's own texts, once per benchmark, temperature and seed; every drafter is judged along them."""


rule trace:
    """Lets the target continue a benchmark's prompts and records tokens and features."""
    input:
        target="<results>/target",
        prompts="<results>/prompts/{benchmark}.jsonl",
    output:
        temp("<results>/trace_shards/{benchmark}/t{temperature}_s{seed}/{shard}.safetensors")
        if PARALLEL["trace_shards"] > 1
        else "<results>/traces/{benchmark}/t{temperature}_s{seed}.safetensors",
    log:
        "<logs>/trace/{benchmark}/t{temperature}_s{seed}/{shard}.log"
        if PARALLEL["trace_shards"] > 1
        else "<logs>/trace/{benchmark}/t{temperature}_s{seed}.log",
    conda:
        "../../envs/taps.yaml"
    threads: config["parallel"]["model_threads"]
    resources:
        mem_mb=6000,
        runtime=480,
        gpu=1 if ON_GPU else 0,
    params:
        code=code_digest("taps.trace"),
        lease=lease(1),
        hidden_states=hidden_state_flags(config),
        top_p=EVALUATION["top_p"],
        top_k=EVALUATION["top_k"],
        max_new_tokens=ask(trace.max_new_tokens, "benchmark"),
        shard=shard_of(PARALLEL["trace_shards"]),
        batch_size=EVALUATION["batch_size"],
        dtype=config["dtype"],
        device=config["device"],
        trust=flags(trust_remote_code=TARGET["trust_remote_code"]),
    shell:
        """
        {params.lease:q} python -m taps.trace \
            --target {input.target:q} \
            --prompts {input.prompts:q} \
            --temperature {wildcards.temperature:q} \
            --top-p {params.top_p:q} \
            --top-k {params.top_k:q} \
            --seed {wildcards.seed:q} \
            --max-new-tokens {params.max_new_tokens:q} \
            {params.hidden_states:q} \
            {params.shard:q} \
            --batch-size {params.batch_size:q} \
            --dtype {params.dtype:q} \
            --device {params.device:q} \
            {params.trust:q} \
            --output {output:q} \
            >{log:q} 2>&1
        """


if PARALLEL["trace_shards"] > 1:

    rule join_traces:
        """Joins the shards of a trace."""
        input:
            shards=expand(
                "<results>/trace_shards/{{benchmark}}/t{{temperature}}_s{{seed}}/{shard}.safetensors",
                shard=range(PARALLEL["trace_shards"]),
            ),
        output:
            "<results>/traces/{benchmark}/t{temperature}_s{seed}.safetensors",
        log:
            "<logs>/join_traces/{benchmark}/t{temperature}_s{seed}.log",
        conda:
            "../../envs/taps.yaml"
        threads: 1
        resources:
            mem_mb=4000,
            runtime=60,
        params:
            code=code_digest("taps.join_texts"),
            shards=each("shard", "shards"),
        shell:
            """
            python -m taps.join_texts \
                --kind trace \
                {params.shards:q} \
                --output {output:q} \
                >{log:q} 2>&1
            """
