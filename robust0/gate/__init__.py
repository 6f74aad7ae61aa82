"""Whether a model may ship: baselines, paired comparison, decisions, replays."""
