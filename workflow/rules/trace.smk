"""The target's own texts, once per benchmark, temperature and seed; every drafter is judged along them."""


rule trace:
    """Lets the target continue a benchmark's prompts and records tokens and features."""
    input:
        target="<results>/target",
        prompts="<results>/prompts/{benchmark}.jsonl",
    output:
        "<results>/traces/{benchmark}/t{temperature}_s{seed}.safetensors",
    log:
        "<logs>/trace/{benchmark}/t{temperature}_s{seed}.log",
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
        top_p=EVALUATION["top_p"],
        top_k=EVALUATION["top_k"],
        max_new_tokens=max_new_tokens,
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
            --batch-size {params.batch_size:q} \
            --dtype {params.dtype:q} \
            --device {params.device:q} \
            {params.trust:q} \
            --output {output:q} \
            2>&1 | tee {log:q}
        """
