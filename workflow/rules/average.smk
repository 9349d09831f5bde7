"""Weight averages of two specialists."""


rule average:
    """Averages two drafters' weights in fp32; the name says the second one's weight (0.5: plain `averaged`)."""
    input:
        drafters=specialists,
    output:
        directory("<results>/drafters/{method}/{mixture}"),
    log:
        "<logs>/average/{method}/{mixture}.log",
    wildcard_constraints:
        mixture="averaged(_[0-9.]+)?",
    conda:
        "../../envs/taps.yaml"
    threads: 1
    resources:
        mem_mb=6000,
        runtime=30,
    params:
        code=code_digest("taps.average"),
        drafters=average_flags,
    shell:
        """
        python -m taps.average \
            {params.drafters:q} \
            --output {output:q} \
            2>&1 | tee {log:q}
        """
