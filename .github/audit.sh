#!/usr/bin/env bash
# The steps of action.yml, as a script that tests can run: audit, then gate.
set -euo pipefail
run=robust0-audit
audit=(robust0 audit "$MODEL" --data "$DATA" --eps "$EPS" --images "$IMAGES" --effort "$EFFORT" -o "$run")
if [ -n "${FACTORY:-}" ]; then audit+=(--factory "$FACTORY"); fi
if [ -n "${BASELINE:-}" ]; then audit+=(--like "$BASELINE"); fi
"${audit[@]}"
gate=(robust0 gate "$run")
if [ -n "${BASELINE:-}" ]; then
  gate+=(--baseline "$BASELINE" --max-drop "$MAX_DROP" --policy "$POLICY")
fi
for floor in ${FAIL_UNDER:-}; do gate+=(--fail-under "$floor"); done
if [ -n "${BASELINE:-}${FAIL_UNDER:-}" ]; then "${gate[@]}"; fi
