"""From replays to tables, figures and the page."""


report: "../report/workflow.rst"


rule tables:
    """Target: all tables."""
    input:
        "<reports>/tables",


rule figures:
    """Target: all tables, figures and the page; with stored replays no model is run."""
    input:
        "<reports>/tables",
        "<reports>/figures",
        "<reports>/index.html",


rule tabulate:
    """Writes every table as CSV, LaTeX and Markdown."""
    input:
        replays=reporting.replays(config),
        audits=reporting.audits(config).values(),
        drafters=expand("<results>/drafters/{name}", name=reporting.trained(config)),
        calibrations=expand("<results>/calibration/{name}.json", name=reporting.calibrated(config)),
        overlap=reporting.overlap(config),
        cost=reporting.cost(config),
        target="<results>/target",
        live=expand("<results>/live/{name}.json", name=reporting.live(config)),
        tuned=expand("<results>/tuned/{method}.json", method=reporting.tuned(config)),
    output:
        report(
            directory("<reports>/tables"),
            patterns=["{name}.csv"],
            caption="../report/tables.rst",
            category="Tables",
        ),
    log:
        "<logs>/tabulate.log",
    conda:
        "../../envs/taps.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        code=reporting.code("taps.tables"),
        roles=reporting.roles(config),
        num_draft_tokens=DRAFTING["num_draft_tokens"],
        audits=each_named("audit", "audits", reporting.audits),
        drafters=each_named("drafter", "drafters", reporting.trained),
        calibrations=each_named("calibration", "calibrations", reporting.calibrated),
        overlap=each("overlap", "overlap"),
        cost=each("cost", "cost"),
        live=each_named("live", "live", reporting.live),
        tuned=each_named("tuned", "tuned", reporting.tuned),
        failures=reporting.failures(config),
    shell:
        """
        python -m taps.tables \
            --replay {input.replays:q} \
            --num-draft-tokens {params.num_draft_tokens:q} \
            --roles {params.roles:q} \
            {params.audits:q} \
            {params.drafters:q} \
            {params.calibrations:q} \
            {params.overlap:q} \
            {params.cost:q} \
            --target {input.target:q} \
            {params.live:q} \
            {params.tuned:q} \
            {params.failures:q} \
            --output {output:q} \
            >{log:q} 2>&1
        """


rule draw:
    """Draws every figure as PDF and PNG."""
    input:
        tables="<reports>/tables",
        trace=reporting.drawn_trace(config),
        banks=reporting.drawn_banks(config),
        target=reporting.drawn_target(config),
    output:
        report(
            directory("<reports>/figures"),
            patterns=["{name}.png"],
            caption="../report/figures.rst",
            category="Figures",
        ),
    log:
        "<logs>/draw.log",
    conda:
        "../../envs/taps.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        code=reporting.code("taps.figures"),
        trace=each("trace", "trace"),
        banks=each_named("bank", "banks", reporting.drawn_drafters),
        tokenizer=lambda wildcards, input: flags(
            tokenizer=[f"{folder}/tokenizer.json" for folder in input.get("target")]
        ),
    shell:
        """
        python -m taps.figures \
            --tables {input.tables:q} \
            {params.trace:q} \
            {params.banks:q} \
            {params.tokenizer:q} \
            --output {output:q} \
            >{log:q} 2>&1
        """


rule judge:
    """Judges every claim of the paper by intervals."""
    input:
        tables="<reports>/tables",
    output:
        report(
            directory("<reports>/claims"),
            patterns=["{name}.csv"],
            caption="../report/claims.rst",
            category="Claims",
        ),
    log:
        "<logs>/judge.log",
    conda:
        "../../envs/taps.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        code=reporting.code("taps.claims"),
    shell:
        """
        python -m taps.claims \
            --tables {input.tables:q} \
            --output {output:q} \
            >{log:q} 2>&1
        """


rule publish:
    """Puts tables, figures and verdicts on one self-contained page."""
    input:
        tables="<reports>/tables",
        figures="<reports>/figures",
        claims="<reports>/claims",
    output:
        report("<reports>/index.html", caption="../report/page.rst", category="Page"),
    log:
        "<logs>/publish.log",
    conda:
        "../../envs/taps.yaml"
    threads: 1
    params:
        code=reporting.code("taps.page"),
        study=STUDY,
        config_files=CONFIG_FILES,
    shell:
        """
        python -m taps.page \
            --study {params.study:q} \
            --tables {input.tables:q} \
            --figures {input.figures:q} \
            --claims {input.claims:q} \
            --config {params.config_files:q} \
            --output {output:q} \
            >{log:q} 2>&1
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
            >{log:q} 2>&1
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
        "rm -rfv -- {params.folders:q} >{log:q} 2>&1"
