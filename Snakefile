# taps: how the training data of a draft model shapes its acceptance length.
#
#   snakemake --cores 8 all        everything that config.yaml asks for, up to the report
#   snakemake --cores 8 figures    tables, figures and page again, from the stored replays
#   snakemake --cores 1 plan       jobs, disk, FLOPs and hours of the study, before it runs
#   snakemake -n                   what would run
#
# Rules are in workflow/rules; each calls one `python -m taps.<stage>`. What a rule file asks of the config is in the
# module of taps/study of the same name (report.smk: reporting).
from snakemake.utils import min_version

min_version("9.20")


# A study given by --configfile takes the place of config.yaml, in the jobs of a cluster, too: these are not told of
# --replace-workflow-config. Several files are merged in their order.
if not workflow.config_settings.configfiles:

    configfile: f"{workflow.basedir}/config.yaml"


include: "workflow/rules/common.smk"


pathvars:
    results=f"results/{config['study']}",
    reports=f"reports/{config['study']}",
    logs=f"logs/{config['study']}",


include: "workflow/rules/assets.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/features.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/average.smk"
include: "workflow/rules/trace.smk"
include: "workflow/rules/bank.smk"
include: "workflow/rules/tune.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/report.smk"


rule all:
    """The whole study."""
    default_target: True
    input:
        rules.figures.input,


onstart:
    hold_study()


onsuccess:
    forget_failures()


onerror:
    report_the_rest()
