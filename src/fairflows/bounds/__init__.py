"""Upper and lower bounds on what a release tells about the group, as pure functions of arrays."""

from fairflows.bounds.betting import betting_upper_bound
from fairflows.bounds.comparison import fare_upper_bound, weissman_upper_bound
from fairflows.bounds.counts import (
    cell_radius,
    cell_upper_bound,
    joint_accuracy_upper_bound,
    randomised_counts,
    stratified_accuracy_upper_bound,
)
from fairflows.bounds.derived import (
    adversary_accuracy_limits,
    balanced_accuracy,
    density_error_lower_bound,
    distance_for_accuracy,
    error_lower_bound,
    four_fifths_rate,
    per_label,
    selection_ratio_lower_bound,
    true_distance_upper_bound,
)
from fairflows.bounds.distance import exact_adversary_accuracy, exact_statistical_distance, total_variation
from fairflows.bounds.lower_bounds import (
    attack_lower_bound,
    better_method,
    clopper_pearson_lower,
    clopper_pearson_upper,
)
from fairflows.bounds.model import (
    accuracy_terms,
    adversary_accuracy,
    adversary_accuracy_upper_bound,
    distance_terms,
    pairwise_statistical_distance,
    statistical_distance,
    statistical_distance_upper_bound,
)
from fairflows.bounds.paper import (
    hoeffding_radius,
    kl_upper_bound,
    samples_needed,
    sign_estimate,
    sign_upper_bound,
)
from fairflows.bounds.planning import expected_cell_distance, most_useful_within, planned_cell_bound, rows_needed
from fairflows.bounds.spending import delta_of_each, delta_of_look

__all__ = [
    "accuracy_terms",
    "adversary_accuracy",
    "adversary_accuracy_limits",
    "adversary_accuracy_upper_bound",
    "attack_lower_bound",
    "balanced_accuracy",
    "better_method",
    "betting_upper_bound",
    "cell_radius",
    "cell_upper_bound",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "delta_of_each",
    "delta_of_look",
    "density_error_lower_bound",
    "distance_for_accuracy",
    "distance_terms",
    "error_lower_bound",
    "exact_adversary_accuracy",
    "exact_statistical_distance",
    "expected_cell_distance",
    "fare_upper_bound",
    "four_fifths_rate",
    "hoeffding_radius",
    "joint_accuracy_upper_bound",
    "kl_upper_bound",
    "most_useful_within",
    "pairwise_statistical_distance",
    "per_label",
    "planned_cell_bound",
    "randomised_counts",
    "rows_needed",
    "samples_needed",
    "selection_ratio_lower_bound",
    "sign_estimate",
    "sign_upper_bound",
    "statistical_distance",
    "statistical_distance_upper_bound",
    "stratified_accuracy_upper_bound",
    "total_variation",
    "true_distance_upper_bound",
    "weissman_upper_bound",
]
