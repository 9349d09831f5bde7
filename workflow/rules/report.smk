"""From replays to tables, figures and the page."""


rule tables:
    """Target: all tables."""
    input:
        "<reports>/tables",


rule figures:
    """Target: all tables, figures and the page; with stored replays no model is run."""
    input:
        "<reports>/tables",
        "<reports>/figures",
        "<reports>/claims",


rule tabulate:
    """Writes every table as CSV, LaTeX and Markdown."""
    input:
        replays=replays(),
    output:
        directory("<reports>/tables"),
    log:
        "<logs>/tabulate.log",
    conda:
        "../../envs/taps.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        code=code_digest("taps.tables"),
        seed=config["seed"],
    shell:
        """
        python -m taps.tables \
            --replay {input.replays:q} \
            --seed {params.seed:q} \
            --output {output:q} \
            2>&1 | tee {log:q}
        """


rule draw:
    """Draws every figure as PDF and PNG."""
    input:
        tables="<reports>/tables",
    output:
        directory("<reports>/figures"),
    log:
        "<logs>/draw.log",
    conda:
        "../../envs/taps.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        code=code_digest("taps.figures"),
    shell:
        """
        python -m taps.figures \
            --tables {input.tables:q} \
            --output {output:q} \
            2>&1 | tee {log:q}
        """


rule judge:
    """Judges every claim of the paper by intervals."""
    input:
        tables="<reports>/tables",
    output:
        directory("<reports>/claims"),
    log:
        "<logs>/judge.log",
    conda:
        "../../envs/taps.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        code=code_digest("taps.claims"),
    shell:
        """
        python -m taps.claims \
            --tables {input.tables:q} \
            --output {output:q} \
            2>&1 | tee {log:q}
        """


rule plan:
    """Target: jobs, disk, operations and device hours of the study, before it runs."""
    output:
        "<reports>/plan.json",
    log:
        "<logs>/plan.log",
    conda:
        "../../envs/taps.yaml"
    threads: 1
    params:
        code=code_digest("taps.plan"),
        snakefile=f"{workflow.basedir}/Snakefile",
        config_files=CONFIG_FILES,
    shell:
        """
        python -m taps.plan \
            --snakefile {params.snakefile:q} \
            --config {params.config_files:q} \
            --output {output:q} \
            2>&1 | tee {log:q}
        """


rule clean_features:
    """Target: deletes the features, the largest part of a study's disk; only a new training needs them again."""
    log:
        "<logs>/clean_features.log",
    conda:
        "../../envs/taps.yaml"
    params:
        folders=[f"results/{STUDY}/features", f"results/{STUDY}/feature_shards"],
    shell:
        "rm -rfv -- {params.folders:q} 2>&1 | tee {log:q}"
