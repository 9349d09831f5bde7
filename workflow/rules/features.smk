"""What draft models read of the target at every training token, once per corpus, shared by all mixtures."""


rule features:
    """Computes a corpus's features: all in one job, or one of several shards."""
    input:
        target="<results>/target",
        tokens="<results>/tokens/{corpus}.safetensors",
    output:
        directory(
            "<results>/feature_shards/{corpus}/{shard}"
            if PARALLEL["feature_shards"] > 1
            else "<results>/features/{corpus}"
        ),
    log:
        "<logs>/features/{corpus}/{shard}.log" if PARALLEL["feature_shards"] > 1 else "<logs>/features/{corpus}.log",
    conda:
        "../../envs/taps.yaml"
    threads: config["parallel"]["model_threads"]
    resources:
        mem_mb=4000,
        runtime=240,
        gpu=1 if ON_GPU else 0,
    params:
        code=code_digest("taps.features"),
        lease=lease(1),
        hidden_states=hidden_state_flags(config),
        shard=shard_of(PARALLEL["feature_shards"]),
        dtype=config["dtype"],
        device=config["device"],
        trust=flags(trust_remote_code=TARGET["trust_remote_code"]),
    shell:
        """
        {params.lease:q} python -m taps.features \
            --target {input.target:q} \
            --tokens {input.tokens:q} \
            {params.hidden_states:q} \
            {params.shard:q} \
            --dtype {params.dtype:q} \
            --device {params.device:q} \
            {params.trust:q} \
            --output {output:q} \
            >{log:q} 2>&1
        """


if PARALLEL["feature_shards"] > 1:

    rule join_features:
        """Joins the shards of a corpus's features by a manifest."""
        input:
            shards=expand("<results>/feature_shards/{{corpus}}/{shard}", shard=range(PARALLEL["feature_shards"])),
        output:
            directory("<results>/features/{corpus}"),
        log:
            "<logs>/join_features/{corpus}.log",
        conda:
            "../../envs/taps.yaml"
        threads: 1
        resources:
            mem_mb=2000,
            runtime=30,
        params:
            code=code_digest("taps.join_features"),
            shards=each("shard", "shards"),
        shell:
            """
            python -m taps.join_features \
                {params.shards:q} \
                --output {output:q} \
                >{log:q} 2>&1
            """
