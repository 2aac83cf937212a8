//! Systems of other teams, as far as ours can see them.
//!
//! Invariant: a double does what the reference says that the real one does, at the places where ours meets it, and nothing
//! more; what it was made to do is counted, so that "it did nothing" can be shown.

pub mod kim;
