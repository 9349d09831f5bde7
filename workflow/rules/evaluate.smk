"""The replay of draft banks under every strategy, and what a cycle costs on this machine."""


rule calibrate:
    """Fits one temperature per drafter on held-out conversations."""
    input:
        traces=ask(evaluate.calibration_traces, "method"),
        banks=ask(evaluate.calibration_banks, "method", "training_seed"),
    output:
        "<results>/calibration/{method}/seed{training_seed}.json",
    log:
        "<logs>/calibrate/{method}/seed{training_seed}.log",
    conda:
        "../../envs/taps.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        code=code_digest("taps.calibrate"),
        traces=each("trace", "traces"),
        banks=each("bank", "banks"),
    shell:
        """
        python -m taps.calibrate \
            {params.traces:q} \
            {params.banks:q} \
            --output {output:q} \
            >{log:q} 2>&1
        """


rule replay:
    """Walks every strategy over the draft banks of one condition, with no model in memory."""
    input:
        trace="<results>/traces/{benchmark}/t{temperature}_s{seed}.safetensors",
        banks=ask(evaluate.banks, "method", "training_seed", "benchmark", "temperature", "seed"),
        calibration=ask(evaluate.calibration, "method", "training_seed"),
    output:
        cycles="<results>/replays/{method}/seed{training_seed}/{benchmark}/t{temperature}_s{seed}.parquet",
        nodes="<results>/replays/{method}/seed{training_seed}/{benchmark}/t{temperature}_s{seed}.nodes.parquet",
    log:
        "<logs>/replay/{method}/seed{training_seed}/{benchmark}/t{temperature}_s{seed}.log",
    conda:
        "../../envs/taps.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        code=ask(evaluate.replay_code, "method"),
        banks=each_named("bank", "banks", evaluate.drafters, "method", "training_seed", "temperature"),
        calibration=each("calibration", "calibration"),
        strategies=ask(evaluate.replayed, "method", "training_seed", "temperature"),
        num_draft_tokens=DRAFTING["num_draft_tokens"],
    shell:
        """
        python -m taps.replay \
            --trace {input.trace:q} \
            --method {wildcards.method:q} \
            --training-seed {wildcards.training_seed:q} \
            --benchmark {wildcards.benchmark:q} \
            {params.banks:q} \
            {params.calibration:q} \
            --strategies {params.strategies:q} \
            --num-draft-tokens {params.num_draft_tokens:q} \
            --output {output.cycles:q} \
            --nodes {output.nodes:q} \
            >{log:q} 2>&1
        """


rule cost:
    """Times target and draft forwards on this machine, alone on it; seconds, not texts, so results differ per machine."""
    input:
        target="<results>/target",
        drafters=evaluate.timed_drafters(config),
        draft_vocab=train.draft_vocab(config),
        trace=evaluate.timed_text(config),
    output:
        "<results>/cost.json",
    log:
        "<logs>/cost.log",
    conda:
        "../../envs/taps.yaml"
    threads: measuring_threads
    resources:
        mem_mb=6000,
        runtime=30,
        gpu=1 if ON_GPU else 0,
    params:
        code=evaluate.cost_code(config),
        lease=lease(1),
        drafters=ask_about(evaluate.timed_flags, "drafters"),
        draft_vocab=each("draft_vocab", "draft_vocab"),
        depth=DRAFTING["depth"],
        top_k=DRAFTING["top_k"],
        num_draft_tokens=DRAFTING["num_draft_tokens"],
        dtype=config["dtype"],
        device=config["device"],
    shell:
        """
        {params.lease:q} python -m taps.cost \
            --target {input.target:q} \
            {params.drafters:q} \
            {params.draft_vocab:q} \
            --depth {params.depth:q} \
            --top-k {params.top_k:q} \
            --num-draft-tokens {params.num_draft_tokens:q} \
            --trace {input.trace:q} \
            --dtype {params.dtype:q} \
            --device {params.device:q} \
            --output {output:q} \
            >{log:q} 2>&1
        """


if EVALUATION["live"]:

    rule live_check:
        """Decodes live and compares text and cycles with the replay, and the speed with the predicted one."""
        input:
            target="<results>/target",
            drafters=ask(evaluate.live_folders, "method"),
            trace="<results>/traces/{benchmark}/t0_s0.safetensors",
            banks=ask(evaluate.live_banks, "method", "benchmark"),
            draft_vocab=train.draft_vocab(config),
            calibration=ask(evaluate.live_calibration, "method"),
            router=ask(tune.router, "method"),
            tuned=ask(tune.tuned, "method"),
            cost="<results>/cost.json",
        output:
            "<results>/live/{method}/{benchmark}.json",
        log:
            "<logs>/live_check/{method}/{benchmark}.log",
        conda:
            "../../envs/taps.yaml"
        threads: measuring_threads
        resources:
            mem_mb=6000,
            runtime=120,
            gpu=1 if ON_GPU else 0,
        params:
            code=ask(evaluate.live_code, "method"),
            lease=lease(1),
            drafters=each_named("drafter", "drafters", evaluate.live_drafters, "method"),
            banks=each_named("bank", "banks", evaluate.live_drafters, "method"),
            draft_vocab=each("draft_vocab", "draft_vocab"),
            calibration=each("calibration", "calibration"),
            router=each("router", "router"),
            tuned=each("tuned", "tuned"),
            strategies=ask(evaluate.live_strategies, "method"),
            num_prompts=EVALUATION["live"]["num_prompts"],
            num_draft_tokens=DRAFTING["num_draft_tokens"],
            dtype=config["dtype"],
            device=config["device"],
        shell:
            """
            {params.lease:q} python -m taps.live_check \
                --target {input.target:q} \
                {params.drafters:q} \
                --trace {input.trace:q} \
                {params.banks:q} \
                {params.draft_vocab:q} \
                {params.calibration:q} \
                {params.router:q} \
                {params.tuned:q} \
                --strategies {params.strategies:q} \
                --num-prompts {params.num_prompts:q} \
                --num-draft-tokens {params.num_draft_tokens:q} \
                --cost {input.cost:q} \
                --dtype {params.dtype:q} \
                --device {params.device:q} \
                --output {output:q} \
                >{log:q} 2>&1
            """
