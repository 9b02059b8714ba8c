-- Each key's sessions, counted from its first; late events that are kept apart make none of them.
SELECT
  * EXCEPT (_state),
  row_number() OVER of_key AS session_number,
  row_number() OVER of_key = 1 AS is_new_visitor,
  lag(session_end) OVER of_key AS previous_session_end
FROM {sessions}
WHERE NOT is_late
WINDOW of_key AS (PARTITION BY {key} ORDER BY session_start, session_end, session_id)
