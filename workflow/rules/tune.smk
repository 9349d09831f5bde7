"""Trees that follow this machine: the shape that brings most tokens per second, chosen on held-out texts."""

if tune.methods(config):

    rule fit_router:
        """Fits a router that chooses the drafter by the prompt alone."""
        input:
            traces=ask(tune.heldout, "method"),
            banks=ask(tune.router_banks, "method"),
        output:
            "<results>/routers/{method}.json",
        log:
            "<logs>/fit_router/{method}.log",
        conda:
            "../../envs/taps.yaml"
        threads: 1
        resources:
            mem_mb=4000,
            runtime=30,
        params:
            code=code_digest("taps.fit_router"),
            traces=each("trace", "traces"),
            banks=each("bank", "banks"),
            drafters=ask(tune.router_flags, "method"),
            num_draft_tokens=DRAFTING["num_draft_tokens"],
        shell:
            """
            python -m taps.fit_router \
                {params.traces:q} \
                {params.banks:q} \
                {params.drafters:q} \
                --num-draft-tokens {params.num_draft_tokens:q} \
                --output {output:q} \
                >{log:q} 2>&1
            """

    rule tune:
        """Chooses depth and nodes per strategy and drafters by the measured costs, and values the choice."""
        input:
            heldout=ask(tune.heldout, "method"),
            benchmarks=ask(tune.traces, "method"),
            banks=ask(tune.banks, "method"),
            calibration=ask(tune.calibration, "method"),
            router=ask(tune.router, "method"),
            cost="<results>/cost.json",
        output:
            "<results>/tuned/{method}.json",
        log:
            "<logs>/tune/{method}.log",
        conda:
            "../../envs/taps.yaml"
        threads: 1
        resources:
            mem_mb=6000,
            runtime=60,
        params:
            code=tune.code(config),
            heldout=each("heldout", "heldout"),
            benchmarks=each_named("benchmark", "benchmarks", tune.benchmarks, "method"),
            banks=each("bank", "banks"),
            calibration=each("calibration", "calibration"),
            router=each("router", "router"),
            strategies=ask(tune.rows, "method"),
            num_draft_tokens=DRAFTING["num_draft_tokens"],
        shell:
            """
            python -m taps.tune \
                {params.heldout:q} \
                {params.benchmarks:q} \
                {params.banks:q} \
                {params.calibration:q} \
                {params.router:q} \
                --cost {input.cost:q} \
                --strategies {params.strategies:q} \
                --num-draft-tokens {params.num_draft_tokens:q} \
                --output {output:q} \
                >{log:q} 2>&1
            """
