//! Claims about the whole fabric.
