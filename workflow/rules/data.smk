"""From assets to tokens: corpora, prompts, mixtures and the draft vocabulary."""


rule corpus:
    """Reads one training source into normalised conversations; the audit says what was dropped and why."""
    input:
        assets=ask(data.corpus_source, "corpus", root=ROOT),
    output:
        corpus="<results>/corpora/{corpus}.jsonl",
        audit="<results>/corpora/{corpus}.audit.json",
    log:
        "<logs>/corpus/{corpus}.log",
    conda:
        "../../envs/taps.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        code=ask(data.corpus_code, "corpus"),
        source=ask(data.corpus_flags, "corpus"),
        assets=each("input", "assets"),
    shell:
        """
        python -m taps.corpus \
            {params.source:q} \
            {params.assets:q} \
            --output {output.corpus:q} \
            --audit {output.audit:q} \
            >{log:q} 2>&1
        """


rule regenerate:
    """Lets the target answer a corpus's prompts itself, for training on its own words."""
    input:
        target="<results>/target",
        corpus="<results>/corpora/{corpus}.jsonl",
    output:
        corpus="<results>/regenerated/{corpus}.jsonl",
        audit="<results>/regenerated/{corpus}.audit.json",
    log:
        "<logs>/regenerate/{corpus}.log",
    conda:
        "../../envs/taps.yaml"
    threads: config["parallel"]["model_threads"]
    resources:
        mem_mb=8000,
        runtime=1440,
        gpu=1 if ON_GPU else 0,
    params:
        code=code_digest("taps.regenerate"),
        lease=lease(1),
        options=ask(data.regenerate_flags, "corpus"),
        max_length=TARGET["max_length"],
        seed=config["seed"],
        dtype=config["dtype"],
        device=config["device"],
        trust=flags(trust_remote_code=TARGET["trust_remote_code"]),
        max_template_drop=TARGET["max_template_drop"],
    shell:
        """
        {params.lease:q} python -m taps.regenerate \
            --target {input.target:q} \
            --corpus {input.corpus:q} \
            {params.options:q} \
            --max-length {params.max_length:q} \
            --seed {params.seed:q} \
            --dtype {params.dtype:q} \
            --device {params.device:q} \
            {params.trust:q} \
            --max-template-drop {params.max_template_drop:q} \
            --output {output.corpus:q} \
            --audit {output.audit:q} \
            >{log:q} 2>&1
        """


rule prompts:
    """Chooses a benchmark's prompts."""
    input:
        assets=ask(data.prompts_source, "benchmark", root=ROOT),
        excluded=ask(data.excluded_corpora, "benchmark"),
    output:
        prompts="<results>/prompts/{benchmark}.jsonl",
        audit="<results>/prompts/{benchmark}.audit.json",
    log:
        "<logs>/prompts/{benchmark}.log",
    wildcard_constraints:
        benchmark=either(config["benchmarks"]),
    conda:
        "../../envs/taps.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        code=ask(data.prompts_code, "benchmark"),
        source=ask(data.prompts_flags, "benchmark"),
        assets=each("input", "assets"),
        excluded=each("exclude_overlap", "excluded"),
    shell:
        """
        python -m taps.prompts \
            {params.source:q} \
            {params.assets:q} \
            {params.excluded:q} \
            --output {output.prompts:q} \
            --audit {output.audit:q} \
            >{log:q} 2>&1
        """


rule overlap:
    """Reports how much of the benchmarks' prompts stands in the training corpora."""
    input:
        corpora=expand("<results>/corpora/{corpus}.jsonl", corpus=config["corpora"]),
        prompts=expand("<results>/prompts/{benchmark}.jsonl", benchmark=config["benchmarks"]),
    output:
        "<results>/overlap.json",
    log:
        "<logs>/overlap.log",
    conda:
        "../../envs/taps.yaml"
    threads: 1
    resources:
        mem_mb=8000,
        runtime=30,
    params:
        code=code_digest("taps.overlap"),
        corpora=each_named("corpus", "corpora", config["corpora"]),
        prompts=each_named("prompts", "prompts", config["benchmarks"]),
    shell:
        """
        python -m taps.overlap \
            {params.corpora:q} \
            {params.prompts:q} \
            --output {output:q} \
            >{log:q} 2>&1
        """


rule tokenise:
    """Renders conversations through the chat template and marks the tokens of assistant turns as supervised."""
    input:
        target="<results>/target",
        corpus=ask(data.training_corpus, "corpus"),
    output:
        tokens="<results>/tokens/{corpus}.safetensors",
        audit="<results>/tokens/{corpus}.audit.json",
    log:
        "<logs>/tokenise/{corpus}.log",
    conda:
        "../../envs/taps.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        code=code_digest("taps.tokenise"),
        max_length=TARGET["max_length"],
        size=ask(data.corpus_size, "corpus"),
        seed=config["seed"],
        max_template_drop=TARGET["max_template_drop"],
    shell:
        """
        python -m taps.tokenise \
            --target {input.target:q} \
            --corpus {input.corpus:q} \
            --max-length {params.max_length:q} \
            {params.size:q} \
            --seed {params.seed:q} \
            --max-template-drop {params.max_template_drop:q} \
            --output {output.tokens:q} \
            --audit {output.audit:q} \
            >{log:q} 2>&1
        """


rule heldout:
    """Takes prompts from a corpus's validation rows, for validation while training and for calibration."""
    input:
        corpus="<results>/corpora/{corpus}.jsonl",
        tokens="<results>/tokens/{corpus}.safetensors",
    output:
        "<results>/prompts/heldout_{corpus}.jsonl",
    log:
        "<logs>/heldout/{corpus}.log",
    conda:
        "../../envs/taps.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        code=code_digest("taps.heldout"),
        num_prompts=config["heldout"]["num_prompts"],
    shell:
        """
        python -m taps.heldout \
            --corpus {input.corpus:q} \
            --tokens {input.tokens:q} \
            --num-prompts {params.num_prompts:q} \
            --output {output:q} \
            >{log:q} 2>&1
        """


rule mixture:
    """Lists the training and validation rows of a mixture; corpora are pointed at, never copied."""
    input:
        tokens=ask(data.mixture_tokens, "mixture"),
    output:
        "<results>/mixtures/{mixture}.json",
    log:
        "<logs>/mixture/{mixture}.log",
    conda:
        "../../envs/taps.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        code=code_digest("taps.mixture"),
        tokens=each_named("tokens", "tokens", data.corpora_of, "mixture"),
        shares=ask(data.mixture_shares, "mixture"),
    shell:
        """
        python -m taps.mixture \
            {params.tokens:q} \
            {params.shares:q} \
            --output {output:q} \
            >{log:q} 2>&1
        """


rule draft_vocab:
    """Ranks tokens by their frequency in the corpora; drafting and the training loss use the first ones."""
    input:
        tokens=train.draft_vocab_tokens(config),
    output:
        "<results>/draft_vocab.safetensors",
    log:
        "<logs>/draft_vocab.log",
    conda:
        "../../envs/taps.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        code=code_digest("taps.draft_vocab"),
        tokens=each("tokens", "tokens"),
        size=DRAFTING["draft_vocab_size"],
    shell:
        """
        python -m taps.draft_vocab \
            {params.tokens:q} \
            --size {params.size:q} \
            --output {output:q} \
            >{log:q} 2>&1
        """
