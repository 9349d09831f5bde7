"""Draft banks: a tree of every drafter at every position of every trace."""


rule bank:
    """Drafts a tree at every position of a trace."""
    input:
        target="<results>/target",
        drafter="<results>/drafters/{method}/seed{training_seed}/{drafter}",
        trace="<results>/traces/{benchmark}/t{temperature}_s{seed}.safetensors",
        draft_vocab=train.draft_vocab(config),
    output:
        temp(
            "<results>/bank_shards/{method}/seed{training_seed}/{drafter}/{benchmark}/t{temperature}_s{seed}/{shard}.safetensors"
        )
        if PARALLEL["bank_shards"] > 1
        else "<results>/banks/{method}/seed{training_seed}/{drafter}/{benchmark}/t{temperature}_s{seed}.safetensors",
    log:
        "<logs>/bank/{method}/seed{training_seed}/{drafter}/{benchmark}/t{temperature}_s{seed}/{shard}.log"
        if PARALLEL["bank_shards"] > 1
        else "<logs>/bank/{method}/seed{training_seed}/{drafter}/{benchmark}/t{temperature}_s{seed}.log",
    conda:
        "../../envs/taps.yaml"
    threads: config["parallel"]["model_threads"]
    resources:
        mem_mb=6000,
        runtime=240,
        gpu=1 if ON_GPU else 0,
    params:
        code=ask(train.code, "method", stage="taps.bank"),
        lease=lease(1),
        draft_vocab=each("draft_vocab", "draft_vocab"),
        depth=DRAFTING["depth"],
        top_k=DRAFTING["top_k"],
        num_nodes=DRAFTING["num_nodes"],
        shard=shard_of(PARALLEL["bank_shards"]),
        dtype=config["dtype"],
        device=config["device"],
    shell:
        """
        {params.lease:q} python -m taps.bank \
            --target {input.target:q} \
            --drafter {input.drafter:q} \
            --trace {input.trace:q} \
            {params.draft_vocab:q} \
            --depth {params.depth:q} \
            --top-k {params.top_k:q} \
            --num-nodes {params.num_nodes:q} \
            {params.shard:q} \
            --dtype {params.dtype:q} \
            --device {params.device:q} \
            --output {output:q} \
            >{log:q} 2>&1
        """


if PARALLEL["bank_shards"] > 1:

    rule join_banks:
        """Joins the shards of a draft bank."""
        input:
            shards=expand(
                "<results>/bank_shards/{{method}}/seed{{training_seed}}/{{drafter}}/{{benchmark}}/t{{temperature}}_s{{seed}}/{shard}.safetensors",
                shard=range(PARALLEL["bank_shards"]),
            ),
        output:
            "<results>/banks/{method}/seed{training_seed}/{drafter}/{benchmark}/t{temperature}_s{seed}.safetensors",
        log:
            "<logs>/join_banks/{method}/seed{training_seed}/{drafter}/{benchmark}/t{temperature}_s{seed}.log",
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
                --kind bank \
                {params.shards:q} \
                --output {output:q} \
                >{log:q} 2>&1
            """
