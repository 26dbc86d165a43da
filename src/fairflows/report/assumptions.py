"""The assumptions of statements, in words."""

from __future__ import annotations

ASSUMPTIONS = {
    "released": "The {what} all that is released. Functions of that are covered; bounds of separate releases do not "
    "add up to one of both, and predictions made from the original rows are not covered.",
    "table": "The statement about the table holds for its {units} as they were shared, once, looked at one at a time "
    "by a person who was not told the groups of {others} in it. A person who knows the groups of many others, and can "
    "place them in cells, does better, by the further numbers. {another} of the same rows together with this one is "
    "not covered, and nothing is said about who is in the table.",
    "together": "In all releases that the certificate names, the rows of a person were drawn from one cell, so that "
    "all of them linked tell no more than the cell does. The statement is about persons who are in all of them. "
    "Being in a release is not covered.",
    "persons to come": "Persons to come are independent draws, group by group, from the distribution that the persons "
    "of the table come from; persons of the table {kept}.",
    "cut further": "Cells were cut further by later columns, at persons who were still in the table, their group "
    "and their cell. The bound takes those who had left, or moved to another group or cell, to be like them.",
    "one tree": "The bound is about one tree, fixed beforehand. A tree that was chosen among m by its bounds has m "
    "times the probability of error.",
    "ranks": "{column} is hidden by way of {narrow} narrow groups, whose edges were chosen by other persons than the "
    "cuts, and which count alike: the rank of {column} is that among persons of whom as many are in each of them. A "
    "narrow group of which the table holds one value has that value alone.",
    "some columns": "A statement about some of the sensitive columns is about persons of whom the groups have the same "
    "shares as in this table. Groups that were merged from several are matched as one. They are a value of "
    "their own where one of their values occurs in them alone; else their part counts as if it revealed the columns.",
    "drawn": "A released row is drawn anew each time from a law of rows given the cell, which is the same for every "
    "group. The row reveals no more about the group than the cell does, so the bounds of the cell cover the row.",
    "drawn together": "All rows of a person, their number and their times are drawn anew from a law of panels given "
    "the person's one cell, which is the same for every group. Together they reveal no more about the group than the "
    "cell does, so the bounds of the cell cover all rows of a person together. Persons have fresh numbers.",
    "groups": "The groups are those that the rows state; a group label that is wrong at encoding is not covered.",
    "independent": "The certifying persons are independent draws, group by group, from the distribution that the "
    "release will be used on.",
    "which groups": "The sensitive column alone decided which groups there are; no other column of these persons did.",
    "fresh persons": "The bound is for a fresh person; rows that the model was trained on are not covered.",
    "fixed before": "The encoder, the cells and their number were fixed before these persons were looked at.",
    "most rows": "No person has more than {most} rows. The bound is about a random row of the release; the one for a "
    "random person is about one random row of that person. Each holds at its own δ, both together at twice that. All "
    "rows of one person linked together are covered by neither, so identifiers are not released.",
    "merged": "Cells with fewer than ten of these persons of a group are merged in the printed counts, and count as if "
    "they revealed the group: the bounds are larger for it, never smaller.",
    "one row each": "No identifier says whose rows these are; it is assumed that no person has two of them.",
    "given the label": "Each bound given a label holds for that label. Together they have an error probability δ of "
    "their own.",
    "secret key": "The key behind coins and noise is secret, and one person {alike}.",
    "fresh coins": "Coins and noise are fresh for every row, because no identifier says whose rows they are: no person "
    "is released twice.",
    "densities": "The model-based bound takes the estimated densities for the truth. It does not say how far they are "
    "from it; the attack and the check of the densities do.",
    "noise": "The noise key is secret, no person is encoded by two models or two keys, and identifiers, index and "
    "order of the rows are not released.",
    "look": "This is look {look} of these persons, and spends its share of δ. That covers models that were fixed "
    "beforehand, or tried because an earlier one did not meet the target. A model that was chosen after reading "
    "earlier bounds of the same persons needs new persons.",
    "looks not counted": "No identifier says whose rows these are, so earlier certificates of the same persons cannot "
    "be recognised, and none was counted: the bound holds for the first certificate that these persons give.",
    "errors add up": "Each statement has its own probability of error; all of them hold together except with "
    "probability of the sum.",
    "not comparable": "Persons are not named as in training, or not at all, and too many rows are alike: it is taken "
    "on trust that none of these was trained on.",
}
"""Text of each assumption, by its key."""

ABOUT_MODEL = ("densities",)
"""Assumptions of the model-based bound alone."""
