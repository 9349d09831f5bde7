"""What to verify in a cycle: one pure function per strategy, shared by replay (P sequences) and live decoding (P = 1).

A strategy maps (one batch of trees per drafter, what this answer has shown so far, options) to the trees to verify. To
add one, write a function under `@strategy(...)` in a module of this package, whichever it fits or a new one, and name
it in the config. A name with `_calibrated` behind it runs the same function after scaling each drafter's
log-probabilities by its fitted inverse temperature.

    name                      verifies, per cycle
    single, single_double     one drafter's tree; with twice the nodes
    routed_confidence_*       the tree with the larger mean of exp(score); _step: every cycle, _turn: the first decides
    routed_entropy_*          the tree with the smaller mean entropy
    routed_history            the tree of the drafter that would have accepted more in this answer so far
    merged_concat             all trees under one root, nothing removed
    merged_dedup              the same with equal paths counted once
    merged_matched            the best nodes of the union, as many as one drafter has
    merged_adaptive           merged_matched, each drafter weighted by its share of what was accepted so far
    random                    the tree of a drafter drawn anew every cycle
    oracle                    the tree with the longest accepted path            (knows the future: replay only)
    posthoc                   per question, the drafter more confident over its own whole answer  (likewise)
    best_single               the drafter with the largest tau on this benchmark                  (likewise)

`posthoc` is the published router: its percentages come from comparing finished runs, so it could not be deployed.
"""
