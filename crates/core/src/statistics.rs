//! Statistics: summaries, bootstrap intervals over trials.
