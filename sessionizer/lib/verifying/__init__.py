"""verify's own way from events to sessions, so that one bug cannot hide in both (SEMANTICS §2, §3, §5, §9).

The accepted events are counted (`bag`), sessions are cut of them by a running maximum over raw events, or by a walk
(`plan`), and their aggregates are plain functions over whole sessions (`facts`): there is no fold, no state, no merge,
and nothing of what a run is made of, neither `sessionizer.lib.windows` nor `sessionizer.lib.aggregates`.

Shared with a run, since there is nothing to compute in another way: the rule and the names of columns; which row of the
source is an event, and when (`validate`), the hash of a row and the id of a session (`canonical`), for these are what
the words mean; the parser of the configuration's expressions; when two results are the same (`compare`).
"""
