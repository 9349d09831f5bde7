"""Draft models: trained here, or imported from a published checkpoint."""


rule train:
    """Trains one of a method's draft models; after a kill it goes on from its last checkpoint."""
    input:
        target="<results>/target",
        mixture=ask(train.mixture, "method", "drafter"),
        tokens=ask(train.tokens, "method", "drafter"),
        features=ask(train.features, "method", "drafter"),
        draft_vocab=train.draft_vocab(config),
        heldout_traces=ask(train.heldout_traces, "method", "drafter"),
        init_from=ask(train.other_drafter, "method", "training_seed", "drafter", field="init_from"),
        match_cost_of=ask(train.other_drafter, "method", "training_seed", "drafter", field="match_cost_of"),
    output:
        directory("<results>/drafters/{method}/seed{training_seed}/{drafter}"),
    log:
        "<logs>/train/{method}/seed{training_seed}/{drafter}.log",
    wildcard_constraints:
        method=either(contents.trained_methods(config)),
        drafter=either(contents.trained_drafters(config)),
    conda:
        "../../envs/taps.yaml"
    threads: config["parallel"]["model_threads"]
    resources:
        mem_mb=6000,
        runtime=1440,
        gpu=PARALLEL["training_processes"] if ON_GPU else 0,
    params:
        code=ask(train.code, "method", stage="taps.train"),
        launch=lease(PARALLEL["training_processes"]) + train.launcher(config),
        tokens=each_named("tokens", "tokens", train.corpora, "method", "drafter"),
        features=ask_about(train.feature_flags, "features", "method", "drafter"),
        draft_vocab=each("draft_vocab", "draft_vocab"),
        heldout_traces=each("heldout_trace", "heldout_traces"),
        init_from=each("init_from", "init_from"),
        match_cost=each("match_cost", "match_cost_of"),
        recipe=ask(train.recipe_flags, "method"),
        depth=DRAFTING["depth"],
        top_k=DRAFTING["top_k"],
        num_draft_tokens=DRAFTING["num_draft_tokens"],
        dtype=config["dtype"],
        device=config["device"],
        trust=flags(trust_remote_code=TARGET["trust_remote_code"]),
        tensorboard=ask_unseen(train.event_flags, "method", "training_seed", "drafter"),
        state=f"results/{STUDY}/state/{{method}}/seed{{training_seed}}/{{drafter}}",
    shell:
        """
        {params.launch:q} -m taps.train \
            --target {input.target:q} \
            --mixture {input.mixture:q} \
            {params.tokens:q} \
            {params.features:q} \
            {params.draft_vocab:q} \
            {params.heldout_traces:q} \
            {params.init_from:q} \
            {params.match_cost:q} \
            {params.recipe:q} \
            --depth {params.depth:q} \
            --draft-top-k {params.top_k:q} \
            --num-draft-tokens {params.num_draft_tokens:q} \
            --seed {wildcards.training_seed:q} \
            --dtype {params.dtype:q} \
            --device {params.device:q} \
            {params.trust:q} \
            {params.tensorboard:q} \
            --state {params.state:q} \
            --output {output:q} \
            >{log:q} 2>&1
        """


rule import_draft:
    """Takes an official EAGLE, HASS or TAPS checkpoint as the drafter, strictly checked against the target."""
    input:
        target="<results>/target",
        checkpoint=ask(train.checkpoint, "method", "drafter", root=ROOT),
    output:
        directory("<results>/drafters/{method}/seed{training_seed}/{drafter}"),
    log:
        "<logs>/import_draft/{method}/seed{training_seed}/{drafter}.log",
    wildcard_constraints:
        method=either(contents.imported_methods(config)),
        drafter=either(config["mixtures"]),
    conda:
        "../../envs/taps.yaml"
    threads: 1
    resources:
        mem_mb=8000,
        runtime=30,
    params:
        code=ask(train.code, "method", stage="taps.import_draft"),
        family=ask(family_of, "method"),
    shell:
        """
        python -m taps.import_draft \
            --family {params.family:q} \
            --source {input.checkpoint:q} \
            --target {input.target:q} \
            --method {wildcards.method:q} \
            --output {output:q} \
            >{log:q} 2>&1
        """
