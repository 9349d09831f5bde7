"""Weight averages of specialists."""


rule average:
    """Averages drafters' weights in fp32: all with equal weights (`averaged`), or a pair, by the second one's weight."""
    input:
        drafters=ask(average.drafters, "method", "training_seed", "drafter"),
    output:
        directory("<results>/drafters/{method}/seed{training_seed}/{drafter}"),
    log:
        "<logs>/average/{method}/seed{training_seed}/{drafter}.log",
    wildcard_constraints:
        drafter=either(average.all_names(config)),
    conda:
        "../../envs/taps.yaml"
    threads: 1
    resources:
        mem_mb=6000,
        runtime=30,
    params:
        code=ask(train.code, "method", stage="taps.average"),
        drafters=ask_about(average.weight_flags, "drafters", "method", "drafter"),
    shell:
        """
        python -m taps.average \
            {params.drafters:q} \
            --output {output:q} \
            >{log:q} 2>&1
        """
